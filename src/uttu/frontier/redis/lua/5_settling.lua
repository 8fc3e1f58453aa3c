-- Settling: children, items and the end of the lease, in one step.
--
-- An outcome is a list: lease, kind, seconds since the host was touched, delay, cap, and then
--   done   fingerprint, children, items, status, size, note
--   retry  after, counted, reason
--   dead   fingerprint, children, items, status, kind, reason, detail, message of its group
-- Seconds, delay and cap are false if the outcome has none.

local HISTORY = 5000 -- number of settle batches in the history

local TRIM_STEP = 100 -- items between two marks

-- Marks a position where the outbox may be cut: the latest position, with the number of items so far.
local function set_mark(crawl)
  local total, position = crawl.tally[TALLY.items], crawl.tally[TALLY.position]
  call('ZADD', crawl.prefix .. 'marks', format('%.0f', total), format('%.0f', position))
end

-- ``died`` is the lease id of a page that died. The page may be revived and die again, so it makes the item ids unique.
local function store_items(crawl, fingerprint, items, died)
  for index, item in ipairs(items) do
    local number = died and format('-%s%03d', died, index - 1) or index - 1
    call('XADD', crawl.prefix .. 'outbox', next_number(crawl, 'position') .. '-0', 'f', fingerprint, 'n', number, 'j', item)
  end
  local before = crawl.tally[TALLY.items]
  local total = count(crawl, 'items', #items)
  if math.floor(total / TRIM_STEP) > math.floor(before / TRIM_STEP) then
    set_mark(crawl)
  end
end

local function finish(crawl, outcome, lease)
  put(crawl, outcome[7])
  store_items(crawl, outcome[6], outcome[8])
  count(crawl, 'done', 1)
  count(crawl, 'bytes', outcome[10])
  local history, last = crawl.history, #crawl.history
  history[last + 1], history[last + 2], history[last + 3] = outcome[6], outcome[9], outcome[10]
  history[last + 4], history[last + 5], history[last + 6] = #outcome[7] / 4, #outcome[8], outcome[11]
end

local function give_back(crawl, outcome, lease)
  local after, attempt = outcome[6], lease[ATTEMPT] - 1 + (outcome[7] and 1 or 0)
  if after <= 0 then
    put_back(crawl, lease[LANE], lease[RANK], attempt, lease[LOSSES], lease[ENTRY])
    return
  end
  local kept = { lease[LANE], lease[RANK], attempt, lease[LOSSES], lease[ENTRY], outcome[8] }
  call('ZADD', crawl.prefix .. 'delayed', crawl.now + after, pack(kept))
  count(crawl, 'delayed', 1)
end

local function give_up(crawl, outcome, lease)
  put(crawl, outcome[7])
  store_items(crawl, outcome[6], outcome[8], outcome[1])
  bury(crawl, lease, outcome[10], outcome[11], outcome[12], outcome[9], outcome[13])
end

-- Cuts the items of an outcome to what ``max_items`` allows; false if no item fits.
local function fit(crawl, outcome)
  local most = crawl.rules.max_items
  local items = outcome[2] ~= 'retry' and outcome[8]
  if most == 0 or not items or #items == 0 then
    return true
  end
  local room = most - crawl.tally[TALLY.items]
  for index = #items, math.max(room, 0) + 1, -1 do
    items[index] = nil
  end
  return room > 0
end

local ENDINGS = { done = finish, retry = give_back, dead = give_up }

-- Updates the lanes: frees places, counts the delay from the last touch, and sets a new pace if an outcome brings one.
local function release(crawl, released)
  for name, change in pairs(released) do
    local lane = lane_of(crawl, name)
    lane[ACTIVE] = lane[ACTIVE] - change.freed
    local paced = change.delay and lane[PINNED] == 0
    local one_at_a_time = lane[CAP] == 1
    if paced then
      lane[DELAY], lane[CAP] = change.delay, change.cap
    elseif change.delay then
      lane[OWN_DELAY], lane[OWN_CAP] = change.delay, change.cap
    end
    -- Without a touch no turn was used. With a limit above 1, the turn was counted at its start.
    if change.touched and (one_at_a_time or paced) then
      lane[DUE] = math.max(lane[DUE], change.touched + lane[DELAY])
    end
  end
end

-- pages: fingerprint, status, size, links, items and note of each, as one flat list
local function write_history(crawl, pages, at)
  if #pages > 0 then
    call('XADD', crawl.prefix .. 'history', 'MAXLEN', '~', HISTORY, '*', 'at', format('%.6f', at), 'pages', pack(pages))
  end
end

-- The leases of these outcomes, in order; false for a lease that has ended.
local function leases_of(crawl, outcomes)
  local found = {}
  for first = 1, #outcomes, MOST_ARGUMENTS do
    local ids = {}
    for index = first, math.min(first + MOST_ARGUMENTS - 1, #outcomes) do
      ids[#ids + 1] = outcomes[index][1]
    end
    for _, lease in ipairs(call('HMGET', crawl.leases, unpack(ids))) do
      found[#found + 1] = lease
    end
  end
  return found
end

local function settle(crawl, outcomes)
  local lost, ended, ids, released = {}, {}, {}, {}
  local leases = leases_of(crawl, outcomes)
  crawl.history = {}
  for index, outcome in ipairs(outcomes) do
    local id = outcome[1]
    local kept = not ended[id] and leases[index]
    if kept then
      local lease = unpacked(kept)
      ended[id] = true
      ids[#ids + 1] = id
      if fit(crawl, outcome) then
        ENDINGS[outcome[2]](crawl, outcome, lease)
      else
        put_back(crawl, lease[LANE], lease[RANK], lease[ATTEMPT] - 1, lease[LOSSES], lease[ENTRY])
        lost[#lost + 1] = id
      end
      local change = released[lease[LANE]] or { freed = 0 }
      released[lease[LANE]] = change
      change.freed = change.freed + 1
      if outcome[3] then
        change.touched = math.max(change.touched or 0, crawl.now - outcome[3])
      end
      if outcome[4] then
        change.delay, change.cap = outcome[4], outcome[5]
      end
    elseif not ended[id] then
      lost[#lost + 1] = id
    end
  end
  call_many('HDEL', crawl.leases, ids)
  call_many('ZREM', crawl.deadlines, ids)
  count(crawl, 'leased', -#ids)
  write_history(crawl, crawl.history, crawl.now)
  release(crawl, released)
  return lost
end
