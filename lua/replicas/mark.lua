-- Runs before a check whose answer replicas must acknowledge. It writes a key for them to
-- acknowledge, because they may have acknowledged all earlier writes before they were cut off.
-- KEYS     the last: the key to write, without other use
-- Needs    writable.lua, because SET is refused when memory is full, unless the script has written
redis.call('SET', KEYS[#KEYS], '', 'PX', 1000)
