-- Leasing requests, and ending expired leases.

local AT_ONCE = 1000

-- Returns leases past their deadline to their lanes; after ``max_losses`` losses the request is dead.
local function end_lost(crawl)
  repeat
    local ids = call('ZRANGEBYSCORE', crawl.deadlines, '-inf', crawl.now, 'LIMIT', 0, AT_ONCE)
    for _, id in ipairs(ids) do
      local lease = unpacked(call('HGET', crawl.leases, id))
      local lane = lane_of(crawl, lease[LANE])
      local losses = lease[LOSSES] + 1
      if losses < crawl.rules.max_losses then
        put_back(crawl, lease[LANE], lease[RANK], lease[ATTEMPT], losses, lease[ENTRY])
      else
        local reason = format('its worker was lost %d times while it had this page', losses)
        bury(crawl, lease, 'lost', reason, '', 0, LOST_MESSAGE)
      end
      lane[ACTIVE] = lane[ACTIVE] - 1
      -- The lost worker may have contacted the host at any time up to now.
      lane[DUE] = math.max(lane[DUE], crawl.now + lane[DELAY])
      count(crawl, 'leased', -1)
    end
    call_many('HDEL', crawl.leases, ids)
    call_many('ZREM', crawl.deadlines, ids)
  until #ids < AT_ONCE
end

-- Returns retries that are due to their lanes.
local function wake_delayed(crawl)
  local key = crawl.prefix .. 'delayed'
  repeat
    local woken = call('ZRANGEBYSCORE', key, '-inf', crawl.now, 'LIMIT', 0, AT_ONCE)
    for _, kept in ipairs(woken) do
      local request = unpacked(kept)
      put_back(crawl, request[LANE], request[RANK], request[ATTEMPT], request[LOSSES], request[ENTRY])
    end
    call_many('ZREM', key, woken)
    count(crawl, 'delayed', -#woken)
  until #woken < AT_ONCE
end

-- Takes the first request of a lane: rank, attempt, losses, entry.
local function take_first(crawl, name, lane)
  local queue = crawl.queue .. name
  if lane[BACK] > 0 then
    local back = call('ZRANGE', crawl.back .. name, 0, 0, 'WITHSCORES')
    local fresh = call('LINDEX', queue, 0)
    local rank = tonumber(back[2])
    local order, attempt, losses, entry = string.match(back[1], '^(%d+) (%d+) (%d+) (.*)$')
    if not fresh or rank < 0 or (rank == 0 and order < place(crawl, seq_of(fresh))) then
      call('ZREM', crawl.back .. name, back[1])
      lane[BACK] = lane[BACK] - 1
      return rank, tonumber(attempt), tonumber(losses), entry
    end
  end
  return 0, 0, 0, call('LPOP', queue)
end

-- Appends one lease to the reply: id, lane, attempt, wait, entry.
local function tell(crawl, told, id, lease)
  local last = #told
  told[last + 1], told[last + 2], told[last + 3] = id, lease[LANE], lease[ATTEMPT]
  told[last + 4], told[last + 5] = math.max(0, lease[START] - crawl.now), lease[ENTRY]
end

local function take(crawl, name, room, worker, batch)
  local lane = lane_of(crawl, name)
  local start = math.max(lane[DUE], crawl.now)
  for _ = 1, room do
    local rank, attempt, losses, entry = take_first(crawl, name, lane)
    local id, given = next_number(crawl, 'lease'), { name, rank, attempt + 1, losses, entry, worker, start }
    local last = #batch.leases
    batch.ids[#batch.ids + 1] = id
    batch.leases[last + 1], batch.leases[last + 2] = id, pack(given)
    batch.deadlines[last + 1], batch.deadlines[last + 2] = batch.deadline, id
    tell(crawl, batch.told, id, given)
  end
  lane[PENDING] = lane[PENDING] - room
  lane[ACTIVE] = lane[ACTIVE] + room
  -- With a limit of 1, the delay is added when the outcome brings the time of the last touch.
  lane[DUE] = start + (lane[CAP] ~= 1 and lane[DELAY] or 0)
end

local function room_of(lane)
  if lane[DELAY] > 0 then
    return 1
  elseif lane[CAP] == 0 then
    return lane[PENDING]
  end
  return math.min(lane[PENDING], lane[CAP] - lane[ACTIVE])
end

-- Each due lane gives one request. Lanes without a delay share the rest, those with few requests first.
local function choose(crawl, limit, worker, batch)
  local due = call('ZRANGEBYSCORE', crawl.ready, '-inf', crawl.now + crawl.rules.ahead, 'LIMIT', 0, limit)
  local several = {}
  for _, name in ipairs(due) do
    local room = room_of(lane_of(crawl, name))
    if room == 1 or #due == limit then
      take(crawl, name, 1, worker, batch)
    else
      several[#several + 1] = { room, name }
    end
  end
  table.sort(several, function(one, other)
    return one[1] < other[1] or (one[1] == other[1] and one[2] < other[2])
  end)
  local left = limit - #batch.ids
  for index, entry in ipairs(several) do
    local share = math.min(entry[1], math.ceil(left / (#several - index + 1)))
    take(crawl, entry[2], share, worker, batch)
    left = left - share
  end
end

-- The reply to an earlier call with the same id, whose answer was lost; its leases get a new deadline.
local function told_before(crawl, worker, question, deadline)
  local kept = call('HGET', crawl.prefix .. 'asked', worker)
  local before = kept and unpacked(kept)
  if not before or before[1] ~= question then
    return nil
  end
  local told = { deadline }
  for _, id in ipairs(before[2]) do
    local lease = call('HGET', crawl.leases, id)
    if lease then
      tell(crawl, told, id, unpacked(lease))
      call('ZADD', crawl.deadlines, deadline, id)
    end
  end
  return told
end

-- Returns the deadline, and then id, lane, attempt, wait and entry of each lease, as one flat list.
local function lease(crawl, asked)
  local limit, worker, question = asked[1], asked[2], asked[3]
  local deadline = crawl.now + crawl.rules.lease_seconds
  local told = told_before(crawl, worker, question, deadline)
  if told then
    return told
  end
  end_lost(crawl)
  wake_delayed(crawl)
  save(crawl)
  if crawl.rules.max_pages > 0 then
    local tally = crawl.tally
    limit = math.min(limit, crawl.rules.max_pages - tally[TALLY.done] - tally[TALLY.dead] - tally[TALLY.leased])
  end
  if crawl.rules.max_items > 0 and crawl.tally[TALLY.items] >= crawl.rules.max_items then
    limit = 0
  end
  local batch = { ids = {}, leases = {}, deadlines = {}, deadline = format('%.6f', deadline), told = { deadline } }
  if limit > 0 then
    choose(crawl, limit, worker, batch)
  end
  call_many('HSET', crawl.leases, batch.leases)
  call_many('ZADD', crawl.deadlines, batch.deadlines)
  count(crawl, 'pending', -#batch.ids)
  count(crawl, 'leased', #batch.ids)
  if #batch.ids > 0 then
    call('HSET', crawl.prefix .. 'asked', worker, pack({ question, batch.ids }))
  end
  return batch.told
end

local function extend(crawl, ids)
  local lost, deadline = {}, crawl.now + crawl.rules.lease_seconds
  for _, id in ipairs(ids) do
    if call('ZSCORE', crawl.deadlines, id) then
      call('ZADD', crawl.deadlines, deadline, id)
    else
      lost[#lost + 1] = id
    end
  end
  return lost
end
