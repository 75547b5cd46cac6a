-- Returns which of several holds exist. Changes nothing.
-- KEYS     two for each hold: the lock hash, and the own reader timeout (not a reader: the lock hash again); of a permit
--          the free permits and those that are held
-- ARGV     two for each hold: the field, and 'permit' if it is one
-- Returns  for each hold 1 held, 0 gone
-- Needs    on_hash.lua, now.lua
local answers = {}
for i = 1, #KEYS / 2 do
  local name, other, field = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i - 1]
  if ARGV[2 * i] == 'permit' then
    answers[i] = tonumber(on_hash('ZSCORE', other, field) or 0) > now_ms() and 1 or 0
  else
    answers[i] = on_hash('HEXISTS', name, field) == 1 and redis.call('EXISTS', other) or 0
  end
end
return answers
