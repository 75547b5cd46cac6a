-- What reads and writes have in common (PROTOCOL 1.3). Needs time.lua, hash.lua.

--# ask
-- The sets of those who wait for a read-write lock.
local SETS = {'line', 'writers', 'readers', 'pass'}

-- Why a hash with this `mode` and `left` ms to live is not a read-write lock, as an answer to a question; nil if it may be one.
-- A hold always expires, and so does its hash.
local function why_no_lock(mode, left)
  if mode and not is_mode('mode', mode) then
    return 5
  end
  if left == -1 then
    return 4
  end
  return not mode and left ~= -2 and 3 or nil
end

--# settle
-- Returns the holds among some fields; whether there is data of the application; how many ms the longest read lives
-- at least.
local function look(name, tag, fields, exactly)
  local holds, timeouts, data, lives = {}, {}, false, 0
  for f = 1, #fields, 2 do
    local field, value = fields[f], fields[f + 1]
    local count = hold_count(field, value)
    if count then
      holds[#holds + 1] = field
      add_timeouts(timeouts, tag, field, count)
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

-- Checks a read-write lock after the end of a hold, in a bounded number of steps, and ends the lock if it has no reader.
-- Redisson's rule is that the hash lives as long as its longest-lived reader. With many readers it may live longer: the script
-- then removes dead readers, up to a limit, until it finds a live one. `left` is how many fields the hash has. Returns how many
-- ms the lock is still read (nil: it is not); whether data of the application is left under its name; whether the first value
-- is unknown, because all checked readers are dead and there are more.
local function settle(name, tag, left)
  local size = 8
  for round = 1, 12 do
    if left <= 1 then
      return nil, redis.call('HDEL', name, 'mode') < left, false
    end
    local is_all = left <= FEW
    if round == 12 and not is_all then
      break
    end
    local holds, data, lives = look(name, tag, sample(name, left, size), is_all)
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

--# wake
-- Wakes all waiters for a read-write lock. Redisson's `1` wakes threads that sleep already. A thread that was refused and
-- does not sleep yet would miss it, and sleep for the rest of the lease that it saw. Redisson keeps a `0` for that
-- thread; without subscribers there is no such thread. Returns how many subscribers were woken.
local function wake_all(publish, channel)
  local woken = redis.call(publish, channel, '1')
  if woken > 0 then
    redis.call(publish, channel, '0')
  end
  return woken
end

-- Wakes all readers that wait, by one message on their channel.
local function call_readers(lock, publish)
  redis.call(publish, 'tower_lock_enter:' .. lock.tag, '0')
end

-- Gives passes to the readers that wait now, and wakes all of them: they go before the next writer. Returns whether any waits.
local function pass(lock, publish)
  if has_living(lock, 'readers') then
    local readers = 'tower_lock_readers:' .. lock.tag
    redis.call('ZREMRANGEBYSCORE', readers, '-inf', lock.v)
    redis.call('RENAME', readers, 'tower_lock_pass:' .. lock.tag)
    call_readers(lock, publish)
    return true
  end
end
