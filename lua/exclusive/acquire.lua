-- Grants an exclusive hold to the first in line, or to an attempt without a place in the line. A refused attempt gets a
-- place in line.
-- KEYS     1 lock hash, 2 tombstone of the attempt, 3 waiting, 4 line, 5 turn of those outside, 6 fencing counter (absent:
--          no token)
-- ARGV     1 lease in ms, 2 hold id, 3 ms that it counts as waiting (0: no place in line), 4 publish command (absent:
--          PUBLISH), 5 tokens to reserve, 6 retention of the counter in ms (0: for ever)
-- Returns  0 or {0, token} granted, {1, ms} refused, {1, ms, 1} refused, and Redisson's channel says when to ask again,
--          2 withdrawn before, 3 a read-write lock, 4 no expiry, 5 no lock
-- Needs    exclusive/grant_free.lua, exclusive/ask.lua and what they need
local refused, grant = ask_exclusive(KEYS, ARGV, not KEYS[6])
return refused or grant()
