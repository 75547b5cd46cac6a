-- Decides whether an exclusive hold can be granted now (PROTOCOL 1.1). Returns the reason of the refusal, or nil and the
-- function that grants. A refused attempt keeps its place in line.
-- keys     as exclusive/acquire.lua
-- args     as exclusive/acquire.lua
-- taken    whether a key of the lock is known to exist
-- Needs    exclusive/grant.lua, now.lua, holds.lua, outside.lua, place.lua and what it needs
local function ask_exclusive(keys, args, taken)
  local name, alive, line, outside, id = keys[1], keys[3], keys[4], keys[5], args[2]

  local function grant()
    return grant_exclusive(keys, args)
  end

  if not taken and is_free_exclusive(keys) then
    return nil, grant
  end
  if redis.call('EXISTS', keys[2]) == 1 then
    return 2
  end
  local held = redis.call('HMGET', name, id, 'mode')
  if held[2] then
    return is_mode('mode', held[2]) and 3 or 5
  end
  if held[1] then
    return nil, grant
  end
  local left = redis.call('PTTL', name)
  if left == -1 then
    return 4
  end
  local now, others, theirs, dropped = now_ms(), nil, nil, false
  if args[3] ~= '0' then
    others, theirs, dropped = who_goes_first(line, alive, outside, id, now, left ~= -2)
  elseif left == -2 then
    others = turn_of_line(line, alive, outside, now)
  end
  if left == -2 and not others and not theirs then
    return nil, function()
      local granted = grant()
      enter(line, alive, outside, id, args[1], args[3] ~= '0')
      return granted
    end
  end
  if args[3] == '0' then
    return {1, others or left}
  end
  local listens = not others and (theirs or is_redissons(name))
  left = left == -2 and (others or theirs) or left
  return refuse_in_line(line, alive, id, args[3], args[4] or 'PUBLISH', now, dropped, left, listens)
end
