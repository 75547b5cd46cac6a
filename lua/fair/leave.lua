-- Ends an exclusive hold (PROTOCOL 1.2) and wakes the first in the queue. For an expired hold, Redisson answers that it
-- was released. This script answers that it was gone, and also wakes the first in the queue.
-- keys     1 lock hash, 2 queue, 3 timeouts, 4 alive, 5 waiting in line, 6 line
-- args     1 hold id, 2 channel of the lock, 3 publish command (absent: PUBLISH)
-- removed  whether the field of the hold was removed before, 0 or 1 (absent: it was not tried)
-- Returns  1 ended, 0 gone before, -1 ended and data of the application is left
-- Needs    end_hold.lua, now.lua, line.lua, fair/queue.lua, fair/wake.lua
local function leave_fair(keys, args, removed)
  local ended = end_hold(keys[1], args[1], removed)
  if ended == 0 and (redis.call('EXISTS', keys[1]) == 1 or redis.call('EXISTS', keys[2]) == 0) then
    return 0
  end
  wake(keys[2], keys[3], keys[4], args[2], args[3] or 'PUBLISH', keys[5], keys[6])
  return ended
end
