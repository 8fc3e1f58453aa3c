-- The tree of a coordinator. See coordinator.py for the keys. A transaction is checked as a whole on a copy of the
-- nodes that it touches, and then written, because what a script has written can't be taken back.

local VALUE, VERSION, CREATED, CHANGED, OWNER, AT, WRITTEN, SEQUENCE = 1, 2, 3, 4, 5, 6, 7, 8

-- Set by each operation: redis.call does not exist while the library is loaded.
local call, pack, unpacked

local function open(prefix)
  call, pack, unpacked = redis.call, cmsgpack.pack, cmsgpack.unpack
  local time = call('TIME')
  return {
    prefix = prefix, nodes = prefix .. 'nodes', tree = prefix .. 'tree', sessions = prefix .. 'sessions',
    now = tonumber(time[1]) + tonumber(time[2]) / 1000000,
    copies = {}, touched = {}, added = {}, paths = {},
  }
end

local function split(path)
  local parent, name = string.match(path, '^(.*)/([^/]*)$')
  return parent == '' and '/' or parent, name
end

-- A number above all earlier ones, and above those that a server may have given and lost: at least the time in
-- microseconds.
local function next_number(tree)
  tree.last = math.max((tree.last or tonumber(call('GET', tree.prefix .. 'counter') or 0)) + 1,
    math.floor(tree.now * 1000000))
  return tree.last
end

-- The node at a path as this operation sees it; false if it does not exist.
local function find(tree, path)
  local copy = tree.copies[path]
  if copy == nil then
    local kept = call('HGET', tree.nodes, path)
    copy = kept and unpacked(kept) or false
    if path == '/' and not copy then
      copy = { '', 0, 0, 0, '', 0, 0, 0 }
    end
    tree.copies[path] = copy
  end
  return copy
end

local function put(tree, path, node)
  tree.copies[path] = node
  if not tree.touched[path] then
    tree.touched[path] = true
    tree.paths[#tree.paths + 1] = path
  end
end

local function count_children(tree, path)
  local kept = call('ZLEXCOUNT', tree.tree, '[' .. path .. '\0', '(' .. path .. '\1')
  return kept + (tree.added[path] or 0)
end

local function insert(tree, path, value, owner)
  local number = next_number(tree)
  local node = { value, 0, number, number, owner, tree.now, tree.now, 0 }
  put(tree, path, node)
  local parent = split(path)
  tree.added[parent] = (tree.added[parent] or 0) + 1
  return node
end

local function remove(tree, path)
  put(tree, path, false)
  local parent = split(path)
  tree.added[parent] = (tree.added[parent] or 0) - 1
end

-- Write what the operation changed, and tell the watches.
local function save(tree)
  if #tree.paths == 0 then
    return
  end
  for _, path in ipairs(tree.paths) do
    local node = tree.copies[path]
    local parent, name = split(path)
    local kept = call('HGET', tree.nodes, path)
    if kept then
      local owner = unpacked(kept)[OWNER]
      if owner ~= '' then
        call('SREM', tree.prefix .. 'owned:' .. owner, path)
      end
    end
    if node then
      call('HSET', tree.nodes, path, pack(node))
      if path ~= '/' then
        call('ZADD', tree.tree, 0, parent .. '\0' .. name)
      end
      if node[OWNER] ~= '' then
        call('SADD', tree.prefix .. 'owned:' .. node[OWNER], path)
      end
    else
      call('HDEL', tree.nodes, path)
      call('ZREM', tree.tree, parent .. '\0' .. name)
    end
  end
  if tree.last then
    call('SET', tree.prefix .. 'counter', string.format('%.0f', tree.last))
  end
  call('PUBLISH', tree.prefix .. 'changes', pack(tree.paths))
end

local function end_session(tree, session)
  for _, path in ipairs(call('SMEMBERS', tree.prefix .. 'owned:' .. session)) do
    if find(tree, path) then
      remove(tree, path)
      next_number(tree)
    end
  end
  call('ZREM', tree.sessions, session)
end

local function expire(tree)
  local over = call('ZRANGEBYSCORE', tree.sessions, '-inf', string.format('(%.6f', tree.now), 'LIMIT', 0, 100)
  for _, session in ipairs(over) do
    end_session(tree, session)
  end
end

local function shown(path, node)
  return {
    path, node[VALUE], tostring(node[VERSION]), string.format('%.0f', node[CREATED]),
    string.format('%.0f', node[CHANGED]), node[OWNER], string.format('%.6f', node[AT]),
    string.format('%.6f', node[WRITTEN]),
  }
end

local function names(tree, path)
  local found = {}
  for _, member in ipairs(call('ZRANGEBYLEX', tree.tree, '[' .. path .. '\0', '(' .. path .. '\1')) do
    found[#found + 1] = string.match(member, '%z(.*)$')
  end
  return found
end

local function join(path, name)
  return path == '/' and '/' .. name or path .. '/' .. name
end

-- Each returns the node, or nil and the name of the error with the path that it is about. Values are given by their
-- place in the arguments: MessagePack in Redis knows no bytes.
local apply = {}

function apply.create(tree, session, path, value, ephemeral, sequential)
  local parent = split(path)
  local missing = {}
  while not find(tree, parent) do
    table.insert(missing, 1, parent)
    parent = split(parent)
  end
  if find(tree, parent)[OWNER] ~= '' then
    return nil, { 'ephemeral', parent }
  end
  for _, each in ipairs(missing) do
    insert(tree, each, '', '')
  end
  if sequential then
    parent = split(path)
    local node = find(tree, parent)
    path = path .. string.format('%010d', node[SEQUENCE])
    local after = {}
    for index, field in ipairs(node) do
      after[index] = field
    end
    after[SEQUENCE] = node[SEQUENCE] + 1
    put(tree, parent, after)
  end
  if find(tree, path) then
    return nil, { 'exists', path }
  end
  return shown(path, insert(tree, path, tree.values[value], ephemeral and session or ''))
end

local function expect(tree, path, version)
  local node = find(tree, path)
  if not node then
    return nil, { 'none', path }
  end
  if version >= 0 and node[VERSION] ~= version then
    return nil, { 'version', path }
  end
  return node
end

function apply.write(tree, session, path, value, version)
  local node, wrong = expect(tree, path, version)
  if not node then
    return nil, wrong
  end
  local after = {
    tree.values[value], node[VERSION] + 1, node[CREATED], next_number(tree), node[OWNER], node[AT], tree.now, node[SEQUENCE],
  }
  put(tree, path, after)
  return shown(path, after)
end

function apply.delete(tree, session, path, version)
  local node, wrong = expect(tree, path, version)
  if not node then
    return nil, wrong
  end
  if path == '/' or count_children(tree, path) > 0 then
    return nil, { 'children', path }
  end
  next_number(tree)
  remove(tree, path)
  return false
end

function apply.check(tree, session, path, version)
  local node, wrong = expect(tree, path, version)
  if not node then
    return nil, wrong
  end
  return shown(path, node)
end

local operations = {}

function operations.begin(tree, session, seconds)
  expire(tree)
  call('ZADD', tree.sessions, string.format('%.6f', tree.now + seconds), session)
  save(tree)
  return 1
end

function operations.renew(tree, session, seconds)
  expire(tree)
  local known = call('ZSCORE', tree.sessions, session)
  if known then
    call('ZADD', tree.sessions, string.format('%.6f', tree.now + seconds), session)
  end
  save(tree)
  return known and 1 or 0
end

operations['end'] = function(tree, session)
  end_session(tree, session)
  expire(tree)
  save(tree)
  return 1
end

function operations.read(tree, path)
  expire(tree)
  save(tree)
  local node = find(tree, path)
  return node and { shown(path, node) } or {}
end

function operations.children(tree, path)
  expire(tree)
  save(tree)
  local found = {}
  for _, name in ipairs(names(tree, path)) do
    local child = join(path, name)
    local node = find(tree, child)
    if node then
      found[#found + 1] = shown(child, node)
    end
  end
  return found
end

function operations.part(tree, path)
  expire(tree)
  save(tree)
  local found, waiting = {}, { path }
  while #waiting > 0 do
    local each = table.remove(waiting)
    local node = find(tree, each)
    if node then
      found[#found + 1] = shown(each, node)
    end
    for _, name in ipairs(names(tree, each)) do
      waiting[#waiting + 1] = join(each, name)
    end
  end
  return found
end

function operations.change(tree, session, changes)
  expire(tree)
  save(tree)
  if not call('ZSCORE', tree.sessions, session) then
    return { 'lost' }
  end
  tree.copies, tree.touched, tree.added, tree.paths = {}, {}, {}, {}
  local done = {}
  for index, change in ipairs(changes) do
    local node, wrong = apply[change[1]](tree, session, unpack(change, 2))
    if wrong then
      return wrong
    end
    done[index] = node or {}
  end
  save(tree)
  return { 'done', done }
end

local function operate(arguments)
  local tree = open(arguments[1])
  tree.values = arguments
  return operations[arguments[2]](tree, unpack(unpacked(arguments[3])))
end
