#!lua
-- Submits all jobs of a sweep and writes its record, in one step: either all jobs are queued or none. The function
-- `submit` is submit.lua.
--
-- KEYS[1]  sweep, HASH {id, owner, sweep, created_at, cancel_requested_at, "stopped <place>"}
-- KEYS[2]  idempotency, HASH {job, body_sha256} as in submit.lua, with the sweep's id as `job`; optional
-- ARGV[1]  namespace
-- ARGV[2]  sweep id                 ARGV[3]  owner, or ""
-- ARGV[4]  the sweep, JSON          ARGV[5]  time until the first check whether the jobs are gone, ms
-- ARGV[6]  SHA-256 of the request's body   ARGV[7]  TTL of the idempotency key, ms
-- ARGV[8]  limit on queued jobs of all owners
-- ARGV[9]  limit on queued jobs of the owner's API key, unless the key has its own limit
-- ARGV[10] 1 if points of the sweep may be stopped
-- ARGV[11] number of jobs
-- ARGV[12]… for each job: the number of arguments for submit.lua, and the arguments
--
-- Returns {"submitted" | "replayed", sweep id} or {"key_reused", id} or {"gone", id} or a refusal as submit.lua does

local id, owner, jobs = ARGV[2], ARGV[3], tonumber(ARGV[11])

if redis.call('EXISTS', KEYS[1]) == 1 then
  return { 'submitted', id } -- a retry of a call whose reply was lost
end

if KEYS[2] then
  local earlier = redis.call('HMGET', KEYS[2], 'job', 'body_sha256')
  if earlier[1] and earlier[2] ~= ARGV[6] then
    return { 'key_reused', earlier[1] }
  end
  if earlier[1] then
    return { redis.call('EXISTS', key('sweep', earlier[1])) == 1 and 'replayed' or 'gone', earlier[1] }
  end
end

-- Check the room for all jobs here, so that `submit` can only refuse the first job, before anything is written.
local queued = redis.call('ZCARD', key('jobs', 'status', 'queued'))
if queued + jobs > tonumber(ARGV[8]) then
  return { 'full', queued }
end
if owner ~= '' then
  local most = tonumber(redis.call('HGET', key('key', owner), 'queued_jobs') or ARGV[9])
  local own = waiting(owner, most - jobs + 1)
  if own + jobs > most then
    return { 'queued_jobs', most, own, 0 }
  end
end

require_room(jobs)
check_rights({ 'HSET', 'SADD', 'ZADD' }, { -- here, before `submit` writes; it checks only its own rights
  KEYS[1], key('sweeps'), key('sweeps', 'due'), key('sweeps', 'watched'), key('sweeps', 'owner', ''),
  key('idempotency', ''),
})
local at = 12
for _ = 1, jobs do
  local arguments = { NAMESPACE }
  for offset = 1, tonumber(ARGV[at]) do
    arguments[offset + 1] = ARGV[at + offset]
  end
  local reply = submit({ key('job', arguments[2]) }, arguments)
  if reply[1] ~= 'submitted' then
    return reply
  end
  at = at + #arguments
end

redis.call('HSET', KEYS[1], 'id', id, 'sweep', ARGV[4], 'created_at', NOW_S)
redis.call('ZADD', key('sweeps'), integer(NOW_MS), id)
redis.call('ZADD', key('sweeps', 'due'), integer(NOW_MS + tonumber(ARGV[5])), id)
if ARGV[10] == '1' then
  redis.call('SADD', key('sweeps', 'watched'), id)
end
if owner ~= '' then
  redis.call('HSET', KEYS[1], 'owner', owner)
  redis.call('ZADD', key('sweeps', 'owner', owner), integer(NOW_MS), id)
end
if KEYS[2] then
  redis.call('HSET', KEYS[2], 'job', id, 'body_sha256', ARGV[6])
  redis.call('PEXPIRE', KEYS[2], ARGV[7])
end
return { 'submitted', id }
