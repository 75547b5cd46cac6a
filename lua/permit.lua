-- Permits (`Permit`; stock.lua says how they are kept). Needs time.lua, hash.lua, line.lua, outside.lua, stock.lua.

--# grant_free
-- This comes before most functions: in the usual case the script returns before Redis creates them, which saves time. No
-- permit is held, nothing is unusual, and there is no number under the name, or one that attempts have left there: it expires.
if redis.call('EXISTS', KEYS[2], KEYS[3]) == 0 then
  local free, limit = redis.call('GET', KEYS[1]), 'tower_lock_limit:' .. KEYS[3]:sub(17)
  local named = is_stock(free) and redis.call('GET', limit)
  if not free or named and named ~= 'set' and redis.call('PTTL', KEYS[1]) >= 0 then
    local life = ARGV[1] + 86400000 -- as IDLE
    redis.call('SET', KEYS[1], ARGV[4] - 1, 'PX', life)
    redis.call('SET', limit, ARGV[4], 'PX', life)
    redis.call('ZADD', KEYS[2], now_ms() + ARGV[1], ARGV[2])
    redis.call('PEXPIRE', KEYS[2], life)
    return 0
  end
end

--# leave_lone
-- The same for a release: nothing is unusual, and no client of Redisson listens. Otherwise `woken` is how many subscribers were
-- woken, and `lived` is whether the permit had not expired.
local woken, lived
if ARGV[3] ~= 'withdraw' and redis.call('EXISTS', KEYS[3]) == 0 then
  local free, ends = redis.pcall('GET', KEYS[1]), redis.pcall('ZSCORE', KEYS[2], ARGV[1])
  if is_stock(free) and type(ends) == 'string' then
    free = free + 1
    redis.call('ZREM', KEYS[2], ARGV[1])
    redis.call('SET', KEYS[1], free, 'KEEPTTL')
    woken = free > 0 and redis.call(ARGV[2] or 'PUBLISH', KEYS[4], free) or 0
    lived = tonumber(ends) > now_ms()
    if woken == 0 then
      return lived and 1 or 0
    end
  end
end

--# ask
-- How many permits are free for an attempt that names `limit` and has none yet; whether its limit counts from now on. Or nil and
-- the answer of the script, if the key has no permits or another limit counts.
local function free_for(counter, lock, limit, free, taken, lapsed)
  if not free then
    return limit - taken, true
  elseif redis.call('PTTL', counter) < 0 then
    return free, false
  end
  local named = redis.call('GET', 'tower_lock_limit:' .. lock.tag)
  if taken == 0 then
    if lapsed == 0 and not named and free ~= limit then
      return nil, 5
    end
    return limit, true
  elseif free + taken ~= limit and free + taken == tonumber(named or free + taken) then
    return nil, {6, free + taken}
  end
  return free, false
end

-- Returns why no permit can be granted now, or nil and the function that grants. A refused attempt keeps its place in line.
local function ask_permit(keys, args)
  local counter, held, lock = keys[1], keys[2], state_to_ask(keys[3])
  local id, in_line, limit, publish, now = args[2], args[3] == '2', tonumber(args[4]), args[5] or 'PUBLISH', lock.now
  if is_void(lock, keys[4]) then
    return 2
  end
  local free, lapsed = take_stock(counter, held, now)
  if free == false then
    return 5
  end
  local ends, taken, names_limit = redis.call('ZSCORE', held, id), redis.call('ZCARD', held), false
  if not ends then
    free, names_limit = free_for(counter, lock, limit, free, taken, lapsed)
    if not free then
      return names_limit
    end
  end

  local others, theirs
  if not ends and in_line then
    others, theirs = who_goes_first(lock, id, free <= 0)
  elseif not ends and free > 0 then
    others = turn_of_line(lock)
  end
  if not ends and (free <= 0 or others or theirs) then
    local left = free <= 0 and next_free(held, free, now) or others or theirs
    if not in_line then
      return {1, left}
    end
    local listens = not others and (theirs or are_redissons(held))
    local refused = refuse_in_line(lock, id, publish, left, listens)
    if listens then -- Redisson's permits do not extend the string that keeps the limit of ours.
      outlive(counter, held, lock, now)
    end
    return refused
  end

  return nil, function()
    if not ends then
      free = free - 1
      redis.call('SET', counter, free, unpack(names_limit and {'PX', IDLE} or {'KEEPTTL'}))
      if names_limit then
        redis.call('SET', 'tower_lock_limit:' .. lock.tag, limit, 'PX', IDLE)
      end
    end
    redis.call('ZADD', held, math.max(now + args[1], tonumber(ends or 0)), id)
    outlive(counter, held, lock, now)
    if (free or 0) > 0 and lapsed > 0 then
      redis.call(publish, 'redisson_sc:' .. lock.tag, free)
    end
    if (free or 0) > 0 and lock.asked then
      leave_line(lock, id)
      call_first(lock, publish)
    end
    enter(lock, id, ends or in_line)
    return 0
  end
end

--# leave
-- Gives a permit back. An expired permit was gone before, but is also given back, as Redisson does. Returns 0 gone before; if it
-- ended: one more than the subscribers of Redisson's channel. ZREM runs even without a score: a server that refuses writes may have
-- been replaced, and must not say that the permit is gone.
local function leave_permit(keys, args)
  local ends = on_hash('ZSCORE', keys[2], args[1])
  if on_hash('ZREM', keys[2], args[1]) == 0 then
    return 0
  end
  local publish, lock = args[2] or 'PUBLISH', state_of(keys[3])
  local woken = give_back(keys[1], lock, publish, 1)
  give_turn(lock, woken)
  if not call_first(lock, publish) then
    tidy_up(lock, 'line')
  end
  return tonumber(ends) > lock.now and 1 + woken or 0
end

--# acquire
local refused, grant = ask_permit(KEYS, ARGV)
return refused or grant()

--# release
if woken then
  give_turn(state_of(KEYS[3]), woken)
  return lived and 1 + woken or 0
end
local ended = leave_permit(KEYS, ARGV)
if ARGV[3] == 'withdraw' then
  local lock = state_of(KEYS[3])
  give_up_place(lock, ARGV[1], ARGV[2])
  return withdrawn(lock, ended, 'line')
end
return ended
