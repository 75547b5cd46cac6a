-- Whether an exclusive hold can be granted now (PROTOCOL 1.1): why not, or else what grants it.
-- keys     as exclusive/acquire.lua
-- args     as exclusive/acquire.lua
-- Needs    expire.lua, token.lua, holds.lua
local function ask_exclusive(keys, args)
  local function grant()
    local token = keys[3] and next_token(keys[3], args[3], args[4])
    redis.call('HSET', keys[1], args[2], 1)
    expire(keys[1], args[1])
    return token and {0, token} or 0
  end

  if redis.call('EXISTS', keys[1], keys[2]) == 0 then
    return nil, grant
  end
  if redis.call('EXISTS', keys[2]) == 1 then
    return 2
  end
  local held = redis.call('HMGET', keys[1], args[2], 'mode')
  if held[2] then
    return is_mode('mode', held[2]) and 3 or 5
  end
  if held[1] then
    return nil, grant
  end
  local left = redis.call('PTTL', keys[1])
  if left == -1 then
    return 4
  end
  return {1, left}
end
