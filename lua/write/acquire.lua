-- Grants a write hold to the first in line, or to an attempt without a place in the line; or records the attempt as
-- waiting.
-- KEYS     1 lock hash, 2 tombstone, 3 waiting writers, 4 passes, 5 line, 6 turn of those outside, 7 fencing counter
--          (absent: no token)
-- ARGV     1 lease in ms, 2 hold id, 3 ms that it counts as waiting (0: it does not wait), 4 whether it has a place in
--          line, 0 or 1, 5 publish command (absent: PUBLISH), 6 tokens to reserve, 7 retention of the counter in ms
--          (0: for ever)
-- Returns  0 or {0, token} granted, {1, ms} refused, {1, ms, 1} refused, and Redisson's channel says when to ask again,
--          2 withdrawn before, 3 an exclusive lock, 4 no expiry, 5 no lock
-- Needs    write/grant_free.lua, write/ask.lua and what they need
local refused, grant = ask_write(KEYS, ARGV, not KEYS[7])
return refused or grant()
