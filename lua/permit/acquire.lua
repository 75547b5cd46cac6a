-- Grants a permit to the first in line, or to an attempt without a place in the line. A refused attempt gets a place
-- in line.
-- KEYS     1 free permits, 2 permits that are held, 3 channel, 4 tombstone, 5 the limit that attempts named, or `set`, 6 waiting,
--          7 line, 8 turn of those outside
-- ARGV     1 lease in ms, 2 hold id, 3 ms that it counts as waiting (0: no place in line), 4 limit, 5 publish command
--          (absent: PUBLISH)
-- Returns  0 granted, {1, ms} refused, {1, ms, 1} refused, and Redisson's channel says when to ask again, 2 withdrawn
--          before, 5 no lock, {6, limit} another limit counts
-- Needs    permit/grant_free.lua, permit/ask.lua and what it needs
local refused, grant = ask_permit(KEYS, ARGV)
return refused or grant()
