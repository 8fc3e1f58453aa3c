-- Filling a crawl with what another store poured. What was taken in before is known: requests by their seq, in a
-- bitmap; items by their position; the history by its digest.

local function fill_seen(crawl, fingerprints)
  for _, fingerprint in ipairs(fingerprints) do
    remember(crawl, fingerprint)
  end
end

-- name, wait, delay, cap, total, held, reason, pinned
local function fill_lanes(crawl, lanes)
  for _, moved in ipairs(lanes) do
    local lane = lane_of(crawl, moved[1])
    lane[DUE], lane[DELAY], lane[CAP], lane[TOTAL] = crawl.now + moved[2], moved[3], moved[4], moved[5]
    lane[HELD] = moved[6] > 0 and crawl.now + moved[6] or 0
    lane[REASON], lane[PINNED] = moved[7], moved[8] and 1 or 0
  end
end

-- Behind all that are in the lane's queue, if that is its place.
local function append(crawl, name, seq, record)
  local fresh, queue = crawl.fresh[name], crawl.queue .. name
  local last = fresh and fresh[#fresh] or call('LINDEX', queue, -1)
  if last and place(crawl, parsed(last)) >= place(crawl, seq) then
    return false
  end
  fresh = fresh or {}
  crawl.fresh[name] = fresh
  fresh[#fresh + 1] = seq .. ' ' .. record
  local lane = lane_of(crawl, name)
  lane[PENDING] = lane[PENDING] + 1
  count(crawl, 'pending', 1)
  return true
end

-- whether the last in is the first out, and requests: lane, rank, seq, attempt, losses, record, reason, wait (false
-- if pending)
local function fill_requests(crawl, batch)
  set_order(crawl, batch[1])
  for _, moved in ipairs(batch[2]) do
    local name, rank, seq, attempt, losses, record = moved[1], moved[2], moved[3], moved[4], moved[5], moved[6]
    if call('SETBIT', crawl.prefix .. 'filled', seq, 1) == 1 then
      -- it is here
    elseif moved[8] then
      local kept = { name, rank, seq, attempt, losses, record, moved[7] }
      count(crawl, 'delayed', call('ZADD', crawl.prefix .. 'delayed', crawl.now + moved[8], pack(kept)))
    elseif rank ~= 0 or attempt ~= 0 or losses ~= 0 or not append(crawl, name, seq, record) then
      put_back(crawl, name, rank, seq, attempt, losses, record)
    end
  end
  -- Appended in the order of the lane, whatever the crawl's own.
  for name, entries in pairs(crawl.fresh) do
    call_many('RPUSH', crawl.queue .. name, entries)
  end
  crawl.fresh = {}
end

-- seq, lane, rank, attempt, record, ago, kind, reason, detail, status
local function fill_dead(crawl, letters)
  for _, moved in ipairs(letters) do
    local kept = { moved[2], moved[3], moved[4], moved[5], crawl.now - moved[6], moved[7], moved[8], moved[9], moved[10] }
    count(crawl, 'dead', call('HSET', crawl.prefix .. 'dead', moved[1], pack(kept)))
  end
end

-- position, fingerprint, number, json
local function fill_items(crawl, items)
  for _, moved in ipairs(items) do
    if moved[1] > crawl.tally[TALLY.position] then
      crawl.tally[TALLY.position] = moved[1]
      call('XADD', crawl.prefix .. 'outbox', format('%.0f-0', moved[1]), 'f', moved[2], 'n', moved[3], 'j', moved[4])
    end
  end
end

-- the digest, and pages: fingerprint, ago, status, size, links, items, note
local function fill_history(crawl, batch)
  if call('SADD', crawl.prefix .. 'filled:history', batch[1]) == 0 then
    return
  end
  for _, moved in ipairs(batch[2]) do
    moved[2] = crawl.now - moved[2]
  end
  write_history(crawl, batch[2])
end

-- the sums by name
local function fill_rest(crawl, sums)
  for name, sum in pairs(sums) do
    crawl.tally[TALLY[name]] = sum
  end
end

local FILLINGS = {
  seen = fill_seen, lanes = fill_lanes, requests = fill_requests, dead = fill_dead, items = fill_items,
  history = fill_history, rest = fill_rest,
}

-- what, and the batch
local function fill(crawl, asked)
  FILLINGS[asked[1]](crawl, asked[2])
end
