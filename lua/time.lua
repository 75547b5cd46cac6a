-- The server's time, and what is unusual about a lock.
--
-- One key of ours per lock, `tower_lock_busy:<tag>`, is there while anything about the lock is unusual: someone waits for it,
-- someone has a turn, a withdrawn attempt may still arrive. Without it no other key of ours matters, so that a script looks at
-- this one only. With it, a script derives the names of the others from it. It is a string of six words, because it is read by
-- every script that finds it, and a hash takes three times as long to read:
--   asked  the server's ms at the last question of a waiter;      late  how many ms the clock of those who wait is behind
--   void   until when a tombstone may be there
--   turn   whose turn it is (outside.lua), or 0; `ends` until when, by the clock of those who wait
--   mixed  1 if one of ours may have a place in the fair queue, or a reader of ours has waited beside Redisson

--# now
-- How many ms a waiter lives without a question: WAITER_LIVENESS in Rust.
local LIVENESS = 3000
-- The silence after which the clock of those who wait stands still. A living waiter asks every second.
local SILENCE = 1200
-- For how many ms the keys of waiters are kept after the last question. A longer silence ends all places.
local KEPT = 8000
local KEPT_TEXT = '8000'

-- The server's time in milliseconds, and the microseconds after it. No script trusts a client's clock.
local function now_ms()
  local time = redis.call('TIME')
  local micros = time[2] % 1000
  return time[1] * 1000 + (time[2] - micros) / 1000, micros
end

--# state
-- What is unusual about a lock: the six words (false: none, or over), and whether the key is there; the `tag` of its other keys,
-- which is the lock's name with the hash tag; `now` and `micros`, the server's time, and `v`, the time of those who wait. That
-- clock goes with the server's while someone asks, and stands still in a silence: if the server stood still, no waiter could
-- ask, and none is dead because of that. It never steps back with the server's, so that no dead waiter lives on.
local function state_of(busy)
  local now, micros = now_ms()
  local found = redis.call('GET', busy)
  local lock = {busy = busy, tag = busy:sub(17), now = now, micros = micros, v = now, found = found,
    asked = false, late = 0, void = false, turn = false, ends = 0, mixed = false, first = false, own = false, dropped = false}
  if found then
    local asked, late, void, turn, ends, mixed = found:match('^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
    local silence = now - asked
    lock.late, lock.v = late, now - late - math.min(silence, 0)
    if silence < KEPT then
      lock.asked, lock.v = tonumber(asked), lock.v - math.max(silence - SILENCE, 0)
    end
    lock.void = void ~= '0' and tonumber(void) > now and tonumber(void)
    -- Such a turn is short, and over after a silence in which the clock stood still.
    if turn ~= '0' and (turn == '3' or tonumber(ends) > lock.v and (not lock.asked or silence < SILENCE)) then
      lock.turn, lock.ends = turn, tonumber(ends)
    end
    lock.mixed = mixed == '1'
  end
  return lock
end

-- Writes what is unusual. The key lives as long as the last of it.
local function keep(lock)
  local words = (lock.asked or 0) .. ' ' .. lock.late .. ' ' .. (lock.void or 0) .. ' ' .. (lock.turn or 0) .. ' '
    .. lock.ends .. ' ' .. (lock.mixed and 1 or 0)
  local life = lock.asked and lock.asked + KEPT - lock.now or lock.turn and lock.ends - lock.v or 1
  lock.found = true
  redis.call('SET', lock.busy, words, 'PX', lock.void and math.max(life, lock.void - lock.now) or life)
end

-- Whether an id with this score counts as waiting. A score that is too high comes from a clock that has stepped back.
local function is_live(lock, score)
  local rest = score and score - lock.v
  return rest and rest > 0 and rest <= KEPT
end

-- Removes the key if nothing is unusual any more, which is so if none of these other keys exists.
local function tidy_up(lock, ...)
  if not lock.found or lock.void then
    return
  end
  local others = {}
  for i, kind in ipairs({...}) do
    others[i] = 'tower_lock_' .. kind .. ':' .. lock.tag
  end
  if redis.call('EXISTS', unpack(others)) > 0 then
    return
  end
  if lock.turn and lock.turn ~= '3' then
    -- It ends with the turn. So it must not say that someone has just asked: the next one to ask would not prolong it.
    lock.asked = false
    keep(lock)
  else
    redis.call('DEL', lock.busy)
  end
end

--# ask
-- `state_of` for a question. If the server's clock has stepped back, the clock of those who wait goes on from here. Otherwise it
-- would stand still until the server's has caught up, unless a waiter asks, and a dead one would hold back those who do not wait.
local function state_to_ask(busy)
  local lock = state_of(busy)
  if lock.asked and lock.asked > lock.now then
    lock.asked, lock.late = lock.now, lock.now - lock.v
    keep(lock)
  end
  return lock
end

-- What a question writes may be so many ms old, so that not each question about a hot lock writes it.
local SOON = 100

-- Whether the id with this score has asked just before.
local function has_just_asked(lock, score)
  return is_live(lock, score) and score - lock.v > LIVENESS - SOON
end

-- A waiter asks; `mixed` is the word of that name. The keys of all waiters live on: those that a lock of its kind may have
-- (`sets`, if it is not an exclusive one). A new one gets its expiry where it is made.
local function ask_now(lock, mixed)
  local since = lock.now - (lock.asked or 0)
  if since >= SOON or mixed and not lock.mixed then
    for _, kind in ipairs(lock.asked and (lock.sets or {'line', 'writers'}) or {}) do
      redis.call('PEXPIRE', 'tower_lock_' .. kind .. ':' .. lock.tag, KEPT_TEXT)
    end
    lock.asked, lock.late, lock.mixed = lock.now, lock.now - lock.v, mixed or lock.mixed
    keep(lock)
  end
end

-- Whether an attempt was withdrawn before it arrived. Its tombstone is a key of the script, although a script could derive the
-- name: it is nearly always absent, so that in a Cluster no question is answered from one half of a slot that is moving.
local function is_void(lock, tombstone)
  return lock.void and redis.call('EXISTS', tombstone) == 1
end

--# withdraw
-- The end of a withdrawal: leaves a tombstone, the last key, for a copy of the attempt that may still arrive (ARGV: 4 its life in
-- ms, 0: none is needed). The other arguments are those of `tidy_up`. Returns 1 ended, 0 nothing was held.
local function withdrawn(lock, ended, ...)
  if ARGV[4] ~= '0' then
    local tombstone = KEYS[#KEYS]
    -- A script that has deleted may still write when memory is full.
    redis.call('DEL', tombstone)
    redis.call('SET', tombstone, 1, 'PX', ARGV[4])
    -- By the time after it: it is announced for at least as long as it lasts.
    lock.void = math.max(lock.void or 0, now_ms() + ARGV[4] + 1)
    keep(lock)
  end
  tidy_up(lock, ...)
  return ended == 0 and 0 or 1
end
