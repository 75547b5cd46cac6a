-- Withdraws an exclusive attempt: ends its hold, gives up its place in line, and leaves a tombstone for a copy
-- that may still arrive.
-- KEYS     1 lock hash, 2 channel, 3 waiting, 4 line, 5 turn of those outside, 6 tombstone
-- ARGV     1 hold id, 2 publish command, 3 life of the tombstone in ms (0: none)
-- Returns  1 ended, 0 nothing was held
-- Needs    exclusive/leave.lua and what it needs
local ended = leave_exclusive(KEYS, ARGV)
give_up_place(KEYS[4], KEYS[3], ARGV[1], ARGV[2])
if ARGV[3] ~= '0' then
  redis.call('SET', KEYS[6], 1, 'PX', ARGV[3])
end
return ended == 0 and 0 or 1
