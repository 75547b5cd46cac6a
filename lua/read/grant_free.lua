-- The usual case comes first: Redis creates the functions below whenever the script runs.
-- Needs    read/grant.lua
if is_free_read(KEYS) then
  return grant_read(KEYS, ARGV, 'read', ARGV[1])
end
