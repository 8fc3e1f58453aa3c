-- Groups: the names of their keys, and which messages they receive. uttu/bus/redis/__init__.py describes all keys.
--
-- The files of this folder are concatenated in the order of their names; 6_operate.lua has the entry point.

-- The prefix of all keys of the bus; set by operate() at each call.
local prefix

local GROUP = 'g' -- the name of the only consumer group (XGROUP) of each group's stream

local function ready_of(group)
  return prefix .. 'ready:' .. group
end

local function delayed_of(group)
  return prefix .. 'delayed:' .. group
end

local function dead_of(group)
  return prefix .. 'dead:' .. group
end

local function beats_of(group)
  return prefix .. 'beats:' .. group
end

-- Milliseconds by the server's clock; the clocks of clients differ.
local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function group_exists(group)
  return redis.call('HEXISTS', prefix .. 'groups', group) == 1
end

-- Indexes into an unpacked definition: topics; names and values of headers in turn; whether one matching header is
-- enough.
local TOPICS, HEADERS, ANY = 1, 2, 3

local function split_words(text)
  local words = {}
  for word in string.gmatch(text, '[^.]+') do
    words[#words + 1] = word
  end
  return words
end

-- Whether a pattern matches a topic, both as lists of words. On a mismatch, backtrack to the last "#" only and let it
-- match one more word: a later "#" can match every word that an earlier one could.
local function matches_pattern(pattern, topic)
  local p, t, any, from = 1, 1, nil, nil
  while t <= #topic do
    if pattern[p] == '#' then
      any, from = p, t
      p = p + 1
    elseif pattern[p] == '*' or pattern[p] == topic[t] then
      p, t = p + 1, t + 1
    elseif any then
      from = from + 1
      p, t = any + 1, from
    else
      return false
    end
  end
  while pattern[p] == '#' do
    p = p + 1
  end
  return p > #pattern
end

local function matches_topic(definition, topic)
  local words
  for _, pattern in ipairs(definition[TOPICS]) do
    if pattern == topic then
      return true
    end
    if string.find(pattern, '[*#]') then
      words = words or split_words(topic)
      if matches_pattern(split_words(pattern), words) then
        return true
      end
    end
  end
  return false
end

local function has_filter(definition)
  return definition[ANY] or #definition[HEADERS] > 0
end

local function matches_headers(definition, headers)
  local wanted, any = definition[HEADERS], definition[ANY]
  for index = 1, #wanted, 2 do
    local is_equal = headers[wanted[index]] == wanted[index + 1]
    if is_equal and any then
      return true
    elseif not is_equal and not any then
      return false
    end
  end
  return not any
end
