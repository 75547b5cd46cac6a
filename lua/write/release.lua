-- Ends a write hold.
-- KEYS     1 lock hash, 2 channel, 3 waiting readers, 4 passes
-- ARGV     1 hold id, 2 publish command, 3 prefix of all reader timeouts
-- Returns  0 gone before; ended: one more than have heard of it
-- Needs    on_hash.lua, now.lua, living.lua, write/leave.lua
return leave(KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[2], ARGV[3])
