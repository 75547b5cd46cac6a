-- The usual case comes first: Redis creates the functions below whenever the script runs.
-- Needs    exclusive/grant.lua
if is_free_exclusive(KEYS) then
  return grant_exclusive(KEYS, ARGV)
end
