-- The server's time, and what is unusual about a lock.
--
-- One key of ours per lock, `tower_lock_busy:<tag>`, is there while anything about the lock is unusual: someone waits for it,
-- someone has a turn, a withdrawn attempt may still arrive. Without it no other key of ours matters, so that a script looks at
-- this one only. With it, a script derives the names of the others from it. Its fields:
--   asked  the server's ms at the last question of a waiter; late  how many ms the clock of those who wait is behind
--   void   until when a tombstone may be there;               turn  there because of a turn

-- How many ms a waiter lives without a question: WAITER_LIVENESS in Rust.
local LIVENESS = 3000
-- The silence after which the clock of those who wait stands still. A living waiter asks every second.
local SILENCE = 1500
-- For how many ms the keys of waiters are kept after the last question. A longer stall of the server ends all places.
local KEPT = 8000

-- The server's time in milliseconds. No script trusts a client's clock.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The names of our other keys: `lock.line` is `tower_lock_line:<tag>`. The tag is the lock's name, with the hash tag.
local function names(busy)
  return setmetatable({busy = busy, tag = busy:sub(17)}, {__index = function(lock, name)
    local key = 'tower_lock_' .. name .. ':' .. lock.tag
    rawset(lock, name, key)
    return key
  end})
end

-- Extends the life of a key to `ms` at least.
local function keep(key, ms)
  redis.call('PEXPIRE', key, string.format('%.0f', math.max(ms, redis.call('PTTL', key))))
end

-- The time of those who wait. It goes with the server's clock while someone asks. It stands still in a silence: if the server
-- stood still, no waiter could ask, and none is dead because of that. And it never steps back with the server's clock, so that
-- no dead waiter lives on. Returns it; until when there may be a tombstone, or nil.
local function waiters_time(lock, now)
  local asked, late, void = unpack(redis.call('HMGET', lock.busy, 'asked', 'late', 'void'))
  if not asked then
    return now, void
  end
  local silence = now - asked
  return now - late - (silence < 0 and silence or math.max(0, silence - SILENCE)), void
end

-- A waiter asks, at the time `v` of those who wait.
local function asked(lock, now, v)
  redis.call('HSET', lock.busy, 'asked', string.format('%.0f', now), 'late', string.format('%.0f', now - v))
  keep(lock.busy, KEPT)
end

-- Whether an attempt was withdrawn before it arrived. `attempt` is empty or absent if its id is that of the hold.
local function is_void(lock, void, attempt, field)
  local id = attempt and attempt ~= '' and attempt or field
  return void and redis.call('EXISTS', lock.void .. ':' .. id) == 1
end

-- Removes the key if nothing is unusual any more. `void`: until when there may be a tombstone, or nil.
local function tidy_up(lock, now, void)
  if redis.call('EXISTS', lock.writers, lock.readers, lock.pass, lock.alive) == 0 then
    local turn = redis.call('PTTL', lock.outside)
    if void and tonumber(void) > now then
      redis.call('HDEL', lock.busy, 'asked', 'late')
    elseif turn > 0 then
      redis.call('PEXPIRE', lock.busy, turn)
    else
      redis.call('DEL', lock.busy)
    end
  end
end

-- The end of a withdrawal: leaves a tombstone for a copy of the attempt that may still arrive (ARGV: 4 its life in ms, 0: none is
-- needed, 5 its name). Returns 1 ended, 0 nothing was held.
local function withdrawn(lock, now, ended)
  local _, void = waiters_time(lock, now)
  if ARGV[4] ~= '0' then
    redis.call('SET', lock.void .. ':' .. ARGV[5], 1, 'PX', ARGV[4])
    void = string.format('%.0f', math.max(tonumber(void or 0), now + ARGV[4]))
    redis.call('HSET', lock.busy, 'void', void)
    keep(lock.busy, tonumber(ARGV[4]))
  end
  tidy_up(lock, now, void)
  return ended == 0 and 0 or 1
end
