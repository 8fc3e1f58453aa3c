-- Admission: requests that were not seen before enter their lanes.
--
-- Seen fingerprints are decimal numbers in sets that are small enough for Redis to keep as sorted arrays of integers: 8
-- bytes each, while a large set takes 70. When the sets get too full, the next one in turn is split in two (linear
-- hashing), so no single step is large. A fingerprint is too long for a Lua number; its last nine digits choose the
-- set.

-- Fields of a pinned lane only: the pace that it returns to.
local OWN_DELAY, OWN_CAP = 11, 12

local FULL = 200 -- a set that is not split yet has up to twice that; Redis keeps up to 512 as an array

local function level_of(buckets)
  local level = 1
  while level * 2 <= buckets do
    level = level * 2
  end
  return level
end

local function bucket_of(fingerprint, buckets, level)
  local number = tonumber(string.sub(fingerprint, -9))
  local bucket = number % (2 * level)
  return bucket < buckets and bucket or bucket - level
end

local function split(crawl)
  local buckets = crawl.tally[TALLY.buckets]
  local level = level_of(buckets)
  local from, to = crawl.sets .. buckets - level, crawl.sets .. buckets
  local moving = {}
  for _, fingerprint in ipairs(call('SMEMBERS', from)) do
    if bucket_of(fingerprint, buckets + 1, level_of(buckets + 1)) == buckets then
      moving[#moving + 1] = fingerprint
    end
  end
  call_many('SREM', from, moving)
  call_many('SADD', to, moving)
  crawl.tally[TALLY.buckets] = buckets + 1
end

-- Returns whether the fingerprint was new. Splits a set if they got too full.
local function remember(crawl, fingerprint)
  local buckets = crawl.tally[TALLY.buckets]
  if buckets ~= crawl.known_buckets then
    crawl.known_buckets, crawl.level = buckets, level_of(buckets)
  end
  if call('SADD', crawl.sets .. bucket_of(fingerprint, buckets, crawl.level), fingerprint) == 0 then
    return false
  end
  if count(crawl, 'seen', 1) > buckets * FULL then
    split(crawl)
  end
  return true
end

-- The position of a request in its lane among those of the same rank. Sorted as text.
local function place(crawl, seq)
  return format('%016.0f', crawl.tally[TALLY.lifo] == 1 and 1e15 - seq or seq)
end

-- An entry is the seq of a request and its record: "17 s/articles/…".
local function seq_of(entry)
  return tonumber(string.match(entry, '^%d+'))
end

-- Puts a request that was leased before, or has a priority, at its place in the lane.
local function put_back(crawl, name, rank, attempt, losses, entry)
  local lane = lane_of(crawl, name)
  local member = place(crawl, seq_of(entry)) .. ' ' .. attempt .. ' ' .. losses .. ' ' .. entry
  call('ZADD', crawl.back .. name, rank, member)
  lane[BACK] = lane[BACK] + 1
  lane[PENDING] = lane[PENDING] + 1
  count(crawl, 'pending', 1)
end

-- A lane that was pinned before its first request now records its own pace.
local function learn_pace(crawl, lane)
  if lane[PINNED] == 1 and not lane[OWN_DELAY] then
    lane[OWN_DELAY], lane[OWN_CAP] = crawl.rules.delay, crawl.rules.cap
  end
end

local function admit(crawl, fingerprint, name, rank, record)
  local most = crawl.rules.max_per_lane
  if most > 0 and lane_of(crawl, name)[TOTAL] >= most or not remember(crawl, fingerprint) then
    return 0
  end
  local lane = lane_of(crawl, name)
  lane[TOTAL] = lane[TOTAL] + 1
  learn_pace(crawl, lane)
  local entry = count(crawl, 'seq', 1) .. ' ' .. record
  if rank ~= 0 then
    put_back(crawl, name, rank, 0, 0, entry)
    return 1
  end
  local fresh = crawl.fresh[name]
  if not fresh then
    fresh = {}
    crawl.fresh[name] = fresh
  end
  fresh[#fresh + 1] = entry
  lane[PENDING] = lane[PENDING] + 1
  count(crawl, 'pending', 1)
  return 1
end

-- requests: fingerprint, lane, rank and record of each, as one flat list, which saves many small tables
local function put(crawl, requests)
  local admitted = 0
  set_order(crawl, crawl.rules.lifo)
  for index = 1, #requests, 4 do
    admitted = admitted
      + admit(crawl, requests[index], requests[index + 1], requests[index + 2], requests[index + 3])
  end
  return admitted
end
