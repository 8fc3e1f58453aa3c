-- The one entry to the library.

local OPERATIONS = {
  put = put, lease = lease, extend = extend, settle = settle, hold = hold, pin = pin, repace = repace,
  revive = revive, claim = claim, release = give_up_claim, advance = advance, report = report, note = note,
  remember = remember_fact, feed = feed, fill = fill, now = function() end,
}

-- arguments: prefix of the keys, operation, time or "", rules, what is asked, and from BLOBS on what is no text.
-- Answers with the time and the result.
local function operate(arguments)
  call, pack, unpacked, format = redis.call, cmsgpack.pack, cmsgpack.unpack, string.format
  local crawl = open(arguments[1], arguments[3], unpacked(arguments[4]))
  if not crawl then
    return redis.error_reply('WEFTGONE')
  end
  local result = OPERATIONS[arguments[2]](crawl, unpacked(arguments[5]), arguments)
  if arguments[2] ~= 'now' then
    save(crawl)
  end
  if result == nil then
    result = false
  end
  return pack({ crawl.now, result })
end
