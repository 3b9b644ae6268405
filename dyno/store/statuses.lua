#!lua flags=no-writes
-- Reads the statuses of jobs.
--
-- KEYS[1]  none: the keys follow from the ids
-- ARGV[1]  namespace
-- ARGV[2]… job ids
--
-- Returns for each id the job's status, or "gone" if there is no record

local found = {}
for index = 2, #ARGV do
  found[#found + 1] = redis.call('HGET', key('job', ARGV[index]), 'status') or 'gone'
end
return found
