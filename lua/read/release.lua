-- Ends a read hold.
-- KEYS     1 lock hash, 2 channel, 3 own reader timeout
-- ARGV     1 hold id, 2 publish command, 3 prefix of all reader timeouts
-- Returns  1 ended, 0 gone before
-- Needs    on_hash.lua, living.lua, read/leave.lua
return leave(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3])
