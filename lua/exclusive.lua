-- Exclusive holds (PROTOCOL 1.1). Fair ones are alike once granted. Needs time.lua, hash.lua, token.lua; to ask line.lua and
-- outside.lua; to leave these and the queue of fair.lua.

--# grant_free
-- This comes before the functions: in the usual case the script returns before Redis creates them, which saves time. Nothing
-- about the lock is unusual, and no token is wanted. If the expiry cannot be set, the steps below find the hold without one,
-- and `expire` removes it.
if not KEYS[3] and redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  redis.call('HSET', KEYS[1], ARGV[2], '1')
  if redis.pcall('PEXPIRE', KEYS[1], ARGV[1]) == 1 then
    return 0
  end
end

--# leave_lone
-- This comes before the functions, too: nothing else has the lock's name, nothing is unusual, and no client of Redisson listens.
-- Otherwise `removed` is the answer to HDEL, and `woken` is how many subscribers were woken, if the hold was alone.
local removed, woken
if ARGV[3] ~= 'withdraw' then
  removed = redis.pcall('HDEL', KEYS[1], ARGV[1])
  woken = removed == 1 and redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 and redis.call(ARGV[2] or 'PUBLISH', KEYS[3], '0')
  if woken == 0 then
    return 1
  end
end

--# grant
-- `counter`: the fencing counter, if a token is wanted.
local function grant_exclusive(keys, args, counter)
  local token = counter and next_token(counter, args[6], args[7])
  redis.call('HSET', keys[1], args[2], 1)
  expire(keys[1], args[1])
  return token and {0, token} or 0
end

-- Returns why no exclusive hold can be there, or nil; whether this one is held already; the ms that the hash has left.
local function look_at_exclusive(name, id)
  local held, left = redis.call('HMGET', name, id, 'mode'), redis.call('PTTL', name)
  if held[2] then
    return is_mode('mode', held[2]) and 3 or 5
  end
  return left == -1 and not held[1] and 4 or nil, held[1], left
end

--# ask
-- Decides whether an exclusive hold can be granted now. Returns the reason of the refusal, or nil and the function that grants.
-- A refused attempt keeps its place in line.
local function ask_exclusive(keys, args)
  local name, lock, id, in_line = keys[1], names(keys[2]), args[2], args[3] == '2'

  local function grant()
    return grant_exclusive(keys, args, keys[3])
  end

  if redis.call('EXISTS', name, lock.busy) == 0 then
    return nil, grant
  end
  local now = now_ms()
  local v, void = waiters_time(lock, now)
  if is_void(lock, void, args[4], id) then
    return 2
  end
  local why, held, left = look_at_exclusive(name, id)
  if why or held then
    return why, grant
  end
  local others, theirs, dropped
  if in_line then
    others, theirs, dropped = who_goes_first(lock, id, v, left ~= -2)
  elseif left == -2 then
    others = turn_of_line(lock, v)
  end
  if left == -2 and not others and not theirs then
    return nil, function()
      local granted = grant()
      enter(lock, id, args[1], now, v, void, in_line)
      return granted
    end
  elseif not in_line then
    return {1, others or left}
  end
  local listens = not others and (theirs or is_redissons(name))
  left = left == -2 and (others or theirs) or left
  return refuse_in_line(lock, id, now, v, args[5] or 'PUBLISH', dropped, left, listens)
end

--# leave
-- Ends a hold. Returns 0 gone before; if it ended: one more than the subscribers of Redisson's channel, or -1 if data of the
-- application is left. `removed`: whether the field of the hold was removed before (absent: it was not tried). HDEL comes
-- first, because a script that has written may still allocate when memory is full.
local function leave_exclusive(keys, args, removed)
  if (removed or on_hash('HDEL', keys[1], args[1])) == 0 then
    return 0
  end
  local alone, publish, lock, now = is_alone(keys[1]), args[2] or 'PUBLISH', names(keys[2]), now_ms()
  local woken, v, void = redis.call(publish, keys[3], '0'), waiters_time(lock, now)
  give_turn(lock, woken)
  local waits = call_first(lock, v, publish)
  call_head(lock, now, v, publish)
  if not waits then
    tidy_up(lock, now, void)
  end
  return alone and 1 + woken or -1
end

--# acquire
local refused, grant = ask_exclusive(KEYS, ARGV)
return refused or grant()

--# release
if woken then
  give_turn(names(KEYS[2]), woken)
  return 1 + woken
end
local ended = leave_exclusive(KEYS, ARGV, tonumber(removed))
if ARGV[3] == 'withdraw' then
  local lock, now = names(KEYS[2]), now_ms()
  give_up_place(lock, ARGV[1], waiters_time(lock, now), ARGV[2])
  return withdrawn(lock, now, ended)
end
return ended
