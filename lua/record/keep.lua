-- Stores a record under a hold, if the hold exists; the release that follows in the same script reports whether it
-- did.
-- KEYS     as the release has them; last: record
-- ARGV     as the release has them; last three: field of the hold, the record, ms for which it is kept
-- Needs    on_hash.lua
if on_hash('HEXISTS', KEYS[1], ARGV[#ARGV - 2]) == 1 then
  -- When memory is full, a script that has written may still allocate. So PEXPIRE comes first; it writes only what SET
  -- overwrites.
  redis.call('PEXPIRE', KEYS[#KEYS], ARGV[#ARGV])
  redis.call('SET', KEYS[#KEYS], ARGV[#ARGV - 1], 'PX', ARGV[#ARGV])
end
