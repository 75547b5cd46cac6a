-- Does something with a field of a hash. Where something else than a hash stands under the name the answer is 0, as if
-- the field was not there: whatever it is, it carries no hold, and keeps nobody from leaving.
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
