-- Ends an exclusive hold (PROTOCOL 1.2) and wakes the first in the queue. For an expired hold, Redisson answers that it
-- was released. This script answers that it was gone, and also wakes the first in the queue.
-- keys     1 lock hash, 2 channel, 3 timeouts, 4 line, 5 queue, 6 alive, 7 waiting in line
-- args     1 hold id, 2 publish command (absent: PUBLISH)
-- removed  whether the field of the hold was removed before, 0 or 1 (absent: it was not tried)
-- Returns  1 ended, 0 gone before, -1 ended and data of the application is left
-- Needs    end_hold.lua, now.lua, line.lua, fair/queue.lua, fair/wake.lua
local function leave_fair(keys, args, removed)
  local ended = end_hold(keys[1], args[1], removed)
  if ended == 0 and (redis.call('EXISTS', keys[1]) == 1 or redis.call('EXISTS', keys[5]) == 0) then
    return 0
  end
  wake(keys[5], keys[3], keys[6], keys[2], args[2] or 'PUBLISH', keys[7], keys[4])
  return ended
end
