-- The hash of a lock: holds, what else may be there, and what a hold has beside it: its token and its record.

--# kinds
-- Whether a field belongs to a read-write lock without being a hold.
local function is_mode(field, value)
  return field == 'mode' and (value == 'read' or value == 'write')
end

--# redissons
-- Whether a client of Redisson is among the holders: its ids are random UUIDs, of version 4; ours are of version 8.
local function is_redissons(name)
  for _, field in ipairs(redis.call('HRANDFIELD', name, 3)) do
    if field:sub(15, 15) == '4' then
      return true
    end
  end
  return false
end

--# grant
-- Sets the expiry of a hash that was just written. No hash is left without one: if the user may write but not expire,
-- the hash is removed.
local function expire(name, ms)
  local done = redis.pcall('PEXPIRE', name, ms)
  if type(done) == 'table' then
    redis.call('DEL', name)
    error(done.err)
  end
end

--# fields
-- A hash with at most this many fields is read as a whole.
local FEW = 17
-- A reader with a higher count lives as long as the hash does: its own timeout keys are not checked.
local NESTED = 8

-- How often a hold was entered; nil if the field is not a hold. The field of a hold is `<client>:<number>`, where the client is
-- a UUID; Redisson adds `:<id>` in a transaction and both sides add `:write` for a writer. Its value is a count, which Lua keeps
-- exactly up to 15 digits.
local function hold_count(field, value)
  if field:sub(1, 36):find('^[%x%-]+$') and field:find('^:%-?%d+', 37) and #value < 16 and value:find('^[1-9]%d*$') then
    return tonumber(value)
  end
end

-- Some fields with their values: all of them if they are few, otherwise `size` random ones.
local function sample(name, left, size)
  if left <= FEW then
    return redis.call('HGETALL', name)
  end
  return redis.call('HRANDFIELD', name, size, 'WITHVALUES')
end

-- The timeout keys of a reader (PROTOCOL 1.3). They carry the lock's hash tag.
local function add_timeouts(keys, tag, field, count)
  for i = 1, math.min(count, NESTED) do
    keys[#keys + 1] = tag .. ':' .. field .. ':rwlock_timeout:' .. i
  end
end

--# leave
-- Runs a command on a field of a hash. If the key is not a hash, the answer is 0, as for an absent field: the key
-- carries no hold, and a release must not fail because of it.
local function on_hash(command, name, field)
  local answer = redis.pcall(command, name, field)
  if type(answer) ~= 'table' then
    return answer
  end
  if not string.find(answer.err, 'WRONGTYPE', 1, true) then
    error(answer.err)
  end
  return 0
end

--# alone
-- Whether nothing is left after an exclusive or a write hold was removed. Other fields belong to the application, or to a lock of
-- another kind, and are kept. Data of the application loses the expiry that the lock gave it.
local function is_alone(name)
  if redis.call('EXISTS', name) == 0 then
    return true
  end
  local fields = sample(name, redis.call('HLEN', name), 8)
  for f = 1, #fields, 2 do
    if not hold_count(fields[f], fields[f + 1]) and not is_mode(fields[f], fields[f + 1]) then
      redis.call('PERSIST', name)
      break
    end
  end
  return false
end

--# token
-- Lua counts exactly up to here.
local LAST_TOKEN = 9007199254740991

-- Issues the next fencing token and reserves those that follow it. The token is never below the server's time in
-- microseconds, so tokens rise even if the counter was lost. Reserved tokens may be ahead of that time: the counter is
-- kept at least until the time has passed them. A counter that never expires, as one of Redisson's, remains so.
local function next_token(counter, reserve, retention)
  local last = tonumber(redis.call('GET', counter) or 0)
  if not last or last ~= last then -- Lua reads `nan` as a number.
    error('WRONGTYPE the fencing counter is not a number')
  end
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local token = math.max(last + 1, now)
  if token + reserve > LAST_TOKEN then
    error('WRONGTYPE the fencing counter has reached 2^53: a further token would equal the last one')
  end
  local value = string.format('%.0f', token + reserve)
  if retention == '0' or redis.call('PTTL', counter) == -1 then
    redis.call('SET', counter, value)
  else
    local ahead = math.ceil((token + reserve - now) / 1000) + 1
    redis.call('SET', counter, value, 'PX', string.format('%.0f', math.max(retention, ahead)))
  end
  return token
end

--# record
-- Stores a record under a hold, if the hold exists; the release that follows in the same script reports whether it did.
-- KEYS the last: record; ARGV 3 `record`, 4 field of the hold, 5 the record, 6 ms for which it is kept
if ARGV[3] == 'record' and redis.pcall('HEXISTS', KEYS[1], ARGV[4]) == 1 then
  -- When memory is full, a script that has written may still allocate. So PEXPIRE comes first; it writes only what SET
  -- overwrites.
  redis.call('PEXPIRE', KEYS[#KEYS], ARGV[6])
  redis.call('SET', KEYS[#KEYS], ARGV[5], 'PX', ARGV[6])
end

--# recorded
-- Reads a record.
return redis.call('GET', KEYS[1])
