-- Filling a crawl with what another store poured. What was taken in before is known: requests by their seq, in a
-- bitmap; items by their position; the history by its digest.

local function fill_seen(crawl, fingerprints)
  for _, fingerprint in ipairs(fingerprints) do
    remember(crawl, fingerprint)
  end
end

-- name, wait, delay, cap, total, held, reason, pinned, own delay and cap
local function fill_lanes(crawl, lanes)
  for _, moved in ipairs(lanes) do
    local lane = lane_of(crawl, moved[1])
    lane[DUE], lane[DELAY], lane[CAP], lane[TOTAL] = crawl.now + moved[2], moved[3], moved[4], moved[5]
    lane[HELD] = moved[6] > 0 and crawl.now + moved[6] or 0
    lane[REASON], lane[PINNED] = moved[7], moved[8] and 1 or 0
    lane[OWN_DELAY], lane[OWN_CAP] = moved[9], moved[10]
  end
end

-- Behind all that are in the lane's queue, if that is its place.
local function append(crawl, name, entry)
  local fresh = crawl.fresh[name]
  local last = fresh and fresh[#fresh] or call('LINDEX', crawl.queue .. name, -1)
  if last and place(crawl, seq_of(last)) >= place(crawl, seq_of(entry)) then
    return false
  end
  fresh = fresh or {}
  crawl.fresh[name] = fresh
  fresh[#fresh + 1] = entry
  local lane = lane_of(crawl, name)
  lane[PENDING] = lane[PENDING] + 1
  count(crawl, 'pending', 1)
  return true
end

-- whether the last in is the first out, and requests: lane, rank, attempt, losses, entry, reason, wait (false if
-- pending)
local function fill_requests(crawl, batch)
  set_order(crawl, batch[1])
  for _, moved in ipairs(batch[2]) do
    local name, rank, attempt, losses, entry = moved[1], moved[2], moved[3], moved[4], moved[5]
    if call('SETBIT', crawl.prefix .. 'filled', seq_of(entry), 1) == 1 then
      -- it is here
    elseif moved[7] then
      local kept = { name, rank, attempt, losses, entry, moved[6] }
      count(crawl, 'delayed', call('ZADD', crawl.prefix .. 'delayed', crawl.now + moved[7], pack(kept)))
    elseif rank ~= 0 or attempt ~= 0 or losses ~= 0 or not append(crawl, name, entry) then
      put_back(crawl, name, rank, attempt, losses, entry)
    end
  end
  -- Appended in the order of the lane, whatever the crawl's own.
  for name, entries in pairs(crawl.fresh) do
    call_many('RPUSH', crawl.queue .. name, entries)
  end
  crawl.fresh = {}
end

-- lane, rank, attempt, entry, ago, kind, reason, detail, status
local function fill_dead(crawl, letters)
  for _, moved in ipairs(letters) do
    moved[5] = crawl.now - moved[5]
    count(crawl, 'dead', call('HSET', crawl.prefix .. 'dead', seq_of(moved[4]), pack(moved)))
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

-- the digest, how long ago, and the pages of one moment as ``write_history`` takes them
local function fill_history(crawl, batch)
  if call('SADD', crawl.prefix .. 'filled:history', batch[1]) == 1 then
    write_history(crawl, batch[3], crawl.now - batch[2])
  end
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
