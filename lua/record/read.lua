-- Returns a record.
-- KEYS     1 record
-- Returns  the record, nil if there is none
return redis.call('GET', KEYS[1])
