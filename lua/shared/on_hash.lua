-- Runs a command on a field of a hash. If the key is not a hash, the answer is 0, as for an absent field: the key
-- carries no hold, and a release must not fail because of it.
local function on_hash(command, name, field)
  local answer = redis.pcall(command, name, field)
  if type(answer) ~= 'table' then
    return answer
  end
  if not string.find(answer.err, 'WRONGTYPE', 1, true) then
    error(answer.err)
  end
  return 0
end
