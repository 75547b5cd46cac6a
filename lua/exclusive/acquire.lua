-- Grants an exclusive hold, in no particular order among waiters.
-- KEYS     1 lock hash, 2 tombstone of the attempt, 3 fencing counter (absent: no token is asked for)
-- ARGV     1 lease in ms, 2 hold id, 3 tokens to reserve, 4 retention of the counter in ms (0: for ever)
-- Returns  0 or {0, token} granted, {1, ms} refused, 2 withdrawn before, 3 a read-write lock, 4 no expiry, 5 no lock
-- Needs    exclusive/ask.lua and what it needs
local refused, grant = ask_exclusive(KEYS, ARGV)
return refused or grant()
