-- The entry point of the library. "ping" lets a client check that it may run operations.

local OPERATIONS = {
  publish = publish, join = join, tick = tick, listen = listen, acknowledge = acknowledge,
  retry = retry, dead_letter = dead_letter, leave = leave, groups = groups, peek = peek, purge = purge,
  republish = republish, sizes = sizes, ping = function() end,
}

-- arguments: prefix of the keys, name of the operation, arguments of the operation.
local function operate(arguments)
  prefix = arguments[1]
  return OPERATIONS[arguments[2]](arguments)
end
