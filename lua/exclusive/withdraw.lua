-- Takes an exclusive attempt back: ends its hold, and leaves a tombstone for a copy that may still arrive.
-- KEYS     1 lock hash, 2 channel, 3 tombstone
-- ARGV     1 hold id, 2 publish command, 3 life of the tombstone in ms (0: none is needed)
-- Returns  1 ended, 0 nothing was held
-- Needs    exclusive/leave.lua and what it needs
local ended = leave_exclusive(KEYS, ARGV)
if ARGV[3] ~= '0' then
  redis.call('SET', KEYS[3], 1, 'PX', ARGV[3])
end
return ended == 0 and 0 or 1
