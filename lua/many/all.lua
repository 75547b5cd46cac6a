-- Grants several holds on different keys, or none: the script grants only after the answer to the last question.
-- KEYS     as many/next.lua
-- ARGV     as many/next.lua
-- Returns  {0, {the answer of the script of each mode}} granted, {i, the answer of the script of its mode} the i-th
--          is refused
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
