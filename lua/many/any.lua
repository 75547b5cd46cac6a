-- Grants one of several holds on different keys: the first that is free.
-- KEYS     as many/next.lua
-- ARGV     as many/next.lua
-- Returns  {i, the answer of the script of its mode} the i-th is granted, or cannot be asked for; {0, {1, ms}} all
--          are refused, for this time at least
-- Needs    many/ask_next.lua and what it needs
local asked, soonest = 0, nil
while is_next() do
  asked = asked + 1
  local refused, grant = ask_next()
  if not refused then
    return {asked, grant()}
  end
  if type(refused) ~= 'table' or refused[1] ~= 1 then
    return {asked, refused}
  end
  soonest = math.min(soonest or refused[2], refused[2])
end
return {0, {1, soonest}}
