-- Grants a write hold, or remembers the attempt as waiting.
-- KEYS     1 lock hash, 2 tombstone, 3 waiting writers, 4 passes, 5 fencing counter (absent: no token is asked for)
-- ARGV     1 lease in ms, 2 hold id, 3 ms that it counts as waiting (0: it will not ask again), 4 tokens to reserve,
--          5 retention of the counter in ms (0: for ever)
-- Returns  0 or {0, token} granted, {1, ms} refused, 2 withdrawn before, 3 not a read-write lock, 4 held without expiry
-- Needs    now.lua, expire.lua, waiters.lua, token.lua, write/ask.lua
local refused, grant = ask_write(KEYS, ARGV)
return refused or grant()
