-- Publish: add each message to every group subscribed to it, and PUBLISH it if there are subscribers without a group.
--
-- arguments, from 3 on: runs of messages with the same topic and delay. A run consists of the topic, the delay in
-- milliseconds, the number of messages, and the messages.

local function publish(arguments)
  local groups, definitions = redis.call('HGETALL', prefix .. 'groups'), {}
  for index = 1, #groups, 2 do
    definitions[#definitions + 1] = { groups[index], cmsgpack.unpack(groups[index + 1]) }
  end
  local has_broadcasts = redis.call('EXISTS', prefix .. 'listening') == 1
  local position = 3
  while arguments[position] do
    local topic, delay, count = arguments[position], tonumber(arguments[position + 1]), tonumber(arguments[position + 2])
    local due = delay > 0 and now() + delay
    local matching, is_filtered = {}, false
    for _, each in ipairs(definitions) do
      if matches_topic(each[2], topic) then
        matching[#matching + 1] = each
        is_filtered = is_filtered or has_filter(each[2])
      end
    end
    for index = position + 3, position + 2 + count do
      local message = arguments[index]
      local _, headers
      if is_filtered then
        _, headers = decode_header(message)
      end
      for _, group in ipairs(matching) do
        if not has_filter(group[2]) or matches_headers(group[2], headers) then
          if due then
            put_delayed(delayed_of(group[1]), message, 1, due)
          else
            put(group[1], message, 1)
          end
        end
      end
      if has_broadcasts and due then
        put_delayed(prefix .. 'later', message, 1, due)
      elseif has_broadcasts then
        redis.call('PUBLISH', prefix .. topic, message)
      end
    end
    position = position + 3 + count
  end
end
