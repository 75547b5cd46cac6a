-- Tells the first in line that the lock is free. If nobody is in line, tells those who wait without a place in it, where
-- plain locks are told; Redisson tells nobody then.
-- Needs    now.lua, fair/queue.lua
local function wake(queue, timeouts, alive, channel, publish)
  local head = redis.call('EXISTS', queue) == 1 and first_in_line(queue, timeouts, alive, now_ms())
  redis.call(publish, head and channel .. ':' .. head or channel, '0')
end
