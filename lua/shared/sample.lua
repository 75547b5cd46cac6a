-- A bounded look into a hash, whatever stands in it.
-- Needs    holds.lua

-- A hash with at most this many fields is looked at as a whole.
local FEW = 17
-- A read that was entered more often than this counts as alive for as long as the hash: its keys are not counted.
local NESTED = 8

-- Some fields with their values: all of them if they are few, else as many as `size`, by chance.
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
