-- Grants a read hold.
-- keys, args  as read/acquire.lua
-- mode        the mode of the lock; life: ms for which the lock lives
-- Needs       expire.lua

-- Whether no key of the lock says that an attempt might have to wait, or shares the lock.
local function is_free_read(keys)
  return redis.call('EXISTS', keys[1], keys[2], keys[3], keys[4], keys[5]) == 0
end

local function grant_read(keys, args, mode, life)
  redis.call('SET', keys[6], 1, 'PX', args[1])
  redis.call('HSET', keys[1], 'mode', mode, args[2], 1)
  expire(keys[1], life)
  return 0
end
