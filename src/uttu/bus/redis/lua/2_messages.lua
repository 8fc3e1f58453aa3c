-- Move messages between the keys of a group.
--
-- The publisher encodes a message (uttu/bus/redis/codec.py), and no operation changes it: four bytes with the length of
-- the msgpack part, the msgpack part (topic, key, headers, id), the payload. The entry of a stream has the message as
-- field "m" and its attempt as "a" (missing if 1); a dead letter has the reason as "r".

local MAX_BATCH = 1000 -- maximum number of messages that one operation moves, so that other clients don't wait long

local function decode_header(message)
  local header = cmsgpack.unpack(string.sub(message, 5, 4 + struct.unpack('>I4', message)))
  return header[1], header[3]
end

local function put(group, message, attempt)
  if attempt == 1 then
    redis.call('XADD', ready_of(group), '*', 'm', message)
  else
    redis.call('XADD', ready_of(group), '*', 'm', message, 'a', attempt)
  end
end

-- The member of a zset for a delayed message is NUMBER:ATTEMPT:MESSAGE. The number comes from a counter and has sixteen
-- digits: it makes members unique, and messages with the same due time keep the order of arrival.
local function put_delayed(key, message, attempt, due)
  local number = redis.call('INCR', prefix .. 'number')
  redis.call('ZADD', key, due, string.format('%016.0f:%d:', number, attempt) .. message)
end

local function parse_delayed(text)
  local colon = string.find(text, ':', 18, true)
  return string.sub(text, colon + 1), tonumber(string.sub(text, 18, colon - 1))
end

-- Remove a pending entry from the stream. Returns its message and attempt; nil if it is not pending any more.
local function take_pending(group, id)
  local ready = ready_of(group)
  local found = redis.call('XRANGE', ready, id, id)[1]
  if redis.call('XACK', ready, GROUP, id) == 0 or not found then
    return nil
  end
  redis.call('XDEL', ready, id)
  local fields = found[2]
  return fields[2], tonumber(fields[4] or 1)
end

local function put_dead(group, message, attempt, reason)
  redis.call('XADD', dead_of(group), '*', 'm', message, 'a', attempt, 'r', reason)
end

-- Move delayed messages that are due to the stream. Returns the milliseconds until the next one is due, or -1.
local function move_due(group, time)
  local delayed = delayed_of(group)
  local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', time, 'LIMIT', 0, MAX_BATCH)
  for _, text in ipairs(due) do
    put(group, parse_delayed(text))
    redis.call('ZREM', delayed, text)
  end
  local next = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
  return next[2] and math.max(0, tonumber(next[2]) - time) or -1
end

-- The same as move_due(), for subscribers without a group: PUBLISH delayed messages that are due.
local function publish_due(time)
  local later = prefix .. 'later'
  local due = redis.call('ZRANGEBYSCORE', later, '-inf', time, 'LIMIT', 0, MAX_BATCH)
  for _, text in ipairs(due) do
    local message = parse_delayed(text)
    redis.call('PUBLISH', prefix .. (decode_header(message)), message)
    redis.call('ZREM', later, text)
  end
  local next = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')
  return next[2] and math.max(0, tonumber(next[2]) - time) or -1
end
