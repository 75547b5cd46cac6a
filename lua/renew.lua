-- Renews the leases of several holds. Creates nothing, and never shortens an expiry: a renewal may arrive late, with a
-- shorter lease than one that was promised since.
-- KEYS     two for each hold: the lock hash, and the own reader timeout (not a reader: the lock hash again); of a permit
--          the free permits and those that are held
-- ARGV     three for each hold: the field, the lease in ms, 'read', 'write', 'exclusive' or 'permit'
-- Returns  for each hold 1 renewed, 0 gone
-- Needs    on_hash.lua, permit/renew.lua and what it needs

-- Redis 7 compares in the command (GT), which saves one command. If that sets nothing, as on a key without an expiry,
-- the script compares.
local compares = redis.REDIS_VERSION_NUM ~= nil
local function prolong(key, lease)
  if compares and redis.call('PEXPIRE', key, lease, 'GT') == 1 then
    return true
  end
  return redis.call('PEXPIRE', key, math.max(tonumber(lease), redis.call('PTTL', key))) == 1
end

local function renew(name, timeout, field, lease, kind)
  local held = on_hash('HEXISTS', name, field) == 1
  if held and kind == 'read' then
    held = prolong(timeout, lease)
  end
  if held then
    prolong(name, lease)
  end
  return held and 1 or 0
end

local answers = {}
for i = 1, #KEYS / 2 do
  local renews = ARGV[3 * i] == 'permit' and renew_permit or renew
  answers[i] = renews(KEYS[2 * i - 1], KEYS[2 * i], ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i])
end
return answers
