-- An attempt's place in line.
-- Needs    now.lua, waiters.lua, line.lua, outside.lua

-- Who goes before an attempt in line. Returns for how many ms an earlier id may block it at most, or nil; for how many ms
-- waiters outside the line have their turn, or nil; whether a dead id was dropped. `taken`: the lock is held.
local function who_goes_first(line, alive, outside, id, now, taken)
  local first, lives, dropped = first_in_line_of_ours(line, alive, now)
  if first and first ~= id then
    return math.max(1, lives - now), nil, dropped
  end
  return nil, outside_turn(outside, taken), dropped
end

-- Adds the attempt at the end of the line, or keeps its place.
local function stand_in_line(line, alive, id, liveness, now)
  local lives = redis.call('ZSCORE', alive, id)
  if tonumber(lives or 0) <= now or not redis.call('ZSCORE', line, id) then
    local last = redis.call('ZREVRANGE', line, 0, 0, 'WITHSCORES')[2] or 0
    redis.call('ZADD', line, string.format('%.0f', math.max(now * 1000, last + 1)), id)
  end
  join(alive, id, liveness, now)
  redis.call('PEXPIRE', line, liveness)
end

-- Refuses an attempt for `left` ms; it keeps its place. If `listens`, it is first in line and may wait for a hold of
-- Redisson.
local function refuse_in_line(line, alive, id, liveness, publish, now, dropped, left, listens)
  stand_in_line(line, alive, id, liveness, now)
  if dropped then
    call_first(line, alive, publish)
  end
  return listens and {1, left, 1} or {1, left}
end

-- Whether a living id is in line. Looks at as many as one script drops, and drops none.
local function is_in_line(line, alive, now)
  for _, id in ipairs(redis.call('ZRANGE', line, 0, DROPS_IN_LINE)) do
    if tonumber(redis.call('ZSCORE', alive, id) or 0) > now then
      return true
    end
  end
  return false
end

-- For how many ms an attempt without a place is refused although the lock is free, because ids wait in line and have their
-- turn; nil if it may take the lock.
local function turn_of_line(line, alive, outside, now)
  if redis.call('GET', outside) == '2' and is_in_line(line, alive, now) then
    return math.max(1, redis.call('PTTL', outside))
  end
end

-- An attempt is granted a hold, and gives up its place. If it has none and ids wait in line, they have the next turn. A day
-- is longer than nearly any hold lasts, however often it is renewed.
local function enter(line, alive, outside, id, lease, has_place)
  leave_line(line, alive, id)
  if not has_place and is_in_line(line, alive, now_ms()) then
    redis.call('SET', outside, 0, 'PX', math.max(lease, 86400000))
  end
end
