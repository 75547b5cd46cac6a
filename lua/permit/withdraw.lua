-- Withdraws an attempt for a permit: gives its permit back, gives up its place in line, and leaves a tombstone for a copy
-- that may still arrive.
-- KEYS     1 free permits, 2 permits that are held, 3 channel, 4 waiting, 5 line, 6 turn of those outside, 7 tombstone
-- ARGV     1 hold id, 2 publish command, 3 life of the tombstone in ms (0: none is needed)
-- Returns  1 ended, 0 nothing was held
-- Needs    permit/leave.lua and what it needs
local ended = leave_permit(KEYS, ARGV)
give_up_place(KEYS[5], KEYS[4], ARGV[1], ARGV[2])
if ARGV[3] ~= '0' then
  redis.call('SET', KEYS[7], 1, 'PX', ARGV[3])
end
return ended == 0 and 0 or 1
