-- Begins the leases of several holds anew. Creates nothing, and shortens no life: a renewal may
-- arrive late, for less than was promised since.
-- KEYS     two for each hold: the lock hash, and the own reader timeout (not a reader: the lock hash again)
-- ARGV     three for each hold: the field, the lease in ms, 'read', 'write' or 'exclusive'
-- Returns  for each hold 1 renewed, 0 gone
local answers = {}
for i = 1, #KEYS / 2 do
  local name, timeout = KEYS[2 * i - 1], KEYS[2 * i]
  local field, lease, kind = ARGV[3 * i - 2], tonumber(ARGV[3 * i - 1]), ARGV[3 * i]
  -- Something else than a hash is an error to this call alone: the other holds are renewed.
  local held = redis.pcall('HEXISTS', name, field) == 1
  if held and kind == 'read' then
    held = redis.call('PEXPIRE', timeout, math.max(lease, redis.call('PTTL', timeout))) == 1
  end
  if held then
    redis.call('PEXPIRE', name, math.max(lease, redis.call('PTTL', name)))
  end
  answers[i] = held and 1 or 0
end
return answers
