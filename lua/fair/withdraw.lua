-- Withdraws a fair attempt: its hold and its place in the queue (PROTOCOL 1.2, acquireFailed). If the lock is free, the
-- first in the queue is woken. The scores of the waiters behind are near and do not change.
-- KEYS     1 lock hash, 2 channel, 3 timeouts, 4 line, 5 queue, 6 alive, 7 waiting in line, 8 tombstone
-- ARGV     1 hold id, 2 publish command, 3 life of the tombstone in ms (0: none)
-- Returns  1 ended, 0 nothing was held
-- Needs    end_hold.lua, now.lua, line.lua, fair/queue.lua, fair/wake.lua
local id = ARGV[1]
local ended = end_hold(KEYS[1], id)
forget(KEYS[5], KEYS[3], KEYS[6], id)
if ended ~= 0 or redis.call('EXISTS', KEYS[1]) == 0 then
  wake(KEYS[5], KEYS[3], KEYS[6], KEYS[2], ARGV[2], KEYS[7], KEYS[4])
end
if ARGV[3] ~= '0' then
  redis.call('SET', KEYS[8], 1, 'PX', ARGV[3])
end
return ended == 0 and 0 or 1
