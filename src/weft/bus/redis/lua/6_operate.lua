-- The one entry to the library.

local OPERATIONS = {
  publish = publish, join = join, tick = tick, listen = listen, done = done, again = again, bury = bury,
  leave = leave, groups = groups, peek = peek, purge = purge, nothing = function() end,
}

-- arguments: prefix of the keys, operation, and what is asked.
local function operate(arguments)
  prefix = arguments[1]
  return OPERATIONS[arguments[2]](arguments)
end
