#!lua flags=allow-oom
-- Gives the best waiting job over several queues to a device, under a new lease.
-- A lease that ran out still stands: only expire.lua ends it, so that no two attempts are ever live by accident.
--
-- KEYS[1]  lease of the device, HASH {job, token, worker, expires_at_ms}
-- KEYS[2]… queues that the device serves, ZSET of job ids by score
-- ARGV[1]  namespace
-- ARGV[2]  device id, with its host     ARGV[3]  token of the attempt
-- ARGV[4]  worker, JSON                 ARGV[5]  lease, ms
--
-- Returns {"claimed", id, spec, attempt, queue, jobs left in that queue, 1 where a cancel was requested}
--      or {"leased", id} or {"empty"}

local device, token = ARGV[2], ARGV[3]

local function reply(id)
  local record = redis.call('HMGET', key('job', id), 'spec', 'attempt', 'queue', 'cancel_requested_at')
  local left_behind = redis.call('ZCARD', key('queue', record[3]))
  return { 'claimed', id, record[1], tonumber(record[2]), record[3], left_behind, record[4] and 1 or 0 }
end

local lease = redis.call('HMGET', KEYS[1], 'job', 'token')
if lease[1] then
  if lease[2] == token then
    return reply(lease[1]) -- the same call again: its answer was lost on the way
  end
  return { 'leased', lease[1] }
end

local function best_head()
  local best, best_score
  for index = 2, #KEYS do
    local head = redis.call('ZRANGE', KEYS[index], 0, 0, 'WITHSCORES')
    if head[1] and (not best or tonumber(head[2]) < best_score) then
      best, best_score = head[1], tonumber(head[2])
    end
  end
  return best
end

local id = best_head()
while id and not allowed(redis.call('HGET', key('job', id), 'status') or nil, 'claim') do
  for index = 2, #KEYS do
    redis.call('ZREM', KEYS[index], id) -- out of step with its record, which rules
  end
  id = best_head()
end
if not id then
  return { 'empty' }
end

local record = redis.call('HMGET', key('job', id), 'queue', 'attempt')
dequeue(id, record[1])
take_lease(device, id, token, ARGV[4], ARGV[5])
redis.call('HDEL', key('job', id), 'status_reason')
change(id, 'claim', 'queued', {
  token = token, device = device, worker = ARGV[4], started_at = NOW_S, attempt = tonumber(record[2]) + 1,
}, ARGV[4])
return reply(id)
