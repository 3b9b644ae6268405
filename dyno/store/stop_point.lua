#!lua flags=allow-oom
-- Cancels the waiting jobs of a point, and records the reason; a running job continues. The function `cancel` is
-- cancel.lua. A point that was stopped before keeps its reason.
--
-- KEYS[1]  sweep, HASH
-- ARGV[1]  namespace
-- ARGV[2]  place of the point   ARGV[3]  reason, JSON
-- ARGV[4]… job ids
--
-- Returns "stopped" or "already" or "unknown"

if redis.call('EXISTS', KEYS[1]) == 0 then
  return 'unknown'
end
if redis.call('HEXISTS', KEYS[1], 'stopped ' .. ARGV[2]) == 1 then
  return 'already'
end
for index = 4, #ARGV do
  local id = ARGV[index]
  if redis.call('HGET', key('job', id), 'status') == 'queued' then
    cancel({ key('job', id) }, { NAMESPACE, id })
  end
end
redis.call('HSET', KEYS[1], 'stopped ' .. ARGV[2], ARGV[3]) -- last, so that a retry can complete a failed call
return 'stopped'
