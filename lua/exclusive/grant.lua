-- Grants an exclusive hold.
-- keys, args  as exclusive/acquire.lua
-- Needs       expire.lua, token.lua

-- Whether no key of the lock says that an attempt might have to wait.
local function is_free_exclusive(keys)
  return redis.call('EXISTS', keys[1], keys[2], keys[3], keys[5]) == 0
end

local function grant_exclusive(keys, args)
  local token = keys[6] and next_token(keys[6], args[5], args[6])
  redis.call('HSET', keys[1], args[2], 1)
  expire(keys[1], args[1])
  return token and {0, token} or 0
end
