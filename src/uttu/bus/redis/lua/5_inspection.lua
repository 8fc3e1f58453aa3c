-- Inspect and purge groups, and republish their dead letters.

-- The value of a name in a list of names and values in turn.
local function find_value(list, name)
  for index = 1, #list, 2 do
    if list[index] == name then
      return list[index + 1]
    end
  end
end

-- The id of the last delivered entry. Entries after it wait; entries up to it that still exist are pending.
local function last_delivered(group)
  return find_value(redis.call('XINFO', 'GROUPS', ready_of(group))[1], 'last-delivered-id')
end

-- arguments: names of groups; without any, all groups. Returns for each group that exists: name, definition, and the
-- numbers of ready, unacknowledged, delayed and dead messages and of subscribers.
local function groups(arguments)
  local names, states = { unpack(arguments, 3) }, {}
  if #names == 0 then
    names = redis.call('HKEYS', prefix .. 'groups')
  end
  for _, name in ipairs(names) do
    local definition = redis.call('HGET', prefix .. 'groups', name)
    if definition then
      local held = redis.call('XPENDING', ready_of(name), GROUP)[1]
      states[#states + 1] = {
        name, definition, redis.call('XLEN', ready_of(name)) - held, held, redis.call('ZCARD', delayed_of(name)),
        redis.call('XLEN', dead_of(name)), redis.call('ZCARD', beats_of(name)),
      }
    end
  end
  return states
end

-- Read the next entries without consuming them. arguments: group, limit, '1' for the dead letters. Returns entries of
-- the stream, or nil if the group does not exist.
local function peek(arguments)
  local group, limit = arguments[3], arguments[4]
  if not group_exists(group) then
    return false
  end
  if arguments[5] == '1' then
    return redis.call('XRANGE', dead_of(group), '-', '+', 'COUNT', limit)
  end
  return redis.call('XRANGE', ready_of(group), '(' .. last_delivered(group), '+', 'COUNT', limit)
end

-- Delete messages. arguments: group, and what to delete: waiting, dead or all (with the group). Returns the number of
-- deleted messages, and 1 if there are more, so that the caller calls again; nil if the group does not exist.
local function purge(arguments)
  local group, what, ready = arguments[3], arguments[4], ready_of(arguments[3])
  if not group_exists(group) then
    return false
  end
  local count = 0
  if what ~= 'waiting' then
    count = redis.call('XLEN', dead_of(group))
    redis.call('UNLINK', dead_of(group))
  end
  if what == 'all' then
    count = count + redis.call('XLEN', ready) + redis.call('ZCARD', delayed_of(group))
    redis.call('UNLINK', ready, delayed_of(group), beats_of(group))
    redis.call('HDEL', prefix .. 'groups', group)
  elseif what == 'waiting' then
    count = redis.call('ZCARD', delayed_of(group))
    redis.call('UNLINK', delayed_of(group))
    local waiting = redis.call('XRANGE', ready, '(' .. last_delivered(group), '+', 'COUNT', MAX_BATCH)
    for _, entry in ipairs(waiting) do
      count = count + redis.call('XDEL', ready, entry[1])
    end
    return { count, #waiting == MAX_BATCH and 1 or 0 }
  end
  return { count, 0 }
end

-- Return dead letters to the end of their group, as messages that were never tried. arguments: group, limit. Returns how
-- many; nil if the group does not exist.
local function republish(arguments)
  local group = arguments[3]
  if not group_exists(group) then
    return false
  end
  local letters = redis.call('XRANGE', dead_of(group), '-', '+', 'COUNT', math.min(tonumber(arguments[4]), MAX_BATCH))
  for _, entry in ipairs(letters) do
    put(group, find_value(entry[2], 'm'), 1)
    redis.call('XDEL', dead_of(group), entry[1])
  end
  return #letters
end

-- The number of messages and the bytes of each key of a group: ready, delayed, dead. arguments: group.
local function sizes(arguments)
  local group, found = arguments[3], {}
  for _, each in ipairs({ { 'XLEN', ready_of(group) }, { 'ZCARD', delayed_of(group) }, { 'XLEN', dead_of(group) } }) do
    found[#found + 1] = { redis.call(each[1], each[2]), redis.call('MEMORY', 'USAGE', each[2]) or 0 }
  end
  return found
end
