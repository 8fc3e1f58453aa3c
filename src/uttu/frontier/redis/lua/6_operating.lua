-- Operations for people, sinks and other programs: holds, pace, claims, cursors, trimming, seeds.

local BLOBS = 6 -- index of the first binary argument
local NEAR_FRONT, KEPT_REFUSED = 1000, 1000

local function hold(crawl, asked)
  local lane, till = lane_of(crawl, asked[1]), crawl.now + asked[2]
  learn_pace(crawl, lane)
  if lane[HELD] < till then
    lane[DUE], lane[HELD], lane[REASON] = math.max(lane[DUE], till), till, asked[3]
  end
end

-- A wait that has begun keeps its start and gets the new delay.
local function set_pace(lane, delay, cap)
  lane[DUE] = math.max(lane[HELD], lane[DUE] + delay - lane[DELAY])
  lane[DELAY], lane[CAP] = delay, cap
end

local function unpin(crawl, name)
  local lane = lane_of(crawl, name)
  if lane[PINNED] == 0 then
    return
  end
  local delay, cap = lane[OWN_DELAY], lane[OWN_CAP]
  if not delay then
    -- No request ever entered the lane: remove it.
    crawl.lanes[name], crawl.was[name] = nil, nil
    call('HDEL', crawl.kept, name)
    return
  end
  if cap ~= 1 and lane[ACTIVE] > 0 then
    -- With a limit above 1, the delay counts from the start of the previous request; one in flight may start now.
    lane[DUE] = math.max(lane[DUE], crawl.now) + lane[DELAY]
  end
  set_pace(lane, delay, cap)
  lane[PINNED], lane[OWN_DELAY], lane[OWN_CAP] = 0, nil, nil
end

local function pin(crawl, asked)
  local name, delay = asked[1], asked[2]
  local known = call('HEXISTS', crawl.kept, name) == 1
  if not delay then
    return known and unpin(crawl, name)
  end
  local lane = lane_of(crawl, name)
  if not known then
    lane[DELAY], lane[CAP] = delay, 1
  elseif lane[PINNED] == 0 then
    lane[OWN_DELAY], lane[OWN_CAP] = lane[DELAY], lane[CAP]
  end
  lane[PINNED] = 1
  set_pace(lane, delay, 1)
end

-- asked: names, old delay and cap, new delay and cap
local function repace(crawl, asked)
  local changed = 0
  for _, name in ipairs(asked[1]) do
    local lane = lane_of(crawl, name)
    if lane[PINNED] == 1 then
      if lane[OWN_DELAY] == asked[2] and lane[OWN_CAP] == asked[3] then
        lane[OWN_DELAY], lane[OWN_CAP] = asked[4], asked[5]
      end
    elseif lane[DELAY] == asked[2] and lane[CAP] == asked[3] then
      lane[DELAY], lane[CAP] = asked[4], asked[5]
      changed = changed + 1
    end
  end
  return changed
end

local function claim(crawl, asked)
  local role, owner, seconds = asked[1], asked[2], asked[3]
  local kept = call('HGET', crawl.prefix .. 'claims', role)
  local holder = kept and unpacked(kept)
  if holder and holder[1] ~= owner and holder[2] > crawl.now then
    return false
  end
  call('HSET', crawl.prefix .. 'claims', role, pack({ owner, crawl.now + seconds }))
  return true
end

local function owns(crawl, role, owner)
  local kept = call('HGET', crawl.prefix .. 'claims', role)
  local holder = kept and unpacked(kept)
  return holder and holder[1] == owner and holder[2] > crawl.now
end

local function give_up_claim(crawl, asked)
  local kept = call('HGET', crawl.prefix .. 'claims', asked[1])
  if kept and unpacked(kept)[1] == asked[2] then
    call('HDEL', crawl.prefix .. 'claims', asked[1])
  end
end

-- asked: sink, position, owner; blob: the state of the sink
local function advance(crawl, asked, blobs)
  if not owns(crawl, 'drain ' .. asked[1], asked[3]) then
    return false
  end
  call('HSET', crawl.prefix .. 'cursors', asked[1], format('%d ', asked[2]) .. blobs[BLOBS])
  return true
end

-- The position of a sink's cursor. 0 if its state is empty: then it has no items.
local function reached_by(crawl, sink)
  local kept = call('HGET', crawl.prefix .. 'cursors', sink)
  local position, state = string.match(kept or '', '^(%d+) (.*)$')
  return state and #state > 0 and tonumber(position) or 0
end

-- The sinks whose cursors limit trimming. Empty while a claim ``whole …`` is in force: its owner needs all items.
local function counting_sinks(crawl, named)
  local sinks, claims = {}, call('HGETALL', crawl.prefix .. 'claims')
  for _, name in ipairs(named) do
    sinks[#sinks + 1] = name
  end
  for index = 1, #claims, 2 do
    if unpacked(claims[index + 1])[2] > crawl.now then
      local kind, name = string.match(claims[index], '^(%S+) (.*)$')
      if kind == 'whole' then
        return {}
      elseif kind == 'drain' then
        sinks[#sinks + 1] = name
      end
    end
  end
  return sinks
end

local STEP_MARKS = 100 -- marks that one step removes

-- asked: sinks, number of items to keep. Returns whether another call may have more to do right away.
local function trim(crawl, asked)
  local point = nil
  for _, sink in ipairs(counting_sinks(crawl, asked[1])) do
    point = math.min(point or math.huge, reached_by(crawl, sink))
  end
  if not point or point == 0 then
    return false
  end
  local marks, edge, passed = crawl.prefix .. 'marks', nil, 0
  local most = format('%.0f', crawl.tally[TALLY.items] - asked[2])
  for _, position in ipairs(call('ZRANGEBYSCORE', marks, '-inf', most, 'LIMIT', 0, STEP_MARKS)) do
    if tonumber(position) <= point then
      edge, passed = tonumber(position), passed + 1
      call('ZREM', marks, position)
    end
  end
  if not edge then
    return false
  end
  crawl.tally[TALLY.cut] = edge
  count(crawl, 'trimmed', call('XTRIM', crawl.prefix .. 'outbox', 'MINID', '=', format('%.0f-0', edge + 1)))
  return passed == STEP_MARKS
end

local function report(crawl, asked, blobs)
  call('HSET', crawl.prefix .. 'workers', asked[1], format('%.6f ', crawl.now) .. blobs[BLOBS])
end

local function note(crawl, facts)
  for name, value in pairs(facts) do
    call('HSET', crawl.prefix .. 'facts', name, value)
  end
end

-- asked: key, seconds; blob: the value
local function remember_fact(crawl, asked, blobs)
  call('HSET', crawl.prefix .. 'memo', asked[1], format('%.6f ', crawl.now + asked[2]) .. blobs[BLOBS])
end

-- asked: key of the list, key for refused entries, requests, number of entries they came from; blobs: these entries,
-- then the refused ones
local function feed(crawl, asked, blobs)
  local list, refused, requests, accepted = asked[1], asked[2], asked[3], asked[4]
  for index = BLOBS, #blobs do
    local entry = blobs[index]
    -- Entries come from the front of the list, so only the first NEAR_FRONT are searched for one that another worker
    -- took.
    if call('LPOS', list, entry, 'MAXLEN', NEAR_FRONT) then
      call('LREM', list, 1, entry)
      if index >= BLOBS + accepted then
        call('RPUSH', refused, entry)
        call('LTRIM', refused, -KEPT_REFUSED, -1)
      end
    end
  end
  return put(crawl, requests)
end
