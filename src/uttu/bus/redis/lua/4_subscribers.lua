-- Subscribers: join a group, send heartbeats, settle messages, leave. arguments[1] and [2] are the prefix and the
-- operation, so the arguments in these comments count from 3 on.

local LISTENING_MS = 60000 -- lifetime of the key "listening"; renewed when half of it has passed

-- Record a heartbeat. If no subscriber has sent one for half of `takeover`, the server was probably unavailable: then
-- all heartbeats are set to now, so that nobody is taken for dead because of the outage. Returns whether the subscriber
-- had no heartbeat on record: it was taken for dead, or it is new.
local function beat(group, subscriber, takeover, time)
  local beats = beats_of(group)
  local was = redis.call('ZSCORE', beats, subscriber)
  if was and time - tonumber(was) < takeover / 10 then
    return false -- recent enough; skip the write, which the server would have to log and replicate
  end
  local latest = redis.call('ZREVRANGE', beats, 0, 0, 'WITHSCORES')[2]
  if latest and time - tonumber(latest) > takeover / 2 then
    for _, each in ipairs(redis.call('ZRANGE', beats, 0, -1)) do
      redis.call('ZADD', beats, time, each)
    end
  end
  redis.call('ZADD', beats, time, subscriber)
  return not was
end

-- Give a heartbeat to readers of the stream that have none, so that take_over() finds them later: a subscriber that was
-- taken for dead, read further entries, and died before its next heartbeat.
local function register_unknown(group, time)
  for _, about in ipairs(redis.call('XINFO', 'CONSUMERS', ready_of(group), GROUP)) do
    for index = 1, #about, 2 do
      if about[index] == 'name' then
        redis.call('ZADD', beats_of(group), 'NX', time, about[index + 1])
      end
    end
  end
end

-- Take all pending entries from a subscriber, call `move` with the message and attempt of each, and delete the
-- subscriber. Handles up to MAX_BATCH entries; returns whether the subscriber is deleted, else call it again.
local function release(group, subscriber, move)
  local ready = ready_of(group)
  local held = redis.call('XPENDING', ready, GROUP, '-', '+', MAX_BATCH, subscriber)
  for _, entry in ipairs(held) do
    local message, attempt = take_pending(group, entry[1])
    if message then
      move(message, attempt)
    end
  end
  if #held == MAX_BATCH then
    return false
  end
  redis.call('XGROUP', 'DELCONSUMER', ready, GROUP, subscriber)
  redis.call('ZREM', beats_of(group), subscriber)
  return true
end

-- Release the messages of subscribers without a heartbeat for `takeover` milliseconds: back to the stream with the
-- attempt one higher, or to the dead letters after the last attempt.
local function take_over(group, takeover, attempts, time)
  local expired = redis.call('ZRANGEBYSCORE', beats_of(group), '-inf', time - takeover, 'LIMIT', 0, 10)
  for _, subscriber in ipairs(expired) do
    release(group, subscriber, function(message, attempt)
      if attempt >= attempts then
        local times = attempt == 1 and 'once' or attempt .. ' times'
        put_dead(group, message, attempt, 'tried ' .. times .. ', and its subscriber died during the last attempt')
      else
        put(group, message, attempt + 1)
      end
    end)
  end
end

-- Join a group, and create it if it does not exist.
-- arguments: group, definition, subscriber, takeover in milliseconds, a new token in case the bus has none, and the
-- token that the subscriber got when it joined before (empty the first time).
-- Returns the token of the bus and the definition of the group; the caller compares the latter with its own.
-- The token tells why a group is missing when a subscriber joins again. If the token has changed, the server has lost
-- its data, and the group is created again. If not, somebody has deleted the group on purpose: it is not created, and
-- the definition in the answer is nil.
local function join(arguments)
  local group, definition, subscriber = arguments[3], arguments[4], arguments[5]
  redis.call('SET', prefix .. 'token', arguments[7], 'NX')
  if redis.call('GET', prefix .. 'token') == arguments[8] and not group_exists(group) then
    return { arguments[8], false }
  end
  if redis.call('HSETNX', prefix .. 'groups', group, definition) == 1 then
    redis.call('XGROUP', 'CREATE', ready_of(group), GROUP, '0', 'MKSTREAM')
  end
  local known = redis.call('HGET', prefix .. 'groups', group)
  if known == definition then
    beat(group, subscriber, tonumber(arguments[6]), now())
  end
  return { redis.call('GET', prefix .. 'token'), known }
end

-- Heartbeat of a subscriber; also takes over messages and moves delayed ones that are due.
-- arguments: group, subscriber, takeover in milliseconds, attempts, '1' to run register_unknown().
-- Returns the milliseconds until the next delayed message is due (or -1), and 1 if the subscriber had been taken for
-- dead, so that its messages went to others.
local function tick(arguments)
  local group, subscriber, takeover, time = arguments[3], arguments[4], tonumber(arguments[5]), now()
  if not group_exists(group) then
    return { -1, 0 }
  end
  local was_lost = beat(group, subscriber, takeover, time)
  if arguments[7] == '1' then
    register_unknown(group, time)
  end
  take_over(group, takeover, tonumber(arguments[6]), time)
  return { move_due(group, time), was_lost and 1 or 0 }
end

-- Heartbeat of a subscriber without a group. Returns the milliseconds until the next delayed message is due, or -1.
local function listen(arguments)
  if redis.call('PTTL', prefix .. 'listening') < LISTENING_MS / 2 then
    redis.call('SET', prefix .. 'listening', '1', 'PX', LISTENING_MS)
  end
  return publish_due(now())
end

-- The ids of entries are one argument, separated by spaces: clients encode one long argument faster than many short
-- ones.
local ENTRY = '[^ ]+'

-- Acknowledge entries. arguments: group, entries.
local function acknowledge(arguments)
  local ready, ids = ready_of(arguments[3]), {}
  local function finish()
    redis.call('XACK', ready, GROUP, unpack(ids))
    redis.call('XDEL', ready, unpack(ids))
    ids = {}
  end
  for id in string.gmatch(arguments[4], ENTRY) do
    ids[#ids + 1] = id
    if #ids == MAX_BATCH then
      finish()
    end
  end
  if #ids > 0 then
    finish()
  end
end

-- Retry entries later, with the attempt one higher. arguments: group, entries, delay in milliseconds.
local function retry(arguments)
  local group, due = arguments[3], now() + tonumber(arguments[5])
  for id in string.gmatch(arguments[4], ENTRY) do
    local message, attempt = take_pending(group, id)
    if message then
      put_delayed(delayed_of(group), message, attempt + 1, due)
    end
  end
end

-- Move entries to the dead letters. arguments: group, entries, reason.
local function dead_letter(arguments)
  local group = arguments[3]
  for id in string.gmatch(arguments[4], ENTRY) do
    local message, attempt = take_pending(group, id)
    if message then
      put_dead(group, message, attempt, arguments[5])
    end
  end
end

-- Leave the group: pending entries go back to the stream, with the same attempt. arguments: group, subscriber.
local function leave(arguments)
  local group = arguments[3]
  if not group_exists(group) then
    return
  end
  repeat
    local is_released = release(group, arguments[4], function(message, attempt)
      put(group, message, attempt)
    end)
  until is_released
end
