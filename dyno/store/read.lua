#!lua flags=no-writes
-- Reads the records of jobs, with the ranks and scores of waiting jobs.
--
-- KEYS[1]  none: the keys follow from the ids
-- ARGV[1]  namespace
-- ARGV[2]… job ids
--
-- Returns {for each id {the record as with_fits returns it; for a waiting job, its rank in the queue, its score and the
--      highest score that a device of the queue has passed over}, ids of the running jobs if a returned job waits}

local jobs, running = {}, {}
for index = 2, #ARGV do
  local id = ARGV[index]
  local record, queue = with_fits(id)
  local found = { record }
  if queue then
    found[2], found[3], found[4] = place_of(id, queue)
    running = nil
  end
  jobs[#jobs + 1] = found
end
return { jobs, running or redis.call('ZRANGE', key('jobs', 'status', 'running'), 0, -1) }
