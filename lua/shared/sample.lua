-- Reads a bounded part of a hash, whatever its size.
-- Needs    holds.lua

-- A hash with at most this many fields is read as a whole.
local FEW = 17
-- A reader with a higher count lives as long as the hash does: its own timeout keys are not checked.
local NESTED = 8

-- Some fields with their values: all of them if they are few, otherwise `size` random ones.
local function sample(name, left, size)
  if left <= FEW then
    return redis.call('HGETALL', name)
  end
  return redis.call('HRANDFIELD', name, size, 'WITHVALUES')
end

-- The timeout keys of a reader (PROTOCOL 1.3). They carry the lock's hash tag.
local function add_timeouts(keys, prefix, field, count)
  for i = 1, math.min(count, NESTED) do
    keys[#keys + 1] = prefix .. ':' .. field .. ':rwlock_timeout:' .. i
  end
end

-- Returns the holds among some fields; whether there is data of the application; how many ms the longest read lives
-- at least.
local function look(name, prefix, fields, exactly)
  local holds, timeouts, data, lives = {}, {}, false, 0
  for f = 1, #fields, 2 do
    local field, value = fields[f], fields[f + 1]
    local count = hold_count(field, value)
    if count then
      holds[#holds + 1] = field
      add_timeouts(timeouts, prefix, field, count)
      lives = math.max(lives, count > NESTED and redis.call('PTTL', name) or 0)
    elseif not is_mode(field, value) then
      data = true
    end
  end
  if not exactly and #timeouts > 0 and redis.call('EXISTS', unpack(timeouts)) > 0 then
    lives = redis.call('PTTL', name)
  end
  for i = 1, exactly and #timeouts or 0 do
    lives = math.max(lives, redis.call('PTTL', timeouts[i]))
  end
  return holds, data, lives > 0 and lives or nil
end
