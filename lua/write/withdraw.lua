-- Takes a write attempt back: its hold, its place among the waiters. When it was the last writer that waited, and no
-- writer holds the lock, the readers that it held back are woken.
-- KEYS     1 lock hash, 2 channel, 3 waiting readers, 4 passes, 5 waiting writers, 6 tombstone
-- ARGV     1 hold id, 2 publish command, 3 prefix of all reader timeouts, 4 life of the tombstone in ms (0: none)
-- Returns  1 ended, 0 nothing was held
-- Needs    waiters.lua, write/leave.lua and what it needs
local ended = leave_write(KEYS, ARGV)
if redis.call('ZREM', KEYS[5], ARGV[1]) == 1 and not waiting(KEYS[5], now_ms())
  and on_hash('HGET', KEYS[1], 'mode') ~= 'write' then
  wake_all(ARGV[2], KEYS[2])
end
if ARGV[4] ~= '0' then
  redis.call('SET', KEYS[6], 1, 'PX', ARGV[4])
end
return ended == 0 and 0 or 1
