-- Wakes the first in the fair queue. If the queue is empty, wakes those who wait without a place in it: where Redisson's
-- plain locks listen, and the first in line of ours. Redisson wakes nobody then.
-- Needs    now.lua, line.lua, fair/queue.lua
local function wake(queue, timeouts, alive, channel, publish, waiting, line, turn)
  local head = redis.call('EXISTS', queue) == 1 and first_in_line(queue, timeouts, alive, now_ms())
  redis.call(publish, head and channel .. ':' .. head or channel, '0')
  if not head then
    call_first(line, waiting, turn, publish)
  end
end
