-- Wakes the first in the fair queue. If the queue is empty, wakes waiters without a place in it: on the channel of
-- Redisson's plain locks, and the first in our line. Redisson wakes no waiter then.
-- Needs    now.lua, line.lua, fair/queue.lua
local function wake(queue, timeouts, alive, channel, publish, waiting, line)
  local head = redis.call('EXISTS', queue) == 1 and first_in_line(queue, timeouts, alive, now_ms())
  redis.call(publish, head and channel .. ':' .. head or channel, '0')
  if not head then
    call_first(line, waiting, publish)
  end
end
