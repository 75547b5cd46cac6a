-- Renews the leases of several holds, or checks which of them exist. Creates nothing, and never shortens an expiry: a
-- renewal may arrive late, with a shorter lease than one that was promised since. A check changes nothing, but a server that
-- may have been replaced does not answer it. Needs hash.lua, permit.lua.

--# writable
-- Ends the script if the server may have been replaced as the master: what it has of a hold may be old then. It refuses
-- writes, and still answers scripts that only read. So this renames a key to its own name: a write that changes nothing. If
-- a master refuses it for another reason, the script goes on. It comes first: a script that has written may also allocate when
-- memory is full.
local written = redis.pcall('RENAME', KEYS[1], KEYS[1])
if written.err then
  for text, code in pairs({READONLY = 'READONLY', NOREPLICAS = 'NOREPLICAS', ['cluster is down'] = 'CLUSTERDOWN'}) do
    if written.err:find(text, 1, true) then
      return redis.error_reply(code .. ' the server refuses writes, so it confirms no hold')
    end
  end
end
-- A key for replicas to acknowledge: they may have acknowledged all earlier writes before they were cut off.
if ARGV[1] == 'marked' then
  redis.call('SET', KEYS[#KEYS], '', 'PX', 1000)
end

--# renew
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

local answers, place, key, arg = {0}, 0, 1, ARGV[1] == 'marked' and 2 or 1
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
