#!lua flags=allow-oom
-- Compares some running jobs with their leases, some queued jobs with their queues and placement classes, and some jobs
-- of any status with the index of their status. Repairs the differences, which come from a failed write or from
-- restored or edited data. The records are authoritative. Each call continues where the last call of any process
-- stopped, and begins again after the last job.
--
-- A running job without a lease gets one. The next heartbeat of a live worker extends it; otherwise expire.lua ends it.
--
-- KEYS[1]  audit, HASH {at_ms; running, queued, any: how many jobs of each kind were checked in this pass}
-- ARGV[1]  namespace
-- ARGV[2]  minimum time between two calls, ms; an earlier call does nothing
-- ARGV[3]  maximum number of jobs of each kind   ARGV[4]  lease, ms
-- ARGV[5]  maximum number of attempts   ARGV[6]  failure of the last attempt, JSON
-- ARGV[7]… jobs to put back into all indexes, after an index was damaged; then the call does nothing else
--
-- Returns {kind of the repair, job id, …}. If a check fails, the kind is "failed: <message>", and the audit continues

local found = {}

local function repaired(kind, id)
  count(1, 'repaired', kind)
  found[#found + 1] = kind
  found[#found + 1] = id
end

-- Corrects an entry of the index of a status. Returns whether the entry was right.
local function has_status(id, indexed, status)
  if status == indexed then
    return true
  end
  local created_ms = status and redis.call('HGET', key('job', id), 'created_ms')
  if created_ms then
    redis.call('ZADD', key('jobs', 'status', status), created_ms, id)
  end
  redis.call('ZREM', key('jobs', 'status', indexed), id)
  repaired('wrong_status', id)
  return false
end

local function audit_running(id)
  local record = redis.call('HMGET', key('job', id), 'status', 'token', 'device', 'worker')
  if not has_status(id, 'running', record[1]) then
    return
  end
  local token, device = record[2] or '', record[3] or ''
  local lease = redis.call('HMGET', key('lease', device), 'token', 'expires_at_ms')
  if token ~= '' and lease[1] == token then
    if lease[2] and redis.call('ZADD', key('leases'), 'NX', lease[2], device) == 1 then
      repaired('lease_not_listed', id)
    end
    return
  end
  if token ~= '' and device ~= '' and not lease[1] then
    take_lease(device, id, token, record[4] or '', ARGV[4])
  else -- another job has the lease, so this job's worker can't extend it any more
    end_attempt(id, token, device, 'expire', 'worker_lost', '1', ARGV[5], ARGV[6])
  end
  repaired('running_without_lease', id)
end

local function is_in_class(id, queue, class)
  return redis.call('HGET', key('classes', queue), class) and redis.call('ZSCORE', key('class', queue, class), id)
end

local function audit_queued(id)
  local record = redis.call('HMGET', key('job', id), 'status', 'queue', 'score', 'schema', 'needs', 'fits', 'owner')
  if not has_status(id, 'queued', record[1]) then
    return
  end
  local queue, score = record[2], record[3]
  local class = class_of(record[4], record[5], record[6])
  if not queue or not score then
    error({ err = 'the record has no queue' })
  end
  if not redis.call('ZSCORE', key('queue', queue), id) then
    enqueue(id, queue, score)
    redis.call('DEL', key('woken', queue)) -- so that the next maintenance run wakes a worker for it
    repaired('queued_without_queue', id)
  elseif redis.call('SISMEMBER', key('queues'), queue) == 0 then
    redis.call('SADD', key('queues'), queue)
    repaired('queue_not_listed', id)
  elseif not is_in_class(id, queue, class) then
    join_class(id, queue, score)
    repaired('class_not_listed', id)
  end
  redis.call('ZADD', line_of(queue, record[7]), 'NX', score, id)
end

local function audit_any(id)
  local record = redis.call('HMGET', key('job', id), 'status', 'created_ms')
  if record[1] and record[2] and redis.call('ZADD', key('jobs', 'status', record[1]), 'NX', record[2], id) == 1 then
    repaired('status_not_listed', id)
  end
end

local function restore_done(id, status, record)
  local ended_ms = integer((tonumber(record.finished_at) or 0) * 1000)
  redis.call('SADD', key('jobs', 'done'), record.owner or '')
  redis.call('ZADD', key('jobs', 'done', record.owner or ''), 'NX', ended_ms, id)
  local ttl_ms, digests = redis.call('PTTL', key('job', id)), label_digests(record.spec)
  if ttl_ms > 0 then
    local member = expiring_member(id, status, record.workload, record.owner, digests)
    redis.call('ZADD', key('expiring'), 'NX', integer(NOW_MS + ttl_ms), member)
  end
  local delivery = redis.call('HGET', key('job', id, 'webhook'), 'status')
  if record.webhook and not delivery then
    note_delivery(id, status, record.webhook, record.owner)
    if ttl_ms > 0 then
      redis.call('PEXPIRE', key('job', id, 'webhook'), integer(ttl_ms))
    end
  elseif delivery then
    redis.call('ZADD', key('jobs', 'webhooks'), 'NX', ended_ms, id)
    if record.owner then
      redis.call('ZADD', key('jobs', 'webhooks', 'owner', record.owner), 'NX', ended_ms, id)
    end
  end
  if delivery == 'pending' then
    redis.call('ZADD', key('jobs', 'webhooks', 'due'), 'NX', integer(NOW_MS), id) -- its entry in a lane is then ignored
  end
end

-- Puts a job into all indexes. Existing entries stay as they are.
local function restore(id)
  local record = fields_of({ id, redis.call('HGETALL', key('job', id)) })
  local status, created_ms = record.status, record.created_ms
  if not status or not created_ms then
    return
  end
  local indexes = { key('jobs'), key('jobs', 'status', status), key('jobs', 'workload', record.workload or '') }
  if record.owner then
    indexes[#indexes + 1] = key('jobs', 'owner', record.owner)
    indexes[#indexes + 1] = status == 'queued' and not record.uncharged and key('jobs', 'queued', record.owner) or nil
  end
  for _, digest in ipairs(label_digests(record.spec)) do
    indexes[#indexes + 1] = key('jobs', 'label', digest)
  end
  for _, index in ipairs(indexes) do
    redis.call('ZADD', index, 'NX', created_ms, id)
  end
  if is_done(status) then
    restore_done(id, status, record)
  elseif status == 'queued' then
    audit_queued(id)
  else
    audit_running(id)
  end
end

local function check_all(ids, check)
  for _, id in ipairs(ids) do
    local passed, failure = pcall(check, id)
    if not passed then
      local message = type(failure) == 'table' and failure.err or tostring(failure)
      repaired('failed', id)
      found[#found - 1] = 'failed: ' .. message
    end
  end
end

local function audit(name, index, from, check)
  local most = tonumber(ARGV[3])
  local ids = redis.call('ZRANGE', index, from, from + most - 1)
  check_all(ids, check)
  redis.call('HSET', KEYS[1], name, #ids < most and 0 or from + most)
end

if #ARGV > 6 then
  require_rights(END_COMMANDS)
  check_all({ unpack(ARGV, 7) }, restore)
  return found
end
local state = redis.call('HMGET', KEYS[1], 'at_ms', 'running', 'queued', 'any')
local passed_ms = NOW_MS - (tonumber(state[1]) or 0)
if passed_ms >= 0 and passed_ms < tonumber(ARGV[2]) then -- negative: the clock stepped back
  return found
end
require_rights(END_COMMANDS)
redis.call('HSET', KEYS[1], 'at_ms', integer(NOW_MS))
audit('running', key('jobs', 'status', 'running'), tonumber(state[2]) or 0, audit_running)
audit('queued', key('jobs', 'status', 'queued'), tonumber(state[3]) or 0, audit_queued)
audit('any', key('jobs'), tonumber(state[4]) or 0, audit_any)
return found
