-- Lists holders: some holds of the lock's hash, as `{field, count}`; the kind of lock, none if the hash is not a lock;
-- whether there are more holds.
-- Needs    holds.lua, sample.lua
local MOST = 100

local function holders(name)
  local left = redis.call('HLEN', name)
  local fields, mode = {}, nil
  if left <= MOST + 1 then
    fields = redis.call('HGETALL', name)
  else
    fields = redis.call('HRANDFIELD', name, MOST, 'WITHVALUES')
    mode = redis.call('HGET', name, 'mode')
  end
  local found = {}
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    local count = hold_count(field, value)
    if field == 'mode' then
      mode = value
    elseif count then
      found[#found + 1] = {field, count}
    else
      return found, nil
    end
  end
  local kind = not mode and 'exclusive' or is_mode('mode', mode) and mode or nil
  return found, kind, left > MOST + 1
end
