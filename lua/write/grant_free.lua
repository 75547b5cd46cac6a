-- The usual case comes first: Redis creates the functions below whenever the script runs.
-- Needs    write/grant.lua
if is_free_write(KEYS) then
  return grant_write(KEYS, ARGV, ARGV[1])
end
