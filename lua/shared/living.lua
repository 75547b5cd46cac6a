-- How many ms the reader that lives longest still lives; nil if none does. A reader lives as long as one of its timeout
-- keys, which Redisson names after the fields of the hash: they cannot be declared, but carry the lock's hash tag.
local function living(name, prefix)
  local longest
  local fields = redis.call('HGETALL', name)
  for f = 1, #fields, 2 do
    for i = tonumber(fields[f + 1]) or 0, 1, -1 do
      local left = redis.call('PTTL', prefix .. ':' .. fields[f] .. ':rwlock_timeout:' .. i)
      if left > (longest or 0) then
        longest = left
      end
    end
  end
  return longest
end
