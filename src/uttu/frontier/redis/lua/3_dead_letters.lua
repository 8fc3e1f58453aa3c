-- Dead letters and their groups.
--
-- A group holds the letters of one kind with one message. The client makes the message from the reason of a letter and
-- sends it along. A new message joins OTHER_MESSAGES of its kind if there are too many groups.
--
--   dead:groups  "kind\nmessage" → the id of the group, and LAST → the last id
--   dead:ID      the members of the group by time of death: the seq of each letter, with a letter for its length in
--                front, so that text sorts as numbers do
--
-- Counts, the time and the URL of the latest letter are read from these, so they cannot differ.

local LANE, RANK, ATTEMPT, LOSSES, ENTRY, WORKER, START = 1, 2, 3, 4, 5, 6, 7 -- fields of a lease
local LOST_MESSAGE, OTHER_MESSAGES, LAST = 'its worker was lost N times while it had this page', 'other messages', 'last'
local MOST_BYTES, MOST_READ = 4000000, 64 -- size of the letters in one reply; members of a group read at once

local function member_of(seq)
  return string.char(96 + #seq) .. seq
end

local function group_key(crawl, id)
  return crawl.prefix .. 'dead:' .. id
end

-- Puts a letter into its group, which is made if it is new.
local function join_group(crawl, seq, at, kind, message)
  local groups = crawl.prefix .. 'dead:groups'
  local id = call('HGET', groups, kind .. '\n' .. message)
  if not id and call('HLEN', groups) > crawl.rules.max_groups then -- LAST is counted too
    message = OTHER_MESSAGES
    id = call('HGET', groups, kind .. '\n' .. message)
  end
  if not id then
    id = call('HINCRBY', groups, LAST, 1)
    call('HSET', groups, kind .. '\n' .. message, id)
  end
  call('ZADD', group_key(crawl, id), at, member_of(seq))
end

local function bury(crawl, lease, kind, reason, detail, status, message)
  local seq = format('%.0f', seq_of(lease[ENTRY]))
  call('HSET', crawl.prefix .. 'dead', seq, pack({
    lease[LANE], lease[RANK], lease[ATTEMPT], lease[ENTRY], crawl.now, kind, reason, detail, status,
  }))
  join_group(crawl, seq, crawl.now, kind, message)
  count(crawl, 'dead', 1)
end

-- Returns dead letters to their lanes with attempts reset. asked: id and name of their group, and their seqs. A letter
-- that is in this group no more is left alone.
local function revive(crawl, asked)
  local id, name, revived = asked[1], asked[2], 0
  local key = group_key(crawl, id)
  for _, seq in ipairs(asked[3]) do
    if call('ZREM', key, member_of(seq)) == 1 then
      local kept = call('HGET', crawl.prefix .. 'dead', seq)
      if kept then
        local dead = unpacked(kept)
        put_back(crawl, dead[1], dead[2], 0, 0, dead[4])
        call('HDEL', crawl.prefix .. 'dead', seq)
        count(crawl, 'dead', -1)
        revived = revived + 1
      end
      if call('EXISTS', key) == 0 then
        call('HDEL', crawl.prefix .. 'dead:groups', name)
      end
    end
  end
  return revived
end

-- Of each group: number of letters; time of death, lane and entry of the latest one.
local function describe_groups(crawl, ids)
  local reply = {}
  for index, id in ipairs(ids) do
    local latest = call('ZREVRANGE', group_key(crawl, id), 0, 0, 'WITHSCORES')
    local kept = latest[1] and call('HGET', crawl.prefix .. 'dead', string.sub(latest[1], 2))
    local letter = kept and unpacked(kept)
    reply[index] = letter and { call('ZCARD', group_key(crawl, id)), tonumber(latest[2]), letter[1], letter[4] } or false
  end
  return reply
end

-- The URL of a letter, as it is in the JSON of its record.
local function url_of(lane, entry)
  local scheme, rest = string.match(entry, '^%d+ ([sp])(.*)$')
  if scheme then
    rest = (scheme == 's' and 'https://' or 'http://') .. lane .. rest
  else
    rest = string.match(entry, '^%d+ {"u":"(.*)$') or ''
  end
  return string.match(rest, '^[^"]*')
end

local function matches(letter, match)
  return string.find(string.lower(letter[7]), match, 1, true)
    or string.find(string.lower(url_of(letter[1], letter[4])), match, 1, true)
end

-- Moves a reader of a group to its next letter; ``member`` is nil at the end. ``after``: the letters of a group that
-- died at the time of the cursor, and are before it, are skipped.
local function step(reader, after)
  repeat
    reader.index = reader.index + 2
    if reader.index > #reader.found then
      local rank = call('ZREVRANK', reader.key, reader.member) + 1
      reader.ahead = math.min(2 * reader.ahead, MOST_READ)
      reader.found = call('ZREVRANGE', reader.key, rank, rank + reader.ahead - 1, 'WITHSCORES')
      reader.index = 1
    end
    reader.member, reader.time = reader.found[reader.index], reader.found[reader.index + 1]
    reader.score = tonumber(reader.time)
  until not reader.member or not after or reader.score < after.score or reader.member < after.member
end

local function is_later(one, other)
  return one.score > other.score or (one.score == other.score and one.member > other.member)
end

-- Restores a heap, the reader of the latest letter first, after the reader at ``index`` has moved on.
local function sift(heap, index)
  local size = #heap
  while true do
    local first, left = index, 2 * index
    if left <= size and is_later(heap[left], heap[first]) then
      first = left
    end
    if left < size and is_later(heap[left + 1], heap[first]) then
      first = left + 1
    end
    if first == index then
      return
    end
    heap[index], heap[first] = heap[first], heap[index]
    index = first
  end
end

-- Returns a reader for each group, as a heap. Most groups give few letters of a page, so few are read ahead.
local function open_readers(crawl, ids, after, most)
  local heap, ahead = {}, math.min(MOST_READ, math.ceil(most / #ids) + 1)
  for _, id in ipairs(ids) do
    local key, latest = group_key(crawl, id), after and after.time or '+inf'
    local reader = { key = key, index = -1, ahead = ahead }
    reader.found = call('ZREVRANGEBYSCORE', key, latest, '-inf', 'WITHSCORES', 'LIMIT', 0, ahead)
    if reader.found[1] then
      step(reader, after)
    end
    if reader.member then
      heap[#heap + 1] = reader
    end
  end
  for index = math.floor(#heap / 2), 1, -1 do
    sift(heap, index)
  end
  return heap
end

-- Lists the members of some groups, the latest first. asked: ids of the groups; time and member of the letter to begin
-- after, or false; the number of members. Returns whether there are more, and time and member of each, as one flat list.
local function list_members(crawl, asked)
  local ids, time, most = asked[1], asked[2], asked[4]
  local after = time and { time = time, score = tonumber(time), member = asked[3] }
  local heap, reply = open_readers(crawl, ids, after, most), {}
  while heap[1] and #reply < 2 * most do
    local reader = heap[1]
    reply[#reply + 1], reply[#reply + 2] = reader.time, reader.member
    step(reader)
    if not reader.member then
      heap[1] = heap[#heap]
      heap[#heap] = nil
    end
    if heap[1] then
      sift(heap, 1)
    end
  end
  return { heap[1] ~= nil, reply }
end

-- asked: seqs of letters; text to search for in lower case, or ''. Returns the letters, in this order; false for one
-- that is gone or does not match. The last ones are left out if the reply would get too large.
local function read_letters(crawl, asked)
  local reply, bytes, match = {}, 0, asked[2]
  for index, seq in ipairs(asked[1]) do
    local kept = call('HGET', crawl.prefix .. 'dead', seq)
    local letter = kept and unpacked(kept)
    if letter and (match == '' or matches(letter, match)) then
      reply[index] = letter
      bytes = bytes + #kept
      if bytes > MOST_BYTES then
        break
      end
    else
      reply[index] = false
    end
  end
  return reply
end

-- Looks at some letters. asked: the cursor, '0' to begin; how many; text that a letter has as it is stored, such as its
-- lane. Returns the next cursor, and the letters with the text.
local function find_letters(crawl, asked)
  local answer, reply = call('HSCAN', crawl.prefix .. 'dead', asked[1], 'COUNT', asked[2]), {}
  local found = answer[2]
  for index = 2, #found, 2 do
    if string.find(found[index], asked[3], 1, true) then
      reply[#reply + 1] = unpacked(found[index])
    end
  end
  return { answer[1], reply }
end

-- The number of letters without a group: they are from a version that had no groups.
local function count_ungrouped(crawl)
  local groups, grouped = call('HGETALL', crawl.prefix .. 'dead:groups'), 0
  for index = 1, #groups, 2 do
    if groups[index] ~= LAST then
      grouped = grouped + call('ZCARD', group_key(crawl, groups[index + 1]))
    end
  end
  return call('HLEN', crawl.prefix .. 'dead') - grouped
end

local function is_grouped(crawl, seq, kind, message)
  for _, each in ipairs({ message, OTHER_MESSAGES }) do
    local id = call('HGET', crawl.prefix .. 'dead:groups', kind .. '\n' .. each)
    if id and call('ZSCORE', group_key(crawl, id), member_of(seq)) then
      return true
    end
  end
  return false
end

-- Groups letters of a version that had no groups. letters: seq, time of death and message of each. A letter that has
-- died again in the meantime has a group.
local function group_dead(crawl, letters)
  for _, each in ipairs(letters) do
    local kept = call('HGET', crawl.prefix .. 'dead', each[1])
    local letter = kept and unpacked(kept)
    if letter and letter[5] == each[2] and not is_grouped(crawl, each[1], letter[6], each[3]) then
      join_group(crawl, each[1], letter[5], letter[6], each[3])
    end
  end
end
