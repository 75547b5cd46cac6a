-- Grants an exclusive hold to the first in the queue. A refused attempt gets a place in the queue.
-- KEYS     1 lock hash, 2 tombstone, 3 alive, 4 timeouts, 5 queue, 6 fencing counter (absent: no token)
-- ARGV     1 lease in ms, 2 hold id, 3 ms that it counts as alive (0: no place in the queue), 4 publish command
--          (absent: PUBLISH), 5 tokens to reserve, 6 retention of the counter in ms (0: for ever)
-- Returns  0 or {0, token} granted, {1, ms} refused, 2 withdrawn before, 3 a read-write lock, 4 no expiry, 5 no lock
-- Needs    exclusive/grant_free.lua, fair/ask.lua and what they need
local refused, grant = ask_fair(KEYS, ARGV, not KEYS[6])
return refused or grant()
