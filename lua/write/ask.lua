-- Whether a write hold can be granted now (PROTOCOL 1.3; readers with a pass go first): why not, or else what grants it.
-- A refused attempt with patience is remembered as waiting.
-- keys     as write/acquire.lua
-- args     as write/acquire.lua
-- Needs    now.lua, expire.lua, waiters.lua, token.lua
local function ask_write(keys, args)
  local name, id, lease = keys[1], args[2], tonumber(args[1])
  local field, life, waits = id .. ':write', lease, false

  local function grant()
    local token = keys[5] and next_token(keys[5], args[4], args[5])
    redis.call('HSET', name, 'mode', 'write', field, 1)
    expire(name, life)
    if waits then
      redis.call('ZREM', keys[3], id)
    end
    return token and {0, token} or 0
  end

  if redis.call('EXISTS', name, keys[2], keys[3], keys[4]) == 0 then
    return nil, grant
  end
  if redis.call('EXISTS', keys[2]) == 1 then
    return 2
  end
  local held = redis.call('HMGET', name, 'mode', field)
  if held[2] then
    life = math.max(lease, redis.call('PTTL', name))
    return nil, grant
  end
  if not held[1] and redis.call('EXISTS', name) == 1 then
    return 3
  end

  local now, refused = now_ms(), nil
  if held[1] then
    refused = redis.call('PTTL', name)
    if refused == -1 then
      return 4
    end
  else
    refused = waiting(keys[4], now)
  end
  if not refused then
    waits = true
    return nil, grant
  end
  if args[3] ~= '0' then
    join(keys[3], id, args[3], now)
  end
  return {1, refused}
end
