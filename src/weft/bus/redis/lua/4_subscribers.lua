-- Subscribers: they join a group, say from time to time that they live, end what they hold, and leave.

local LISTENING_MS = 60000

-- Note that a subscriber lives. If nobody has for long, nobody could: the server was away. Then all live until they
-- prove dead. Returns whether this one had been taken for dead.
local function beat(group, subscriber, takeover, time)
  local beats = beats_of(group)
  local was = redis.call('ZSCORE', beats, subscriber)
  if was and time - tonumber(was) < takeover / 10 then
    return false -- what is not written need not be kept
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

-- Readers that nobody vouches for: one that was taken for dead, read on, and died before it could say that it lives.
local function note_strangers(group, time)
  for _, about in ipairs(redis.call('XINFO', 'CONSUMERS', ready_of(group), GROUP)) do
    for index = 1, #about, 2 do
      if about[index] == 'name' then
        redis.call('ZADD', beats_of(group), 'NX', time, about[index + 1])
      end
    end
  end
end

-- What a subscriber holds goes back; ``move`` is told each message and its attempt. Returns whether that was all.
local function release(group, subscriber, move)
  local ready = ready_of(group)
  local held = redis.call('XPENDING', ready, GROUP, '-', '+', AT_ONCE, subscriber)
  for _, entry in ipairs(held) do
    local message, attempt = taken_back(group, entry[1])
    if message then
      move(message, attempt)
    end
  end
  if #held == AT_ONCE then
    return false
  end
  redis.call('XGROUP', 'DELCONSUMER', ready, GROUP, subscriber)
  redis.call('ZREM', beats_of(group), subscriber)
  return true
end

local function take_over(group, takeover, attempts, time)
  local silent = redis.call('ZRANGEBYSCORE', beats_of(group), '-inf', time - takeover, 'LIMIT', 0, 10)
  for _, subscriber in ipairs(silent) do
    release(group, subscriber, function(message, attempt)
      if attempt >= attempts then
        local times = attempt == 1 and 'once' or attempt .. ' times'
        put_dead(group, message, attempt, 'tried ' .. times .. ', and its subscriber was lost at the last')
      else
        put(group, message, attempt + 1)
      end
    end)
  end
end

-- arguments: group, definition, subscriber, takeover, a token for the bus if it has none, and the one that the subscriber
-- knows, if it had joined before. Answers with the token of the bus and the definition in force. The bus has another
-- token only if the server has lost its data. If it has not, and the group is gone, then it was forgotten on purpose,
-- and is not made again for those who were in it.
local function join(arguments)
  local group, definition, subscriber = arguments[3], arguments[4], arguments[5]
  redis.call('SET', prefix .. 'token', arguments[7], 'NX')
  if redis.call('GET', prefix .. 'token') == arguments[8] and not is_there(group) then
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

-- arguments: group, subscriber, takeover, attempts, whether to look for strangers. Answers with the milliseconds to the
-- next delayed message, and whether the subscriber had been taken for dead, and lost what it held.
local function tick(arguments)
  local group, subscriber, takeover, time = arguments[3], arguments[4], tonumber(arguments[5]), now()
  if not is_there(group) then
    return { -1, 0 }
  end
  local was_lost = beat(group, subscriber, takeover, time)
  if arguments[7] == '1' then
    note_strangers(group, time)
  end
  take_over(group, takeover, tonumber(arguments[6]), time)
  return { move_due(group, time), was_lost and 1 or 0 }
end

-- For a subscriber without a group.
local function listen(arguments)
  if redis.call('PTTL', prefix .. 'listening') < LISTENING_MS / 2 then
    redis.call('SET', prefix .. 'listening', '1', 'PX', LISTENING_MS)
  end
  return tell_due(now())
end

-- The entries to end come as one text, with spaces between them: that is less work for those who ask.
local ENTRY = '[^ ]+'

-- arguments: group, the entries.
local function done(arguments)
  local ready, ids = ready_of(arguments[3]), {}
  local function finish()
    redis.call('XACK', ready, GROUP, unpack(ids))
    redis.call('XDEL', ready, unpack(ids))
    ids = {}
  end
  for id in string.gmatch(arguments[4], ENTRY) do
    ids[#ids + 1] = id
    if #ids == AT_ONCE then
      finish()
    end
  end
  if #ids > 0 then
    finish()
  end
end

-- arguments: group, the entries, delay in milliseconds.
local function again(arguments)
  local group, due = arguments[3], now() + tonumber(arguments[5])
  for id in string.gmatch(arguments[4], ENTRY) do
    local message, attempt = taken_back(group, id)
    if message then
      put_later(delayed_of(group), message, attempt + 1, due)
    end
  end
end

-- arguments: group, the entries, reason.
local function bury(arguments)
  local group = arguments[3]
  for id in string.gmatch(arguments[4], ENTRY) do
    local message, attempt = taken_back(group, id)
    if message then
      put_dead(group, message, attempt, arguments[5])
    end
  end
end

-- arguments: group, subscriber.
local function leave(arguments)
  local group = arguments[3]
  if not is_there(group) then
    return
  end
  repeat
    local is_all = release(group, arguments[4], function(message, attempt)
      put(group, message, attempt)
    end)
  until is_all
end
