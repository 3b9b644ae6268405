#!lua
-- Records the rerun of an alarm's job, or that a client has acknowledged the alarm. Both are recorded once and never
-- replaced. The records of a series expire together.
--
-- KEYS[1]  alarms, HASH "<job> <field>" -> value
-- ARGV[1]  namespace
-- ARGV[2]  TTL of the records in ms      ARGV[3]… fields and values
--
-- Returns "recorded", or "known" if the first field was recorded before

local is_new = redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0
if is_new then
  redis.call('HSET', KEYS[1], unpack(ARGV, 3))
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return is_new and 'recorded' or 'known'
