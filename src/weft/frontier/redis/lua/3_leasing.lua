-- Handing requests out, and ending the leases of those who never came back.

local LANE, RANK, SEQ, ATTEMPT, LOSSES, RECORD, WORKER, START = 1, 2, 3, 4, 5, 6, 7, 8
local AT_ONCE = 1000

local function bury(crawl, lease, kind, reason, detail, status)
  call('HSET', crawl.prefix .. 'dead', lease[SEQ], pack({
    lease[LANE], lease[RANK], lease[ATTEMPT], lease[RECORD], crawl.now, kind, reason, detail, status,
  }))
  count(crawl, 'dead', 1)
end

-- Leases past their deadline go back to their lanes.
local function end_lost(crawl)
  repeat
    local ids = call('ZRANGEBYSCORE', crawl.deadlines, '-inf', crawl.now, 'LIMIT', 0, AT_ONCE)
    for _, id in ipairs(ids) do
      local lease = unpacked(call('HGET', crawl.leases, id))
      local lane = lane_of(crawl, lease[LANE])
      local losses = lease[LOSSES] + 1
      if losses < crawl.rules.max_losses then
        put_back(crawl, lease[LANE], lease[RANK], lease[SEQ], lease[ATTEMPT], losses, lease[RECORD])
      else
        local reason = format('its worker was lost %d times while it had this page', losses)
        bury(crawl, lease, 'lost', reason, '', 0)
      end
      lane[ACTIVE] = lane[ACTIVE] - 1
      -- The lost worker may have asked the host at any time up to now.
      lane[DUE] = math.max(lane[DUE], crawl.now + lane[DELAY])
      count(crawl, 'leased', -1)
    end
    call_many('HDEL', crawl.leases, ids)
    call_many('ZREM', crawl.deadlines, ids)
  until #ids < AT_ONCE
end

-- Retries whose time has come go back to their lanes.
local function wake_delayed(crawl)
  local key = crawl.prefix .. 'delayed'
  repeat
    local woken = call('ZRANGEBYSCORE', key, '-inf', crawl.now, 'LIMIT', 0, AT_ONCE)
    for _, kept in ipairs(woken) do
      local request = unpacked(kept)
      put_back(crawl, request[LANE], request[RANK], request[SEQ], request[ATTEMPT], request[LOSSES], request[RECORD])
    end
    call_many('ZREM', key, woken)
    count(crawl, 'delayed', -#woken)
  until #woken < AT_ONCE
end

local function parsed(entry)
  local space = string.find(entry, ' ', 1, true)
  return tonumber(string.sub(entry, 1, space - 1)), string.sub(entry, space + 1)
end

-- The first request of a lane: rank, seq, attempt, losses, record.
local function take_first(crawl, name, lane)
  local queue = crawl.queue .. name
  if lane[BACK] > 0 then
    local back = call('ZRANGE', crawl.back .. name, 0, 0, 'WITHSCORES')
    local fresh = call('LINDEX', queue, 0)
    local rank = tonumber(back[2])
    local order, attempt, losses, record = string.match(back[1], '^(%d+) (%d+) (%d+) (.*)$')
    if not fresh or rank < 0 or (rank == 0 and order < place(crawl, parsed(fresh))) then
      call('ZREM', crawl.back .. name, back[1])
      lane[BACK] = lane[BACK] - 1
      local seq = tonumber(order)
      return rank, crawl.tally[TALLY.lifo] == 1 and 1e15 - seq or seq, tonumber(attempt), tonumber(losses), record
    end
  end
  local seq, record = parsed(call('LPOP', queue))
  return 0, seq, 0, 0, record
end

local function take(crawl, name, room, worker, taken)
  local lane = lane_of(crawl, name)
  local start = math.max(lane[DUE], crawl.now)
  for _ = 1, room do
    local rank, seq, attempt, losses, record = take_first(crawl, name, lane)
    taken[#taken + 1] = {
      next_number(crawl, 'lease'), { name, rank, seq, attempt + 1, losses, record, worker, start },
    }
  end
  lane[PENDING] = lane[PENDING] - room
  lane[ACTIVE] = lane[ACTIVE] + room
  -- Where one is out at a time, the delay is added when it comes back and the last touch is known.
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

-- Each due lane gives one; the lanes without a delay share what is left, those with little first.
local function choose(crawl, limit, worker)
  local due = call('ZRANGEBYSCORE', crawl.ready, '-inf', crawl.now + crawl.rules.ahead, 'LIMIT', 0, limit)
  local taken, several = {}, {}
  for _, name in ipairs(due) do
    local room = room_of(lane_of(crawl, name))
    if room == 1 then
      take(crawl, name, 1, worker, taken)
    else
      several[#several + 1] = { room, name }
    end
  end
  table.sort(several, function(one, other)
    return one[1] < other[1] or (one[1] == other[1] and one[2] < other[2])
  end)
  local left = limit - #taken
  for index, entry in ipairs(several) do
    local share = math.min(entry[1], math.ceil(left / (#several - index + 1)))
    take(crawl, entry[2], share, worker, taken)
    left = left - share
  end
  return taken
end

local function answer(crawl, id, lease)
  local wait = math.max(0, lease[START] - crawl.now)
  return { id, lease[LANE], lease[ATTEMPT], wait, crawl.now + crawl.rules.lease_seconds, lease[RECORD] }
end

-- What a worker was given when it asked this very question before, and the answer got lost.
local function given_before(crawl, worker, question)
  local kept = call('HGET', crawl.prefix .. 'asked', worker)
  local before = kept and unpacked(kept)
  if not before or before[1] ~= question then
    return nil
  end
  local answers = {}
  for _, id in ipairs(before[2]) do
    local lease = call('HGET', crawl.leases, id)
    if lease then
      answers[#answers + 1] = answer(crawl, id, unpacked(lease))
      call('ZADD', crawl.deadlines, crawl.now + crawl.rules.lease_seconds, id)
    end
  end
  return answers
end

local function lease(crawl, asked)
  local limit, worker, question = asked[1], asked[2], asked[3]
  local answers = given_before(crawl, worker, question)
  if answers then
    return answers
  end
  answers = {}
  end_lost(crawl)
  wake_delayed(crawl)
  save(crawl)
  if crawl.rules.max_pages > 0 then
    local tally = crawl.tally
    limit = math.min(limit, crawl.rules.max_pages - tally[TALLY.done] - tally[TALLY.dead] - tally[TALLY.leased])
  end
  if limit <= 0 then
    return answers
  end
  local ids, leases, deadlines, deadline = {}, {}, {}, crawl.now + crawl.rules.lease_seconds
  for index, entry in ipairs(choose(crawl, limit, worker)) do
    local id, given = entry[1], entry[2]
    ids[index] = id
    answers[index] = answer(crawl, id, given)
    leases[2 * index - 1], leases[2 * index] = id, pack(given)
    deadlines[2 * index - 1], deadlines[2 * index] = deadline, id
  end
  call_many('HSET', crawl.leases, leases)
  call_many('ZADD', crawl.deadlines, deadlines)
  count(crawl, 'pending', -#ids)
  count(crawl, 'leased', #ids)
  if #ids > 0 then
    call('HSET', crawl.prefix .. 'asked', worker, pack({ question, ids }))
  end
  return answers
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
