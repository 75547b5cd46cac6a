-- Exclusive holds (PROTOCOL 1.1). Fair ones are alike once granted. Needs time.lua, hash.lua; to ask line.lua and
-- outside.lua; to leave these and the queue of fair.lua.

--# grant_free
-- This comes before the functions: in the usual case the script returns before Redis creates them, which saves time. Nothing
-- about the lock is unusual, and no token is wanted. If the expiry cannot be set, the steps below find the hold without one,
-- and `expire` removes it.
if not KEYS[4] and redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  redis.call('HSET', KEYS[1], ARGV[2], '1')
  if redis.pcall('PEXPIRE', KEYS[1], ARGV[1]) == 1 then
    return 0
  end
end

--# leave_lone
-- This comes before the functions, too: nothing else has the lock's name, nothing is unusual, and no client of Redisson listens.
-- Otherwise `removed` is the answer to HDEL, `others` how many of both keys are left, and `woken` how many subscribers were
-- woken, if the hold was alone.
local removed, others, woken
if ARGV[3] ~= 'withdraw' then
  removed = redis.pcall('HDEL', KEYS[1], ARGV[1])
  others = removed == 1 and redis.call('EXISTS', KEYS[1], KEYS[2])
  woken = others == 0 and redis.call(ARGV[2] or 'PUBLISH', KEYS[3], '0')
  if woken == 0 then
    return 1
  end
end

--# grant
-- `counter`: the fencing counter, if a token is wanted.
local function grant_exclusive(keys, args, counter)
  local token = counter and next_token(counter, args[5], args[6])
  redis.call('HSET', keys[1], args[2], 1)
  expire(keys[1], args[1])
  return token and {0, token} or 0
end

-- Returns why no exclusive hold can be there, or nil; whether this one is held already; the ms that the hash has left.
local function look_at_exclusive(name, id)
  local left = redis.call('PTTL', name)
  if left == -2 then
    return nil, false, left
  end
  local found = redis.call('HMGET', name, id, 'mode')
  local held, mode = found[1], found[2]
  if mode then
    return is_mode('mode', mode) and 3 or 5
  end
  return left == -1 and not held and 4 or nil, held, left
end

--# ask
-- Decides whether an exclusive hold can be granted now. Returns the reason of the refusal, or nil and the function that grants.
-- A refused attempt keeps its place in line. `taken`: whether a key of the lock is known to exist.
local function ask_exclusive(keys, args, taken)
  local name, id, in_line = keys[1], args[2], args[3] == '2'

  local function grant()
    return grant_exclusive(keys, args, keys[4])
  end

  if not taken and redis.call('EXISTS', name, keys[2]) == 0 then
    return nil, grant
  end
  local lock = state_to_ask(keys[2])
  if is_void(lock, keys[3]) then
    return 2
  end
  local why, held, left = look_at_exclusive(name, id)
  if why or held then
    return why, grant
  end
  local others, theirs
  if in_line then
    others, theirs = who_goes_first(lock, id, left ~= -2)
  elseif left == -2 then
    others = turn_of_line(lock)
  end
  if left == -2 and not others and not theirs then
    return nil, function()
      local granted = grant()
      enter(lock, id, in_line, lock.mixed and 'alive' or nil)
      return granted
    end
  elseif not in_line then
    return {1, others or left}
  end
  local listens = not others and (theirs or is_redissons(name))
  return refuse_in_line(lock, id, args[4] or 'PUBLISH', left == -2 and (others or theirs) or left, listens)
end

--# leave
-- Ends a hold. Returns 0 gone before; if it ended: one more than the subscribers of Redisson's channel, or -1 if data of the
-- application is left. `removed`: whether the field of the hold was removed before (absent: it was not tried); `others`: how many
-- of both keys were left then. HDEL comes first, because a script that has written may still allocate when memory is full.
local function leave_exclusive(keys, args, removed, others)
  if (removed or on_hash('HDEL', keys[1], args[1])) == 0 then
    return 0
  end
  local publish, lock = args[2] or 'PUBLISH', state_of(keys[2])
  local alone = others == 1 and lock.found or is_alone(keys[1])
  local woken = redis.call(publish, keys[3], '0')
  give_turn(lock, woken)
  local waits = call_first(lock, publish)
  if not (lock.mixed and call_head(lock, publish) or waits) then
    tidy_up(lock, 'line', 'alive')
  end
  return alone and 1 + woken or -1
end

--# acquire
local refused, grant = ask_exclusive(KEYS, ARGV, not KEYS[4])
return refused or grant()

--# release
if woken then
  give_turn(state_of(KEYS[2]), woken)
  return 1 + woken
end
local ended = leave_exclusive(KEYS, ARGV, tonumber(removed), others)
if ARGV[3] == 'withdraw' then
  local lock = state_of(KEYS[2])
  give_up_place(lock, ARGV[1], ARGV[2])
  return withdrawn(lock, ended, 'line', 'alive')
end
return ended
