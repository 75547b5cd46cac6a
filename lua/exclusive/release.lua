-- Ends an exclusive hold (PROTOCOL 1.1). Deletes before anything else, so that it works when memory is full.
-- KEYS     1 lock hash, 2 channel
-- ARGV     1 hold id, 2 publish command
-- Returns  0 gone before; ended: one more than have heard of it
-- Needs    on_hash.lua
if on_hash('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('DEL', KEYS[1])
return 1 + redis.call(ARGV[2], KEYS[2], '0')
