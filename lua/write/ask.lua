-- Whether a write hold can be granted now (PROTOCOL 1.3; readers with a pass go first): why not, or else what grants it.
-- A refused attempt with patience is remembered as waiting.
-- keys     as write/acquire.lua
-- args     as write/acquire.lua
-- Needs    now.lua, expire.lua, waiters.lua, token.lua, settle.lua and what it needs
local function ask_write(keys, args)
  local name, id, lease = keys[1], args[2], tonumber(args[1])
  local field, life, waits = id .. ':write', lease, false

  local function grant()
    local token = keys[5] and next_token(keys[5], args[5], args[6])
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
  local held, left = redis.call('HMGET', name, 'mode', field), redis.call('PTTL', name)
  local no_lock = why_no_lock(held[1], left)
  if no_lock and not (no_lock == 4 and held[2]) then
    return no_lock
  end
  if held[2] then
    life = math.max(lease, left)
    return nil, grant
  end

  local refused, data, unknown = held[1] and left or nil, false, false
  local fields = held[1] == 'read' and redis.call('HLEN', name) or 0
  if fields > FEW then
    refused, data, unknown = settle(name, args[4], fields)
  end
  if data then
    return 5
  end
  local now = now_ms()
  refused = unknown and 1 or refused or waiting(keys[4], now)
  if not refused then
    waits = true
    return nil, grant
  end
  if args[3] ~= '0' then
    join(keys[3], id, args[3], now)
  end
  return {1, refused}
end
