-- The single entry point of the library.

local OPERATIONS = {
  put = put, lease = lease, extend = extend, settle = settle, hold = hold, pin = pin, repace = repace,
  revive = revive, claim = claim, release = give_up_claim, advance = advance, trim = trim, report = report, note = note,
  remember = remember_fact, feed = feed, fill = fill, list_members = list_members, read_letters = read_letters,
  find_letters = find_letters,
  describe_groups = describe_groups, count_ungrouped = count_ungrouped, group_dead = group_dead, record = record,
  add_events = add_events, now = function() end,
}

-- arguments: key prefix, operation, time or "", rules, what is asked, and from index BLOBS on binary values. Returns
-- the time and the result.
local function operate(arguments)
  call, pack, unpacked, format = redis.call, cmsgpack.pack, cmsgpack.unpack, string.format
  local crawl = open(arguments[1], arguments[3], unpacked(arguments[4]))
  if not crawl then
    return redis.error_reply('UTTUGONE')
  end
  local result = OPERATIONS[arguments[2]](crawl, unpacked(arguments[5]), arguments)
  if arguments[2] ~= 'now' and arguments[2] ~= 'find_letters' then
    save(crawl)
  end
  if result == nil then
    result = false
  end
  return pack({ crawl.now, result })
end
