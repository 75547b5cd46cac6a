-- Renews the leases of several holds, or checks which of them exist. Creates nothing, and never shortens an expiry: a
-- renewal may arrive late, with a shorter lease than one that was promised since. A check changes nothing, but a server that
-- may have been replaced does not answer it.
-- KEYS     for each hold the lock hash; for a reader then its own timeout; for a permit instead the free permits and
--          those that are held
-- ARGV     for each run of holds that are alike: 'hash', 'reader' or 'permit'; the lease in ms, 0 for a check; the number
--          of holds; the field of each
-- Returns  the number of holds that exist, then the place of each that is gone, from 1
-- Needs    writable.lua, on_hash.lua, permit/renew.lua and what it needs

-- Redis 7 compares in the command (GT), which saves one command. If that sets nothing, as on a key without an expiry,
-- the script compares.
local compares = redis.REDIS_VERSION_NUM ~= nil
local function prolong(key, lease)
  if lease == '0' then
    return redis.call('EXISTS', key) == 1
  end
  if compares and redis.call('PEXPIRE', key, lease, 'GT') == 1 then
    return true
  end
  return redis.call('PEXPIRE', key, math.max(tonumber(lease), redis.call('PTTL', key))) == 1
end

local function renew(name, field, lease)
  return on_hash('HEXISTS', name, field) == 1 and prolong(name, lease)
end

local function renew_reader(name, timeout, field, lease)
  return on_hash('HEXISTS', name, field) == 1 and prolong(timeout, lease) and prolong(name, lease)
end

local answers, place, key, arg = { 0 }, 0, 1, 1
while ARGV[arg] do
  local kind, lease = ARGV[arg], ARGV[arg + 1]
  local renews = kind == 'reader' and renew_reader or renew_permit
  local first, last = arg + 3, arg + 2 + ARGV[arg + 2]
  for field = first, last do
    local held
    if kind == 'hash' then
      held = renew(KEYS[key], ARGV[field], lease)
      key = key + 1
    else
      held = renews(KEYS[key], KEYS[key + 1], ARGV[field], lease)
      key = key + 2
    end
    place = place + 1
    if held then
      answers[1] = answers[1] + 1
    else
      answers[#answers + 1] = place
    end
  end
  arg = last + 1
end
return answers
