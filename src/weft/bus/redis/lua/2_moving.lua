-- Messages on their way through a group. A message is packed by those who publish it, and is not changed here. An entry
-- of a stream has it as "m", and its attempt as "a" unless that is the first; a dead letter has the reason as "r".
-- It begins with the length of what is told about it, in four bytes; then that, packed: topic, key, headers, id.

local AT_ONCE = 1000 -- as many as are moved before others have their turn

local function topic_and_headers(message)
  local about = cmsgpack.unpack(string.sub(message, 5, 4 + struct.unpack('>I4', message)))
  return about[1], about[3]
end

local function put(group, message, attempt)
  if attempt == 1 then
    redis.call('XADD', ready_of(group), '*', 'm', message)
  else
    redis.call('XADD', ready_of(group), '*', 'm', message, 'a', attempt)
  end
end

-- A delayed message is text that sorts by the order of arrival, has the attempt, and is like no other:
-- NUMBER:ATTEMPT:MESSAGE, the number with sixteen digits.
local function put_later(key, message, attempt, due)
  local number = redis.call('INCR', prefix .. 'number')
  redis.call('ZADD', key, due, string.format('%016.0f:%d:', number, attempt) .. message)
end

local function parts_of_delayed(text)
  local colon = string.find(text, ':', 18, true)
  return string.sub(text, colon + 1), tonumber(string.sub(text, 18, colon - 1))
end

-- The message and the attempt of an entry that a subscriber holds, and that it holds no longer; nil if it did not.
local function taken_back(group, id)
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

-- What is due goes to ready. Returns in how many milliseconds the next one is; -1 if there is none.
local function move_due(group, time)
  local delayed = delayed_of(group)
  local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', time, 'LIMIT', 0, AT_ONCE)
  for _, text in ipairs(due) do
    put(group, parts_of_delayed(text))
    redis.call('ZREM', delayed, text)
  end
  local next = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
  return next[2] and math.max(0, tonumber(next[2]) - time) or -1
end

-- The same for subscribers without a group.
local function tell_due(time)
  local later = prefix .. 'later'
  local due = redis.call('ZRANGEBYSCORE', later, '-inf', time, 'LIMIT', 0, AT_ONCE)
  for _, text in ipairs(due) do
    local message = parts_of_delayed(text)
    redis.call('PUBLISH', prefix .. (topic_and_headers(message)), message)
    redis.call('ZREM', later, text)
  end
  local next = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')
  return next[2] and math.max(0, tonumber(next[2]) - time) or -1
end
