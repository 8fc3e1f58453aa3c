-- Loading a crawl that another store has dumped. Batches may be repeated: loaded requests are known by their seq in a
-- bitmap, items by their position, history by its digest.

local function fill_seen(crawl, fingerprints)
  for _, fingerprint in ipairs(fingerprints) do
    remember(crawl, fingerprint)
  end
end

-- lanes: name, wait, delay, cap, total, held, reason, pinned, own delay and cap of each
local function fill_lanes(crawl, lanes)
  for _, moved in ipairs(lanes) do
    local lane = lane_of(crawl, moved[1])
    lane[DUE], lane[DELAY], lane[CAP], lane[TOTAL] = crawl.now + moved[2], moved[3], moved[4], moved[5]
    lane[HELD] = moved[6] > 0 and crawl.now + moved[6] or 0
    lane[REASON], lane[PINNED] = moved[7], moved[8] and 1 or 0
    lane[OWN_DELAY], lane[OWN_CAP] = moved[9], moved[10]
  end
end

-- Appends an entry to the queue of a lane; false if its place is not behind all others.
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

-- batch: whether the order is last in first out; and of each request lane, rank, attempt, losses, entry, reason, wait
-- (false if pending)
local function fill_requests(crawl, batch)
  set_order(crawl, batch[1])
  for _, moved in ipairs(batch[2]) do
    local name, rank, attempt, losses, entry = moved[1], moved[2], moved[3], moved[4], moved[5]
    if call('SETBIT', crawl.prefix .. 'filled', seq_of(entry), 1) == 1 then
      -- already loaded
    elseif moved[7] then
      local kept = { name, rank, attempt, losses, entry, moved[6] }
      count(crawl, 'delayed', call('ZADD', crawl.prefix .. 'delayed', crawl.now + moved[7], pack(kept)))
    elseif rank ~= 0 or attempt ~= 0 or losses ~= 0 or not append(crawl, name, entry) then
      put_back(crawl, name, rank, attempt, losses, entry)
    end
  end
  -- RPUSH in any case: the entries come in the order of the lane.
  for name, entries in pairs(crawl.fresh) do
    call_many('RPUSH', crawl.queue .. name, entries)
  end
  crawl.fresh = {}
end

-- letters: lane, rank, attempt, entry, ago, kind, reason, detail, status, and message of its group, of each
local function fill_dead(crawl, letters)
  for _, moved in ipairs(letters) do
    local seq, message = format('%.0f', seq_of(moved[4])), moved[10]
    moved[5], moved[10] = crawl.now - moved[5], nil
    if call('HSETNX', crawl.prefix .. 'dead', seq, pack(moved)) == 1 then
      join_group(crawl, seq, moved[5], moved[6], message)
      count(crawl, 'dead', 1)
    end
  end
end

-- items: position, fingerprint, number, json of each
local function fill_items(crawl, items)
  for _, moved in ipairs(items) do
    if moved[1] > crawl.tally[TALLY.position] then
      crawl.tally[TALLY.position] = moved[1]
      call('XADD', crawl.prefix .. 'outbox', format('%.0f-0', moved[1]), 'f', moved[2], 'n', moved[3], 'j', moved[4])
    end
  end
end

-- batch: digest, seconds ago, and the pages of one settle batch as ``write_history`` takes them
local function fill_history(crawl, batch)
  if call('SADD', crawl.prefix .. 'filled:history', batch[1]) == 1 then
    write_history(crawl, batch[3], crawl.now - batch[2])
  end
end

-- sums: values of the tally by name
local function fill_rest(crawl, sums)
  for name, sum in pairs(sums) do
    crawl.tally[TALLY[name]] = sum
  end
  -- All moved items are cut together, once enough items have come after them.
  if call('XLEN', crawl.prefix .. 'outbox') > 0 then
    set_mark(crawl)
  end
end

local FILLINGS = {
  seen = fill_seen, lanes = fill_lanes, requests = fill_requests, dead = fill_dead, items = fill_items,
  history = fill_history, rest = fill_rest,
}

-- asked: kind of batch, and the batch
local function fill(crawl, asked)
  FILLINGS[asked[1]](crawl, asked[2])
end
