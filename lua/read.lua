-- Read holds (PROTOCOL 1.3). Needs time.lua, hash.lua, line.lua, read_write.lua.

--# grant_free
-- This comes before the functions: in the usual case the script returns before Redis creates them, which saves time. Nothing
-- about the lock is unusual, and no one shares it. If the expiry cannot be set, the steps below find the hold without one, and
-- `expire` removes it.
if redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  redis.call('SET', KEYS[3], '1', 'PX', ARGV[1])
  redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[2], '1')
  if redis.pcall('PEXPIRE', KEYS[1], ARGV[1]) == 1 then
    return 0
  end
end

--# leave_lone
-- The same for a release: nothing else has the lock's name, and nothing is unusual. Otherwise `lived` and `removed` are the
-- answers to DEL and HDEL.
local lived, removed
if ARGV[3] ~= 'withdraw' then
  lived, removed = redis.call('DEL', KEYS[4]), redis.pcall('HDEL', KEYS[1], ARGV[1])
  if removed == 1 and lived == 1 and redis.call('EXISTS', KEYS[2]) == 0 and redis.call('HLEN', KEYS[1]) == 1
    and redis.call('HDEL', KEYS[1], 'mode') == 1 then
    redis.call(ARGV[2] or 'PUBLISH', KEYS[3], '0')
    return 1
  end
end

--# ask
-- Readers of Redisson do not wait for a writer. Beside them, readers of ours come in during the first `OPEN` ms of each `PHASE` ms for
-- which the first in line waits, so that they do not starve with it. Not longer: a writer needs a moment without readers, and
-- each further one makes it rarer.
local OPEN, PHASE = 100, 200

-- For how many ms a writer that waits keeps readers out (nil: none does), and whether it waits beside readers of Redisson.
local function held_back(lock, name)
  local writers = waiting(lock, 'writers')
  local mixed = writers and is_redissons(name)
  local came = mixed and redis.call('ZRANGE', 'tower_lock_line:' .. lock.tag, 0, 0, 'WITHSCORES')[2]
  if not came then
    return writers, mixed
  end
  local rest = PHASE - math.max(0, lock.v - came / 1000) % PHASE
  return rest <= PHASE - OPEN and math.ceil(rest) or nil, true
end

-- Decides whether a read hold can be granted now; a waiting writer goes before readers without a pass. Where readers of ours
-- wait beside Redisson, they respect the turn of those outside the line: they ask sooner than a thread of Redisson wakes, which
-- would never write after a writer of ours. Returns the reason of the refusal, or nil and the function that grants. A refused
-- attempt that waits is recorded as waiting. `taken` is as in exclusive.lua.
local function ask_read(keys, args, taken)
  local name, id, life, lock = keys[1], args[2], tonumber(args[1]), {}

  local function grant()
    redis.call('SET', keys[3], 1, 'PX', args[1])
    redis.call('HSET', name, 'mode', 'read', id, 1)
    expire(name, life)
    if lock.asked then
      redis.call('ZREM', 'tower_lock_readers:' .. lock.tag, id)
      redis.call('ZREM', 'tower_lock_pass:' .. lock.tag, id)
      tidy_up(lock, 'writers', 'readers', 'pass')
    end
    return 0
  end

  if not taken and redis.call('EXISTS', name, keys[2]) == 0 then
    return nil, grant
  end
  lock = state_to_ask(keys[2])
  lock.sets = SETS
  if is_void(lock, keys[4]) then
    return 2
  end
  local left = redis.call('PTTL', name)
  local held = left == -2 and {} or redis.call('HMGET', name, 'mode', id)
  local no_lock = why_no_lock(held[1], left)
  if no_lock and not (no_lock == 4 and held[2]) then
    return no_lock
  end

  local refused, written, mixed = nil, held[1] == 'write', false
  local reads = held[2] and redis.call('EXISTS', keys[3]) == 1
  local passes = lock.asked and is_live(lock, redis.call('ZSCORE', 'tower_lock_pass:' .. lock.tag, id))
  if written then
    refused = left
  elseif not (reads or passes) then
    refused, mixed = held_back(lock, name)
  end
  if not (refused or held[1]) and lock.mixed and lock.turn == '1' and args[3] ~= '0' then
    refused = lock.ends - lock.v
  end
  if not refused then
    life = math.max(life, left)
    return nil, grant
  elseif args[3] == '0' then
    return {1, refused}
  end
  join(lock, 'readers', id)
  if passes then
    join(lock, 'pass', id)
  end
  -- While a writer of ours waits, its release wakes the readers without a pass. It waits for those with one.
  local listens = written and (passes or not has_living(lock, 'writers')) and is_redissons(name)
  ask_now(lock, mixed or listens)
  return listens and {1, refused, 1} or {1, refused}
end

--# leave
-- Ends a read hold. A reader whose timeout key has expired was gone before, but its field is still removed. Returns 1 ended,
-- 0 gone before, -1 ended and data of the application is left. `removed`, `lived`: whether the field of the hold, and its timeout,
-- were removed before (absent: it was not tried).
local function leave_read(keys, args, removed, lived)
  lived = lived or redis.call('DEL', keys[4])
  if (removed or on_hash('HDEL', keys[1], args[1])) == 0 then
    return 0
  end
  local lives, data, unknown = settle(keys[1], keys[2]:sub(17), redis.call('HLEN', keys[1]))
  if data and not lives then
    leave_data(keys[1])
  end
  if unknown or not lives then
    local publish, lock = args[2] or 'PUBLISH', state_of(keys[2])
    redis.call(publish, keys[3], '0')
    if not call_first(lock, publish) then
      tidy_up(lock, 'writers', 'readers', 'pass')
    end
  end
  return lived == 1 and data and -1 or lived
end

--# acquire
local refused, grant = ask_read(KEYS, ARGV, true)
return refused or grant()

--# release
if ARGV[3] ~= 'withdraw' then
  return leave_read(KEYS, ARGV, tonumber(removed), lived)
end
-- If that was the last pass and the lock is free, the writers that waited for it are woken.
local ended, lock = leave_read(KEYS, ARGV), state_of(KEYS[2])
redis.call('ZREM', 'tower_lock_readers:' .. lock.tag, ARGV[1])
if redis.call('ZREM', 'tower_lock_pass:' .. lock.tag, ARGV[1]) == 1 and not has_living(lock, 'pass') and redis.call('EXISTS', KEYS[1]) == 0 then
  wake_all(ARGV[2], KEYS[3])
  call_first(lock, ARGV[2])
end
return withdrawn(lock, ended, 'writers', 'readers', 'pass')
