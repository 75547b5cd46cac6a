-- Grants a read hold, or records the attempt as waiting.
-- KEYS     1 lock hash, 2 tombstone, 3 waiting writers, 4 waiting readers, 5 passes, 6 own reader timeout
-- ARGV     1 lease in ms, 2 hold id, 3 ms that it counts as waiting (0: it does not wait)
-- Returns  0 granted, {1, ms} refused, {1, ms, 1} refused, and Redisson's channel says when to ask again,
--          2 withdrawn before, 3 an exclusive lock, 4 no expiry, 5 no lock
-- Needs    read/grant_free.lua, read/ask.lua and what they need
local refused, grant = ask_read(KEYS, ARGV, true)
return refused or grant()
