-- Write holds (PROTOCOL 1.3). Needs time.lua, hash.lua, line.lua, outside.lua, read_write.lua.

--# grant_free
-- This comes before the functions: in the usual case the script returns before Redis creates them, which saves time. Nothing
-- about the lock is unusual, and no token is wanted. If the expiry cannot be set, the steps below find the hold without one,
-- and `expire` removes it.
if not KEYS[4] and redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  redis.call('HSET', KEYS[1], 'mode', 'write', ARGV[2] .. ':write', '1')
  if redis.pcall('PEXPIRE', KEYS[1], ARGV[1]) == 1 then
    return 0
  end
end

--# leave_lone
-- The same for a release: nothing else has the lock's name, nothing is unusual, and no client of Redisson listens. Otherwise
-- `removed` is the answer to HDEL, and `woken` is how many subscribers got the first message of `wake_all`, if the hold was alone.
local removed, woken
if ARGV[3] ~= 'withdraw' then
  removed = redis.pcall('HDEL', KEYS[1], ARGV[1] .. ':write')
  woken = removed == 1 and redis.call('EXISTS', KEYS[2]) == 0 and redis.call('HLEN', KEYS[1]) == 1
    and redis.call('HDEL', KEYS[1], 'mode') == 1 and redis.call(ARGV[2] or 'PUBLISH', KEYS[3], '1')
  if woken == 0 then
    return 1
  end
end

--# ask
-- Decides whether a write hold can be granted now; readers with a pass go first. Returns the reason of the refusal, or nil and
-- the function that grants. A refused attempt that waits is recorded as waiting. The last of several readers may be Redisson's.
local function ask_write(keys, args, taken)
  local name, id, in_line = keys[1], args[2], args[3] == '2'
  local lock, held = nil, {}

  local function grant()
    local token = keys[4] and next_token(keys[4], args[5], args[6])
    redis.call('HSET', name, 'mode', 'write', id .. ':write', 1)
    expire(name, args[1])
    if lock and not held[2] then
      enter(lock, id, in_line, 'writers', 'readers', 'pass')
    end
    return token and {0, token} or 0
  end

  if not taken and redis.call('EXISTS', name, keys[2]) == 0 then
    return nil, grant
  end
  lock = state_to_ask(keys[2])
  lock.sets = SETS
  if is_void(lock, keys[3]) then
    return 2
  end
  local left = redis.call('PTTL', name)
  held = left == -2 and held or redis.call('HMGET', name, 'mode', id .. ':write')
  local no_lock = why_no_lock(held[1], left)
  if no_lock and not (no_lock == 4 and held[2]) then
    return no_lock
  end
  if held[2] then
    return nil, grant
  end
  local refused, data, unknown = held[1] and left or nil, false, false
  local fields = held[1] == 'read' and redis.call('HLEN', name) or 0
  if fields > FEW then
    refused, data, unknown = settle(name, lock.tag, fields)
  end
  if data then
    return 5
  end
  local others, theirs
  refused = unknown and 1 or refused or waiting(lock, 'pass')
  if in_line then
    others, theirs = who_goes_first(lock, id, held[1])
  elseif not refused then
    others = turn_of_line(lock)
  end
  if not (refused or others or theirs) then
    return nil, grant
  elseif in_line then
    -- Beside readers with a pass, readers of Redisson come in, and the last of them tells no process of ours.
    local listens = not others and (theirs or held[1] ~= 'write' or is_redissons(name))
    return refuse_in_line(lock, id, args[4] or 'PUBLISH', refused or others or theirs, listens)
  elseif args[3] == '1' then
    join(lock, 'writers', id)
    ask_now(lock)
  end
  return {1, refused or others}
end

--# leave
-- Ends a write hold. The readers that wait now get passes: they go before the next writer. Returns 0 gone before; if it ended:
-- one more than the subscribers of Redisson's channel, or -1 if data of the application is left. `removed`: whether the field was
-- removed before (absent: it was not tried).
local function leave_write(keys, args, removed)
  if (removed or on_hash('HDEL', keys[1], args[1] .. ':write')) == 0 then
    return 0
  end
  redis.call('HDEL', keys[1], 'mode')
  local publish, lock, alone = args[2] or 'PUBLISH', state_of(keys[2]), is_alone(keys[1])
  local passed = pass(lock, publish)
  local woken = wake_all(publish, keys[3])
  give_turn(lock, woken)
  if not call_first(lock, publish) and not passed then
    tidy_up(lock, 'writers', 'readers', 'pass')
  end
  return alone and 1 + woken or -1
end

--# acquire
local refused, grant = ask_write(KEYS, ARGV, not KEYS[4])
return refused or grant()

--# release
if woken then
  redis.call(ARGV[2] or 'PUBLISH', KEYS[3], '0')
  give_turn(state_of(KEYS[2]), woken)
  return 1 + woken
end
local ended = leave_write(KEYS, ARGV, tonumber(removed))
if ARGV[3] ~= 'withdraw' then
  return ended
end
-- If it was the last waiting writer, and no writer holds the lock, the readers that waited for it are woken.
local lock = state_of(KEYS[2])
if give_up_place(lock, ARGV[1], ARGV[2]) and not has_living(lock, 'writers') then
  local writes = on_hash('HGET', KEYS[1], 'mode') == 'write'
  if not writes then
    wake_all(ARGV[2], KEYS[3])
  end
  -- Behind a writer of Redisson, they listen on another channel from now on.
  if (not writes or is_redissons(KEYS[1])) and has_living(lock, 'readers') then
    call_readers(lock, ARGV[2])
  end
end
return withdrawn(lock, ended, 'writers', 'readers', 'pass')
