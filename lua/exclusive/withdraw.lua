-- Takes an exclusive attempt back: ends its hold, and leaves a tombstone for a copy that may still arrive. HDEL comes
-- first because a script that has written may go on to allocate when memory is full.
-- KEYS     1 lock hash, 2 channel, 3 tombstone
-- ARGV     1 hold id, 2 publish command, 3 life of the tombstone in ms (0: none is needed)
-- Returns  1 ended, 0 nothing was held
-- Needs    on_hash.lua
local ended = on_hash('HDEL', KEYS[1], ARGV[1])
if ended == 1 then
  redis.call('DEL', KEYS[1])
  redis.call(ARGV[2], KEYS[2], '0')
end
if ARGV[3] ~= '0' then
  redis.call('SET', KEYS[3], 1, 'PX', ARGV[3])
end
return ended
