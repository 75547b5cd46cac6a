-- Remembers what was done under a hold, if the hold is there; the release that follows in the same script says whether
-- it was.
-- KEYS     as the release has them; last: record
-- ARGV     as the release has them; last three: field of the hold, the record, ms for which it is remembered
-- Needs    on_hash.lua
if on_hash('HEXISTS', KEYS[1], ARGV[#ARGV - 2]) == 1 then
  -- A script that has written may go on to allocate when memory is full. This writes nothing that SET does not write.
  redis.call('PEXPIRE', KEYS[#KEYS], ARGV[#ARGV])
  redis.call('SET', KEYS[#KEYS], ARGV[#ARGV - 1], 'PX', ARGV[#ARGV])
end
