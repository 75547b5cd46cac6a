-- Grants a read hold, or remembers the attempt as waiting.
-- KEYS     1 lock hash, 2 tombstone, 3 waiting writers, 4 waiting readers, 5 passes, 6 own reader timeout
-- ARGV     1 lease in ms, 2 hold id, 3 ms that it counts as waiting (0: it will not ask again)
-- Returns  0 granted, {1, ms} refused, 2 withdrawn before, 3 not a read-write lock, 4 held without expiry
-- Needs    now.lua, expire.lua, waiters.lua, read/ask.lua
local refused, grant = ask_read(KEYS, ARGV)
return refused or grant()
