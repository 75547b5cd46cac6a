-- Checks a read-write lock after the end of a hold, in a bounded number of steps, and ends the lock if it has no reader.
-- Redisson's rule (PROTOCOL 1.3) is that the hash lives as long as its longest-lived reader. With many readers it may
-- live longer: the script then removes dead readers, up to a limit, until it finds a live one.
-- Needs    holds.lua, sample.lua

-- left     how many fields the hash has
-- Returns  how many ms the lock is still read (nil: it is not); whether data of the application is left under its name;
--          whether the first value is unknown, because all checked readers are dead and there are more
local function settle(name, prefix, left)
  local size = 8
  for round = 1, 12 do
    if left <= 1 then
      return nil, redis.call('HDEL', name, 'mode') < left, false
    end
    local is_all = left <= FEW
    if round == 12 and not is_all then
      break
    end
    local holds, data, lives = look(name, prefix, sample(name, left, size), is_all)
    if lives and is_all then
      redis.call('PEXPIRE', name, lives)
    elseif is_all and not data then
      redis.call('DEL', name)
    end
    if lives or data or is_all then
      return lives, data, false
    end
    redis.call('HDEL', name, unpack(holds))
    left, size = redis.call('HLEN', name), 100
  end
  return redis.call('PTTL', name), false, true
end

-- Removes the fields and the expiry that an ended lock gave to data of the application. While the data exists, no
-- attempt is granted.
local function leave_data(name)
  redis.call('HDEL', name, 'mode')
  redis.call('PERSIST', name)
end
