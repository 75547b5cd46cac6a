-- Decides whether a read hold can be granted now (PROTOCOL 1.3; a waiting writer goes before readers without a pass).
-- Returns the reason of the refusal, or nil and the function that grants. A refused attempt that waits is recorded as
-- waiting.
-- keys     as read/acquire.lua
-- args     as read/acquire.lua
-- taken    whether a key of the lock is known to exist
-- Needs    read/grant.lua, now.lua, waiters.lua, holds.lua, outside.lua
local function ask_read(keys, args, taken)
  local name, id, lease = keys[1], args[2], tonumber(args[1])
  local life, mode, waits = lease, nil, false

  local function grant()
    if waits then
      redis.call('ZREM', keys[4], id)
      redis.call('ZREM', keys[5], id)
    end
    return grant_read(keys, args, mode or 'read', life)
  end

  if not taken and is_free_read(keys) then
    return nil, grant
  end
  if redis.call('EXISTS', keys[2]) == 1 then
    return 2
  end
  local held, left = redis.call('HMGET', name, 'mode', id, id .. ':write'), redis.call('PTTL', name)
  mode = held[1]
  local no_lock = why_no_lock(mode, left)
  if no_lock and not (no_lock == 4 and (held[2] or held[3])) then
    return no_lock
  end

  local now, refused, writes = now_ms(), nil, held[3]
  local reads = held[2] and redis.call('EXISTS', keys[6]) == 1
  local pass = tonumber(redis.call('ZSCORE', keys[5], id) or 0) > now
  if mode == 'write' and not writes then
    refused = left
  elseif not (writes or reads or pass) then
    refused = waiting(keys[3], now)
  end
  if not refused then
    life, waits = math.max(lease, left), true
    return nil, grant
  end
  if args[3] ~= '0' then
    join(keys[4], id, args[3], now)
    if pass then
      join(keys[5], id, args[3], now)
    end
  end
  -- While a writer of ours waits, its release wakes the readers without a pass. It waits for those with one.
  if mode == 'write' and args[3] ~= '0' and (pass or not waiting(keys[3], now)) and is_redissons(name) then
    return {1, refused, 1}
  end
  return {1, refused}
end
