#!lua
-- Adds jobs that a version without indexes of labels wrote to those indexes: the next few in order of creation, behind
-- those of the last call. Several processes may call it at once.
--
-- KEYS[1]  labeled, HASH {sequence: all jobs up to this submit are in the indexes of labels; after: the last job that
--          this script has looked at; after_ms: its creation}
-- KEYS[2]  jobs, ZSET by creation, ms
-- ARGV[1]  namespace
-- ARGV[2]  most jobs to look at
--
-- Returns {"complete"}: all jobs are in the indexes
--      or {"partial"}: call it again

local function index_job(id, created_ms)
  local record = redis.call('HMGET', key('job', id), 'spec', 'status', 'workload', 'owner')
  local digests = label_digests(record[1])
  if #digests == 0 then
    return
  end
  index_labels(id, created_ms, digests)
  if not is_done(record[2]) or not record[3] then
    return
  end
  local without = expiring_member(id, record[2], record[3], record[4], {})
  local expires_ms = redis.call('ZSCORE', key('expiring'), without)
  if expires_ms then
    redis.call('ZREM', key('expiring'), without)
    redis.call('ZADD', key('expiring'), expires_ms, expiring_member(id, record[2], record[3], record[4], digests))
  end
end

local sequence = redis.call('GET', key('sequence')) or '0'
local known = redis.call('HMGET', KEYS[1], 'sequence', 'after', 'after_ms')
if (known[1] or '0') == sequence then
  return { 'complete' }
end

local most, rank = tonumber(ARGV[2]), known[2] and redis.call('ZRANK', KEYS[2], known[2])
local jobs
if rank then
  jobs = redis.call('ZRANGE', KEYS[2], rank + 1, rank + most, 'WITHSCORES')
else
  local from = tonumber(known[3] or '') and known[3] or '-inf'
  jobs = redis.call('ZRANGE', KEYS[2], from, '+inf', 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES')
end
for place = 1, #jobs, 2 do
  index_job(jobs[place], jobs[place + 1])
end
if #jobs > 0 then
  redis.call('HSET', KEYS[1], 'after', jobs[#jobs - 1], 'after_ms', jobs[#jobs])
end
if #jobs < 2 * most then
  redis.call('HSET', KEYS[1], 'sequence', sequence)
  return { 'complete' }
end
return { 'partial' }
