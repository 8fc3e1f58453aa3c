-- One crawl, as an operation sees it. The tally and the lanes that an operation touches are read into tables, changed
-- there, and written back by ``save`` if they differ. Callers check the arguments: an error in the middle of an
-- operation would leave half of it done.

local TALLY = {
  pending = 1, leased = 2, delayed = 3, done = 4, dead = 5, items = 6, bytes = 7,
  seq = 8, lease = 9, position = 10, seen = 11, buckets = 12, lifo = 13, trimmed = 14, cut = 15,
}
local DUE, DELAY, CAP, PENDING, ACTIVE, TOTAL, HELD, REASON, PINNED, BACK = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10

-- Set by each operation: redis.call does not exist while the library is loaded.
local call, pack, unpacked, format

local function open(prefix, now, rules)
  local tally = call('GET', prefix .. 'tally')
  if not tally then
    return nil
  end
  local crawl = {
    prefix = prefix, rules = rules, before = tally, tally = unpacked(tally), lanes = {}, was = {}, fresh = {},
    kept = prefix .. 'lanes', ready = prefix .. 'ready', queue = prefix .. 'queue:', back = prefix .. 'back:',
    leases = prefix .. 'leases', deadlines = prefix .. 'deadlines', sets = prefix .. 'seen:',
  }
  -- A crawl made by an older version lacks these fields.
  crawl.tally[TALLY.trimmed] = crawl.tally[TALLY.trimmed] or 0
  crawl.tally[TALLY.cut] = crawl.tally[TALLY.cut] or 0
  if now == '' then
    local time = call('TIME')
    crawl.now = tonumber(time[1]) + tonumber(time[2]) / 1000000
  else
    crawl.now = tonumber(now)
  end
  return crawl
end

-- The order is stored with the crawl, because commands that only inspect it do not know it.
local function set_order(crawl, lifo)
  if crawl.tally[TALLY.lifo] < 0 then
    crawl.tally[TALLY.lifo] = lifo and 1 or 0
  end
end

local function count(crawl, name, by)
  local index = TALLY[name]
  crawl.tally[index] = crawl.tally[index] + by
  return crawl.tally[index]
end

-- Returns a number above all earlier ones, and above those that a server may have assigned and lost (by a power cut, or
-- a failover to a replica that was behind): at least the time in microseconds. It is text, because such long numbers
-- are slow to format and are used several times.
local function next_number(crawl, name)
  local index = TALLY[name]
  crawl.tally[index] = math.max(crawl.tally[index] + 1, math.floor(crawl.now * 1000000))
  return format('%.0f', crawl.tally[index])
end

-- The due time of a lane that can give a request; false for other lanes. Exactly the former are in ``ready``.
local function ready_at(lane)
  return lane[PENDING] > 0 and (lane[CAP] == 0 or lane[ACTIVE] < lane[CAP]) and lane[DUE]
end

local function lane_of(crawl, name)
  local lane = crawl.lanes[name]
  if not lane then
    local kept = call('HGET', crawl.kept, name)
    if kept then
      lane = unpacked(kept)
      crawl.was[name] = ready_at(lane)
    else
      lane = { crawl.now, crawl.rules.delay, crawl.rules.cap, 0, 0, 0, 0, '', 0, 0 }
      crawl.was[name] = false
    end
    crawl.lanes[name] = lane
  end
  return lane
end

-- Calls a command with many arguments, in chunks that Lua can unpack. The chunk size is even, so pairs stay together.
local MOST_ARGUMENTS = 1000

local function call_many(command, key, arguments)
  for first = 1, #arguments, MOST_ARGUMENTS do
    call(command, key, unpack(arguments, first, math.min(first + MOST_ARGUMENTS - 1, #arguments)))
  end
end

local function save(crawl)
  for name, entries in pairs(crawl.fresh) do
    call_many(crawl.tally[TALLY.lifo] == 1 and 'LPUSH' or 'RPUSH', crawl.queue .. name, entries)
  end
  local kept, due, idle = {}, {}, {}
  for name, lane in pairs(crawl.lanes) do
    kept[#kept + 1] = name
    kept[#kept + 1] = pack(lane)
    local at = ready_at(lane)
    if at and at ~= crawl.was[name] then
      due[#due + 1] = at
      due[#due + 1] = name
    elseif not at and crawl.was[name] then
      idle[#idle + 1] = name
    end
  end
  call_many('HSET', crawl.kept, kept)
  call_many('ZADD', crawl.ready, due)
  call_many('ZREM', crawl.ready, idle)
  crawl.lanes, crawl.was, crawl.fresh = {}, {}, {}
  local tally = pack(crawl.tally)
  if tally ~= crawl.before then
    call('SET', crawl.prefix .. 'tally', tally)
    crawl.before = tally
  end
end
