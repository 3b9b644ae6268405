#!lua flags=allow-oom
-- Ends a lease that ran out. Its job goes to the front of its queue, or ends if no attempt is left or a cancel was
-- requested. The lease is dropped last, so that another call can complete a failed one. Further calls change nothing.
--
-- KEYS[1]  lease of the device, HASH {job, token, worker, expires_at_ms, length_ms}
-- KEYS[2]  leases, ZSET of devices by expiry in ms
-- ARGV[1]  namespace
-- ARGV[2]  device id, with its host
-- ARGV[3]  maximum number of attempts   ARGV[4]  failure of the last attempt, JSON
--
-- Returns {"queued" | "canceled" | "failed" | "orphan", job id} or {"live"}

local device = ARGV[2]
local lease = redis.call('HMGET', KEYS[1], 'job', 'token', 'expires_at_ms')
if not lease[1] then
  redis.call('ZREM', KEYS[2], device)
  return { 'live' }
end
if tonumber(lease[3]) > NOW_MS then
  return { 'live' }
end

local id, token = lease[1], lease[2]
local record = redis.call('HMGET', key('job', id), 'status', 'token')
if not allowed(record[1], 'expire') or record[2] ~= token then
  drop_lease(device, token)
  return { 'orphan', id } -- the lease disagrees with the record, which is authoritative
end
local ended = end_attempt(id, token, device, 'expire', 'worker_lost', '1', ARGV[3], ARGV[4])
drop_lease(device, token)
count(1, 'lost', kind_of(device))
return { ended[1], id }
