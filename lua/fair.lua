-- Fair holds (PROTOCOL 1.2). Needs time.lua, hash.lua, line.lua, queue.lua; to ask the grant of exclusive.lua.

--# leave_lone
-- This comes before the functions: in the usual case the script returns before Redis creates them, which saves time. Nothing
-- else has the lock's name, nothing is unusual, no one queues, and no client of Redisson listens. Otherwise `removed` is the
-- answer to HDEL, and `others` how many of these keys are left.
local removed, others
if ARGV[3] ~= 'withdraw' then
  removed = redis.pcall('HDEL', KEYS[1], ARGV[1])
  others = removed == 1 and redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[4])
  if others == 0 then
    redis.call(ARGV[2] or 'PUBLISH', KEYS[3], '0')
    return 1
  end
end

--# grant_free
-- The same for a question. Waiters of Redisson leave no trace but the queue.
if not KEYS[5] and redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3]) == 0 then
  redis.call('HSET', KEYS[1], ARGV[2], '1')
  if redis.pcall('PEXPIRE', KEYS[1], ARGV[1]) == 1 then
    return 0
  end
end

--# ask
-- Decides whether an exclusive hold can be granted to the first in the queue now. Returns the reason of the refusal, or nil and
-- the function that grants. A refused attempt that waits gets a place in the queue. `taken` is as in exclusive.lua.
local function ask_fair(keys, args, taken)
  local name, id = keys[1], args[2]

  local function grant()
    return grant_exclusive(keys, args, keys[5])
  end

  if not taken and redis.call('EXISTS', name, keys[2], keys[3]) == 0 then
    return nil, grant
  end
  local lock = state_to_ask(keys[2])
  if is_void(lock, keys[4]) then
    return 2
  end
  local why, held, left = look_at_exclusive(name, id)
  if why or held then
    return why, grant
  end
  local _, timeouts = queue_of(lock)
  local head, lives, blocks, dropped, more = first_in_queue(lock)
  local own_lives, own_blocks = lives, blocks
  if head and head ~= id then
    own_lives, own_blocks = redis.call('ZSCORE', 'tower_lock_alive:' .. lock.tag, id), redis.call('ZSCORE', timeouts, id)
  end
  if line_up_again(lock, id, own_blocks, own_lives) then
    head, lives, own_blocks, dropped, more = first_in_queue(lock)
  end
  if left == -2 and not more and (not head or head == id) then
    return nil, function()
      local granted = grant()
      forget(lock, id)
      is_shared(lock)
      tidy_up(lock, 'alive', 'line')
      return granted
    end
  end
  if left == -2 then
    -- A waiter of Redisson may have missed its turn: up to version 3.31 it sleeps until a message arrives, and no
    -- other message will arrive.
    if dropped or not lives then
      redis.call(args[4] or 'PUBLISH', 'redisson_lock__channel:' .. lock.tag .. ':' .. head, '0')
    end
    -- The lock waits for its next holder: as long as that waiter counts as alive, or a second for a waiter of
    -- Redisson. If there may be more dead heads, the next question drops them.
    left = more and 1 or lives and lives - lock.v or 1000
  end
  if args[3] ~= '0' then
    line_up(lock, id, head, lives, own_blocks, own_lives)
  end
  return {1, left}
end

--# leave
-- Ends a hold, and wakes the first in the queue. For an expired hold, Redisson answers that it was released. This answers that
-- it was gone, and also wakes the first in the queue. Returns 1 ended, 0 gone before, -1 ended and other data is left.
local function leave_fair(keys, args, removed, others)
  removed = removed or on_hash('HDEL', keys[1], args[1])
  if removed == 0 and (redis.call('EXISTS', keys[1]) == 1 or redis.call('EXISTS', keys[4]) == 0) then
    return 0
  end
  local lock = state_of(keys[2])
  local waits, queued = wake(lock, keys[3], args[2] or 'PUBLISH')
  if not waits then
    tidy_up(lock, 'line', 'alive')
  end
  return removed == 0 and 0 or (others == 2 and lock.found and queued or is_alone(keys[1])) and 1 or -1
end

--# acquire
local refused, grant = ask_fair(KEYS, ARGV, not KEYS[5])
return refused or grant()

--# release
if ARGV[3] ~= 'withdraw' then
  return leave_fair(KEYS, ARGV, tonumber(removed), others)
end
-- Gives up the hold and the place in the queue (PROTOCOL 1.2, acquireFailed). The scores of the waiters behind are near and do
-- not change.
local lock, ended = state_of(KEYS[2]), on_hash('HDEL', KEYS[1], ARGV[1])
if ended == 1 then
  is_alone(KEYS[1])
end
forget(lock, ARGV[1])
is_shared(lock)
if ended == 1 or redis.call('EXISTS', KEYS[1]) == 0 then
  wake(lock, KEYS[3], ARGV[2])
end
return withdrawn(lock, ended, 'line', 'alive')
