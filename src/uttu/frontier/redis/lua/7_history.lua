-- The history of a crawl: samples of its numbers, and events.
--
-- Samples are in one sorted set for each resolution, by time. A set has the first sample of each slot, for as long as
-- its resolution is kept, so a sample may be in several sets. Nothing has to be thinned out later; only the oldest are
-- dropped. The latest sample of all is always in the finest set.

local RECENT = 100 -- events that are searched for those of a repeated call

-- Adds a sample to a set, unless its slot has an earlier one.
local function add_sample(key, distance, at, sample)
  local start = math.floor(at / distance) * distance
  local from, till = format('%.0f', start), format('(%.0f', start + distance)
  local first = call('ZRANGEBYSCORE', key, from, till, 'LIMIT', 0, 1, 'WITHSCORES')[2]
  if not first or tonumber(first) > at then
    call('ZREMRANGEBYSCORE', key, from, till)
    call('ZADD', key, at, sample)
  end
end

-- Drops what is older than ``age`` seconds, but keeps the latest ``spared`` samples.
local function drop_old(crawl, key, age, spared)
  local old = call('ZCOUNT', key, '-inf', format('(%.6f', crawl.now - age))
  old = math.min(old, call('ZCARD', key) - spared)
  if old > 0 then
    call('ZREMRANGEBYRANK', key, 0, old - 1)
  end
end

-- asked: time of the sample, and distance and age of each resolution, the finest first; blob: the sample
local function record(crawl, asked, blobs)
  local at, resolutions = asked[1], asked[2]
  local finest, distance = crawl.prefix .. 'samples:' .. resolutions[1][1], resolutions[1][1]
  local start = math.floor(at / distance) * distance
  if call('ZCOUNT', finest, format('%.0f', start), format('(%.0f', start + distance)) > 0 then
    return
  end
  local latest = call('ZREVRANGE', finest, 0, 0, 'WITHSCORES')[2]
  for index, resolution in ipairs(resolutions) do
    local key, is_latest = crawl.prefix .. 'samples:' .. resolution[1], not latest or tonumber(latest) < at
    if crawl.now - at <= resolution[2] or (index == 1 and is_latest) then
      add_sample(key, resolution[1], at, blobs[BLOBS])
    end
    drop_old(crawl, key, resolution[2], index == 1 and 1 or 0)
  end
end

-- asked: the id of the call, how many events to keep, and kind and fields of each event, as one flat list
local function add_events(crawl, asked)
  local key, question, most, events = crawl.prefix .. 'events', asked[1], asked[2], asked[3]
  local latest = call('XREVRANGE', key, '+', '-', 'COUNT', RECENT)
  for _, entry in ipairs(latest) do
    if entry[2][2] == question then
      return -- the reply to the first try was lost
    end
  end
  local position = latest[1] and tonumber(string.match(latest[1][1], '^%d+')) or 0
  for index = 1, #events, 2 do
    position = math.max(position + 1, math.floor(crawl.now * 1000000))
    call('XADD', key, 'MAXLEN', most, format('%.0f-0', position), 'q', question, 'k', events[index], 'f', events[index + 1])
  end
end
