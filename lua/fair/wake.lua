-- Tells the first in line that the lock is free.
-- Needs    now.lua, fair/queue.lua
local function wake(queue, timeouts, alive, channel, publish)
  if redis.call('EXISTS', queue) == 0 then
    return
  end
  local head = first_in_line(queue, timeouts, alive, now_ms())
  if head then
    redis.call(publish, channel .. ':' .. head, '0')
  end
end
