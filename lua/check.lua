-- Says which of several holds are there. Changes nothing.
-- KEYS     two for each hold: the lock hash, and the own reader timeout (not a reader: the lock hash again)
-- ARGV     one for each hold: the field
-- Returns  for each hold 1 held, 0 gone
-- Needs    on_hash.lua
local answers = {}
for i = 1, #KEYS / 2 do
  local held = on_hash('HEXISTS', KEYS[2 * i - 1], ARGV[i]) == 1
  answers[i] = held and redis.call('EXISTS', KEYS[2 * i]) or 0
end
return answers
