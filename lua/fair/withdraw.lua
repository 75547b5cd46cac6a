-- Withdraws a fair attempt: its hold and its place in the queue (PROTOCOL 1.2, acquireFailed). If the lock is free, the
-- first in the queue is woken. The scores of the waiters behind are near and do not change.
-- KEYS     1 lock hash, 2 queue, 3 timeouts, 4 alive, 5 waiting in line, 6 line, 7 tombstone
-- ARGV     1 hold id, 2 channel of the lock, 3 publish command, 4 life of the tombstone in ms (0: none)
-- Returns  1 ended, 0 nothing was held
-- Needs    end_hold.lua, now.lua, line.lua, fair/queue.lua, fair/wake.lua
local id = ARGV[1]
local ended = end_hold(KEYS[1], id)
forget(KEYS[2], KEYS[3], KEYS[4], id)
if ended ~= 0 or redis.call('EXISTS', KEYS[1]) == 0 then
  wake(KEYS[2], KEYS[3], KEYS[4], ARGV[2], ARGV[3], KEYS[5], KEYS[6])
end
if ARGV[4] ~= '0' then
  redis.call('SET', KEYS[7], 1, 'PX', ARGV[4])
end
return ended == 0 and 0 or 1
