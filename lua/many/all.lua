-- Grants several holds on different keys, or none: only when the last question is answered is anything granted.
-- KEYS     as many/next.lua
-- ARGV     as many/next.lua
-- Returns  {0, {what each script of their modes returns}} granted, {i, what the script of its mode returns} the i-th
--          stood back
-- Needs    many/ask_next.lua and what it needs
local grants = {}
while is_next() do
  local refused, grant = ask_next()
  if refused then
    return {#grants + 1, refused}
  end
  grants[#grants + 1] = grant
end
for i = 1, #grants do
  grants[i] = grants[i]()
end
return {0, grants}
