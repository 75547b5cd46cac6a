-- Removes a record.
-- KEYS     1 record
-- Returns  1 removed, 0 there was nothing
return redis.call('DEL', KEYS[1])
