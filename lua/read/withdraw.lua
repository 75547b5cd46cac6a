-- Withdraws a read attempt: its hold, its place among the waiters, its pass. If that was the last pass and the lock is
-- free, the writers that waited for it are woken.
-- KEYS     1 lock hash, 2 channel, 3 own reader timeout, 4 waiting writers, 5 line, 6 tombstone, 7 waiting readers,
--          8 passes
-- ARGV     1 hold id, 2 publish command, 3 life of the tombstone in ms (0: none)
-- Returns  1 ended, 0 nothing was held
-- Needs    now.lua, waiters.lua, wake_all.lua, read/leave.lua and what it needs
local ended = leave_read(KEYS, ARGV)
redis.call('ZREM', KEYS[7], ARGV[1])
if redis.call('ZREM', KEYS[8], ARGV[1]) == 1 and not waiting(KEYS[8], now_ms())
  and redis.call('EXISTS', KEYS[1]) == 0 then
  wake_all(ARGV[2], KEYS[2])
  call_first(KEYS[5], KEYS[4], ARGV[2])
end
if ARGV[3] ~= '0' then
  redis.call('SET', KEYS[6], 1, 'PX', ARGV[3])
end
return ended == 0 and 0 or 1
