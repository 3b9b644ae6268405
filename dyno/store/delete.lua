#!lua flags=allow-oom
-- Deletes a done job and all its keys except the idempotency key, so that a late retry of the submit makes no second
-- job. The job's files become due for deletion once uploads have ended; see dyno/store/artifacts.py.
--
-- KEYS[1]  job record, HASH
-- KEYS[2]  artifacts, ZSET of jobs by time of the next check of their files, ms
-- ARGV[1]  namespace
-- ARGV[2]  job id                       ARGV[3]  how long after the job's end uploads may continue, ms
-- ARGV[4]  for retention, the number of done jobs to keep: the job stays if at most so many exist, or if its
--          webhook is pending and was never redelivered. Absent for a deletion that a caller requested
-- ARGV[5]  1 if ARGV[4] limits the owner's done jobs; absent if it limits the done jobs of all owners
--
-- Returns {"deleted", owner or ""} or {"live", status} or {"unknown"} or {"kept"}

local id = ARGV[2]
local record = redis.call('HMGET', KEYS[1], 'status', 'workload', 'finished_at', 'owner', 'spec')
local status, workload, owner, digests = record[1], record[2], record[4], label_digests(record[5])
if not status then
  return { 'unknown' }
end
if not is_done(status) then
  return { 'live', status }
end

local function is_kept()
  local delivery = redis.call('HMGET', key('job', id, 'webhook'), 'status', 'redelivered')
  if delivery[1] == 'pending' and not delivery[2] then
    return true
  end
  local done = ARGV[5] and redis.call('ZCARD', key('jobs', 'done', owner or '')) or 0
  for _, ending in ipairs(ARGV[5] and {} or { 'succeeded', 'failed', 'canceled' }) do
    done = done + redis.call('ZCARD', key('jobs', 'status', ending))
  end
  return done <= tonumber(ARGV[4])
end

if ARGV[4] and is_kept() then
  return { 'kept' }
end

local settled_ms = (tonumber(record[3]) or 0) * 1000 + tonumber(ARGV[3])
redis.call('ZADD', KEYS[2], 'XX', integer(math.max(NOW_MS, settled_ms)), id)
redis.call('ZREM', key('jobs'), id)
redis.call('ZREM', key('jobs', 'done', owner or ''), id)
redis.call('ZREM', key('jobs', 'status', status), id)
redis.call('ZREM', key('jobs', 'workload', workload), id)
redis.call('ZREM', key('jobs', 'webhooks'), id)
redis.call('ZREM', key('jobs', 'webhooks', 'due'), id)
if owner then
  redis.call('ZREM', key('jobs', 'webhooks', 'owner', owner), id)
  redis.call('ZREM', key('jobs', 'owner', owner), id)
end
for _, digest in ipairs(digests) do
  redis.call('ZREM', key('jobs', 'label', digest), id)
end
redis.call('ZREM', key('expiring'), expiring_member(id, status, workload, owner, digests))
redis.call('DEL', unpack(keys_of(id)))
return { 'deleted', owner or '' }
