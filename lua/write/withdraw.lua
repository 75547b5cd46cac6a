-- Withdraws a write attempt: its hold and its place among the waiters. If it was the last waiting writer, and no
-- writer holds the lock, the readers that waited for it are woken.
-- KEYS     1 lock hash, 2 channel, 3 waiting readers, 4 passes, 5 waiting writers, 6 line, 7 turn of those
--          outside, 8 tombstone
-- ARGV     1 hold id, 2 publish command, 3 life of the tombstone in ms (0: none)
-- Returns  1 ended, 0 nothing was held
-- Needs    waiters.lua, write/leave.lua and what it needs
local ended = leave_write(KEYS, ARGV)
if give_up_place(KEYS[6], KEYS[5], ARGV[1], ARGV[2]) and not waiting(KEYS[5], now_ms()) then
  local writes = on_hash('HGET', KEYS[1], 'mode') == 'write'
  if not writes then
    wake_all(ARGV[2], KEYS[2])
  end
  -- Behind a writer of Redisson, they listen on another channel from now on.
  if (not writes or is_redissons(KEYS[1])) and waiting(KEYS[3], now_ms()) then
    call_readers(KEYS[5], ARGV[2])
  end
end
if ARGV[3] ~= '0' then
  redis.call('SET', KEYS[8], 1, 'PX', ARGV[3])
end
return ended == 0 and 0 or 1
