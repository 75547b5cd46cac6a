-- Grants a write hold to an attempt that no other one delays.
-- keys, args  as write/acquire.lua
-- life        ms for which the lock lives
-- Needs       expire.lua, token.lua

-- Whether no key of the lock says that an attempt might have to wait.
local function is_free_write(keys)
  return redis.call('EXISTS', keys[1], keys[2], keys[3], keys[4], keys[6]) == 0
end

local function grant_write(keys, args, life)
  local token = keys[7] and next_token(keys[7], args[6], args[7])
  redis.call('HSET', keys[1], 'mode', 'write', args[2] .. ':write', 1)
  expire(keys[1], life)
  return token and {0, token} or 0
end
