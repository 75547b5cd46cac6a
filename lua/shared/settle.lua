-- Finds out, in a bounded number of steps, what is left of a read-write lock when a hold has ended, and ends the lock if
-- nobody reads it. Redisson's rule (PROTOCOL 1.3) is that the hash lives as long as its longest-lived reader. With many
-- readers it may live longer: dead ones are then removed, as many as a script may, until a living one is found.
-- Needs    holds.lua, sample.lua

-- The holds among some fields; whether there is data of the application; how many ms the longest read lives at least.
local function look(name, prefix, fields, exactly)
  local holds, timeouts, data, lives = {}, {}, false, 0
  for f = 1, #fields, 2 do
    local field, value = fields[f], fields[f + 1]
    local count = hold_count(field, value)
    if count then
      holds[#holds + 1] = field
      add_timeouts(timeouts, prefix, field, count)
      lives = math.max(lives, count > NESTED and redis.call('PTTL', name) or 0)
    elseif not is_mode(field, value) then
      data = true
    end
  end
  if not exactly and #timeouts > 0 and redis.call('EXISTS', unpack(timeouts)) > 0 then
    lives = redis.call('PTTL', name)
  end
  for i = 1, exactly and #timeouts or 0 do
    lives = math.max(lives, redis.call('PTTL', timeouts[i]))
  end
  return holds, data, lives > 0 and lives or nil
end

-- left     how many fields the hash has
-- Returns  how many ms the lock is still read (nil: it is not); whether data of the application is left under its name;
--          whether the first is unknown, because all readers that were looked at are dead and there are more
local function settle(name, prefix, left)
  local size = 8
  for round = 1, 12 do
    if left <= 1 then
      local data = redis.call('HDEL', name, 'mode') < left
      return nil, data and redis.call('PERSIST', name) == 1, false
    end
    local is_all = left <= FEW
    if round == 12 and not is_all then
      break
    end
    local holds, data, lives = look(name, prefix, sample(name, left, size), is_all)
    if lives and is_all then
      redis.call('PEXPIRE', name, lives)
    elseif data and not lives then
      -- While it is there, no attempt on the key is granted. Without an expiry it stays there.
      redis.call('HDEL', name, 'mode', unpack(holds))
      redis.call('PERSIST', name)
    elseif is_all then
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
