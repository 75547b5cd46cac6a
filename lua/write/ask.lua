-- Decides whether a write hold can be granted now (PROTOCOL 1.3; readers with a pass go first). Returns the reason of
-- the refusal, or nil and the function that grants. A refused attempt that waits is recorded as waiting. The last of
-- several readers may be Redisson's.
-- keys, args   as write/acquire.lua
-- taken    whether a key of the lock is known to exist
-- Needs    write/grant.lua, now.lua, waiters.lua, settle.lua, line.lua, outside.lua, place.lua and what they need
local function ask_write(keys, args, taken)
  local name, alive, line, id, lease = keys[1], keys[3], keys[5], args[2], tonumber(args[1])
  local field, life, waits, in_line = id .. ':write', lease, false, args[3] ~= '0' and args[4] == '1'

  local function grant()
    local granted = grant_write(keys, args, life)
    if waits then
      enter(line, alive, keys[6], id, lease, in_line)
    end
    return granted
  end

  if not taken and is_free_write(keys) then
    return nil, grant
  end
  if redis.call('EXISTS', keys[2]) == 1 then
    return 2
  end
  local held, left = redis.call('HMGET', name, 'mode', field), redis.call('PTTL', name)
  local no_lock = why_no_lock(held[1], left)
  if no_lock and not (no_lock == 4 and held[2]) then
    return no_lock
  end
  if held[2] then
    life = math.max(lease, left)
    return nil, grant
  end
  local refused, data, unknown = held[1] and left or nil, false, false
  local fields = held[1] == 'read' and redis.call('HLEN', name) or 0
  if fields > FEW then
    refused, data, unknown = settle(name, tag_of(alive), fields)
  end
  if data then
    return 5
  end
  local now, others, theirs, dropped = now_ms(), nil, nil, nil
  refused = unknown and 1 or refused or waiting(keys[4], now)
  if in_line then
    others, theirs, dropped = who_goes_first(line, alive, keys[6], id, now, held[1])
  elseif not refused then
    others = turn_of_line(line, alive, keys[6], now)
  end
  if not (refused or others or theirs) then
    waits = true
    return nil, grant
  elseif in_line then
    -- Beside readers with a pass, readers of Redisson come in, and the last of them wakes no client of ours.
    local listens = not others and (theirs or held[1] ~= 'write' or is_redissons(name))
    local soonest = refused or others or theirs
    return refuse_in_line(line, alive, id, args[3], args[5] or 'PUBLISH', now, dropped, soonest, listens)
  elseif args[3] ~= '0' then
    join(alive, id, args[3], now)
  end
  return {1, refused or others}
end
