-- Ends an exclusive hold. HDEL comes first, because a script that has written may still allocate when memory is full.
-- Other fields of the hash belong to the application, or to a lock of another kind, and are kept. Data of the
-- application loses the expiry that the lock gave it.
-- Needs    on_hash.lua, holds.lua, sample.lua

-- After the field of the hold was removed. Returns 1 if nothing else is left, otherwise -1.
local function tidy(name)
  if redis.call('EXISTS', name) == 0 then
    return 1
  end
  local fields = sample(name, redis.call('HLEN', name), 8)
  for f = 1, #fields, 2 do
    if not hold_count(fields[f], fields[f + 1]) and not is_mode(fields[f], fields[f + 1]) then
      redis.call('PERSIST', name)
      break
    end
  end
  return -1
end

-- removed  whether the field was removed before, 0 or 1 (absent: it was not tried)
-- Returns  0 nothing was held, 1 ended, -1 ended and other fields are left
local function end_hold(name, field, removed)
  return (removed or on_hash('HDEL', name, field)) == 0 and 0 or tidy(name)
end
