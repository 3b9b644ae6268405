#!lua
-- Writes a new job's record, its idempotency key, its place in the queue and its first event, in one step.
-- A full Redis refuses this script, which lacks the flag allow-oom of the scripts that end jobs. The script itself
-- refuses jobs whose results would fill Redis (`require_room` in _ledger.lua).
--
-- KEYS[1]  job record, HASH
-- KEYS[2]  idempotency, HASH {job, body_sha256}; optional
-- ARGV[1]  namespace
-- ARGV[2]  job id            ARGV[3]  workload
-- ARGV[4]  queue             ARGV[5]  priority class, 0 is best
-- ARGV[6]  limit on queued jobs of all owners
-- ARGV[7]  SHA-256 of the request's body   ARGV[8]  TTL of the idempotency key, ms
-- ARGV[9]  limit on queued jobs of the owner's API key, unless the key has its own limit
-- ARGV[10]… fields and values of the record; `needs` and `fits` decide the placement class (_ledger.lua); an
--          `uncharged` job isn't counted in the limits of its owner
--
-- Returns {"submitted" | "replayed", the record as HGETALL returns it, its place in the queue or nil, 1 if a worker has
--      to be woken, ids of the running jobs}. A worker has to be woken if the queue was empty, or if a worker is idle
--      because none of the queue's other jobs fits. One reply has all of this, because Redis might be unreachable for a
--      second request. For a new job, the record lacks the fields that are in the arguments
--      or {"key_reused", id} or {"gone", id} (the job's record has expired before the key) or {"full", queued}
--      or {"queued_jobs" | "device_s_per_day", the limit of the owner's API key, its current use, ms to the day's end}

local MOST_CLASSES = 32 -- classes by needs in a queue, as a claim checks each class; other jobs have classes by answers

local function accepted(outcome, job_id, queue, record, wake)
  local running = redis.call('ZRANGE', key('jobs', 'status', 'running'), 0, -1)
  return { outcome, record, redis.call('ZRANK', key('queue', queue), job_id), wake, running }
end

local function accepted_before(outcome, job_id, wake)
  return accepted(outcome, job_id, redis.call('HGET', key('job', job_id), 'queue'), (with_fits(job_id)), wake)
end

-- Device time of the owner's running attempts, in ms. Each device has at most one running attempt, so there are few.
local function running_ms(owner)
  local total_s = 0
  for _, id in ipairs(redis.call('ZRANGE', key('jobs', 'status', 'running'), 0, -1)) do
    local record = redis.call('HMGET', key('job', id), 'owner', 'started_at', 'uncharged')
    if record[1] == owner and not record[3] then
      total_s = total_s + (since(record[2]) or 0)
    end
  end
  return total_s * 1000
end

local function over_limit(owner)
  local limits = redis.call('HMGET', key('key', owner), 'queued_jobs', 'device_s_per_day')
  local most = tonumber(limits[1] or ARGV[9])
  local queued = waiting(owner, most)
  if queued >= most then
    return { 'queued_jobs', most, queued, 0 }
  end
  local spent_ms = tonumber(redis.call('HGET', key('spent', owner, today()), 'device_ms') or '') or 0
  spent_ms = spent_ms + (limits[2] and running_ms(owner) or 0)
  if limits[2] and spent_ms >= tonumber(limits[2]) * 1000 then
    return { 'device_s_per_day', tonumber(limits[2]), math.floor(spent_ms / 1000), DAY_MS - NOW_MS % DAY_MS }
  end
  return nil
end

local function has_room(queue, class)
  local classes = key('classes', queue)
  return redis.call('HLEN', classes) < MOST_CLASSES or redis.call('HEXISTS', classes, class) == 1
end

local id, workload, queue = ARGV[2], ARGV[3], ARGV[4]
if redis.call('EXISTS', KEYS[1]) == 1 then
  return accepted_before('submitted', id, 1) -- a retry of a call whose reply was lost; an extra wake-up does no harm
end

if KEYS[2] then
  local earlier = redis.call('HMGET', KEYS[2], 'job', 'body_sha256')
  if earlier[1] and earlier[2] ~= ARGV[7] then
    return { 'key_reused', earlier[1] }
  end
  if earlier[1] and redis.call('EXISTS', key('job', earlier[1])) == 0 then
    return { 'gone', earlier[1] } -- a retry must not make a second job
  end
  if earlier[1] then
    return accepted_before('replayed', earlier[1], 0)
  end
end

local queued = redis.call('ZCARD', key('jobs', 'status', 'queued'))
if queued >= tonumber(ARGV[6]) then
  return { 'full', queued }
end

require_room(1)
local fields = {}
for index = 10, #ARGV, 2 do
  fields[ARGV[index]] = ARGV[index + 1]
end
local refused = fields.owner and not fields.uncharged and over_limit(fields.owner)
if refused then
  return refused
end

require_rights(
  { 'HSET', 'XADD', 'ZADD', 'HGET', 'PEXPIRE', 'SADD', 'HVALS', 'SREM', 'ZRANGE', 'ZRANK', 'ZSCORE' },
  NAMESPACE .. ':jobs', NAMESPACE .. ':jobs:workload:', NAMESPACE .. ':jobs:owner:', NAMESPACE .. ':jobs:label:',
  NAMESPACE .. ':idempotency:', NAMESPACE .. ':jobs:turns:'
)
local number = redis.call('INCR', key('sequence'))
local score = next_score(queue, tonumber(ARGV[5]), fields.owner or '', fields.fits, number)
for name, value in pairs({
  id = id, workload = workload, queue = queue, score = score,
  attempt = '0', version = '1', created_ms = integer(NOW_MS), created_at = NOW_S, queued_at = NOW_S,
}) do
  fields[name] = value
end
local answers, class = fields.fits, class_of(fields.schema, fields.needs)
if fields.needs and has_room(queue, class) then
  fields.fits = nil -- the class has the answers
else
  fields.needs, class = nil, class_of(fields.schema, nil, answers)
end
change(id, 'submit', nil, fields)
count(1, 'submitted', workload)
redis.call('ZADD', key('jobs'), fields.created_ms, id)
redis.call('ZADD', key('jobs', 'workload', workload), fields.created_ms, id)
if fields.owner then
  redis.call('ZADD', key('jobs', 'owner', fields.owner), fields.created_ms, id)
end
index_labels(id, fields.created_ms, label_digests(fields.spec))
if KEYS[2] then
  redis.call('HSET', KEYS[2], 'job', id, 'body_sha256', ARGV[7])
  redis.call('PEXPIRE', KEYS[2], ARGV[8])
end
local alone, fits = enqueue(id, queue, score, class, answers)
local written = { 'fits', fits }
for _, name in ipairs({ 'status', 'attempt', 'version', 'created_at', 'queued_at' }) do
  written[#written + 1] = name
  written[#written + 1] = fields[name]
end
return accepted('submitted', id, queue, written, math.max(alone, redis.call('SREM', key('resting'), queue)))
