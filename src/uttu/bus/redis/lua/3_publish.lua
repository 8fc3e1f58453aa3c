-- Publish: add each message to every group subscribed to it, and PUBLISH it if there are subscribers without a group.
--
-- arguments, from 3 on: runs of messages with the same topic and delay. A run consists of the topic, the delay in
-- milliseconds, the number of messages, and the messages.

local function publish(arguments)
  local groups, definitions = redis.call('HGETALL', prefix .. 'groups'), {}
  for index = 1, #groups, 2 do
    definitions[#definitions + 1] = { groups[index], cmsgpack.unpack(groups[index + 1]) }
  end
  local is_heard = redis.call('EXISTS', prefix .. 'listening') == 1
  local at = 3
  while arguments[at] do
    local topic, delay, count = arguments[at], tonumber(arguments[at + 1]), tonumber(arguments[at + 2])
    local due = delay > 0 and now() + delay
    local takers, is_filtered = {}, false
    for _, each in ipairs(definitions) do
      if takes_topic(each[2], topic) then
        takers[#takers + 1] = each
        is_filtered = is_filtered or has_filter(each[2])
      end
    end
    for index = at + 3, at + 2 + count do
      local message = arguments[index]
      local _, headers
      if is_filtered then
        _, headers = topic_and_headers(message)
      end
      for _, taker in ipairs(takers) do
        if not has_filter(taker[2]) or takes_headers(taker[2], headers) then
          if due then
            put_later(delayed_of(taker[1]), message, 1, due)
          else
            put(taker[1], message, 1)
          end
        end
      end
      if is_heard and due then
        put_later(prefix .. 'later', message, 1, due)
      elseif is_heard then
        redis.call('PUBLISH', prefix .. topic, message)
      end
    end
    at = at + 3 + count
  end
end
