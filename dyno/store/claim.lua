#!lua flags=allow-oom
-- Gives a device the lease of the best job that fits the device and waits in one of its queues. Priority decides first.
-- Then keys take turns, within a queue (_ledger.lua) and over the device's queues. Of one key's jobs, the oldest goes
-- first.
-- A job that doesn't fit is passed over and keeps its place. A job of a newer schema is passed over too, because the
-- worker would silently ignore fields that it doesn't know; the job's record then gives this as the reason.
-- The script checks only the first job of each placement class (_ledger.lua): jobs that don't fit don't slow it down.
-- A device can't claim while it has a lease, even if the lease ran out: only expire.lua ends it, so that two attempts
-- are never live at once.
--
-- KEYS[1]  lease of the device, HASH {job, token, worker, expires_at_ms, length_ms}
-- KEYS[2]… queues that the device serves, ZSET of job ids by score
-- ARGV[1]  namespace
-- ARGV[2]  device id, with its host     ARGV[3]  token of the attempt
-- ARGV[4]  worker, JSON                 ARGV[5]  lease, ms
-- ARGV[6]  profile of the device (dyno/store/placement.py); "" if every job fits
-- ARGV[7]  newest schema of a job that the worker knows
-- ARGV[8]  process that uses the device while the worker waits for the device, JSON. The job isn't leased then, and its
--          record names the process. "" for a worker that has its device
-- ARGV[9]  maximum number of jobs in an "asked" reply
-- ARGV[10] "1" if the classes were compared with their queues in an earlier call of this claim, else ""
-- ARGV[11]… jobs of the last "asked" reply, each followed by "+" if it fits that profile, "-" if it doesn't, "!" if the
--          worker can't read the job's spec. A job with "!" is claimed, so that its attempt reports the error
--
-- Returns {"claimed", id, spec, attempt, queue, jobs left in that queue, 1 if a cancel was requested}
--      or {"held", queue}: instead of "claimed" if ARGV[8] is set
--      or {"asked", id, spec, …}: it is unknown whether these jobs fit the device; call again with the answers
--      or {"unindexed", queue, …}: their classes lack jobs or have wrong jobs; run index.lua on each queue, call again
--      or {"further"}: LOOKS entries were repaired, or LOOKS jobs of newer schemas got a reason; call again
--      or {"leased", id} or {"cordoned"} or {"empty"}: no waiting job fits

local LOOKS = 100 -- so that a call blocks other clients for at most 1.5 ms, measured on a busy machine with two cores
local NEWER = 'newer_schema'
local BUSY = 'device_busy'
local UNREADABLE = '!'
local REMEMBERED_MS = 60000 -- TTL of `passed`, because a job's `passed_over` describes the last minute

local device, token, profile, known_schema = ARGV[2], ARGV[3], ARGV[6], tonumber(ARGV[7])
local QUEUE_NAME_AT = #key('queue', '') + 1

local queues = {}
for index = 2, #KEYS do
  queues[#queues + 1] = string.sub(KEYS[index], QUEUE_NAME_AT)
end

local function reply(id)
  local record = redis.call('HMGET', key('job', id), 'spec', 'attempt', 'queue', 'cancel_requested_at')
  local left_behind = redis.call('ZCARD', key('queue', record[3]))
  return { 'claimed', id, record[1], tonumber(record[2]), record[3], left_behind, record[4] and 1 or 0 }
end

-- Whether jobs with these answers fit the device: "+", "-", or nil if unknown
local function answer(answers)
  if profile == '' then
    return '+'
  end
  local _, last = string.find(answers, profile, 1, true)
  return last and string.sub(answers, last + 1, last + 1)
end

-- Stores an answer for all jobs of the class. But a job without a digest of its needs, or with a spec that the worker
-- can't read, moves to the class that its own answers determine.
local function note_answer(id, sign)
  local record = redis.call('HMGET', key('job', id), 'status', 'queue', 'schema', 'needs', 'fits')
  if not allowed(record[1] or nil, 'claim') then
    return
  end
  local queue, class = record[2], class_of(record[3], record[4], record[5])
  local score = redis.call('ZSCORE', key('class', queue, class), id)
  if not score then
    return
  end
  if record[4] and sign ~= UNREADABLE then
    join_class(id, queue, score, class, profile .. sign)
    return
  end
  leave_class(id, queue, class)
  redis.call('HDEL', key('job', id), 'needs')
  redis.call('HSET', key('job', id), 'fits', with_answers(record[5] or '', profile .. (sign == '-' and '-' or '+')))
  join_class(id, queue, score)
end

-- Records the process that uses the device in the job: once for each process, however often the worker calls.
local function note_held(id, held_by)
  local record = redis.call('HMGET', key('job', id), 'queue', 'status_reason', 'held_by')
  if record[2] ~= BUSY or record[3] ~= held_by then
    change(id, 'pass_over', 'queued', { status_reason = BUSY, held_by = held_by }, BUSY, { 'held_by', held_by })
  end
  return record[1]
end

-- The queues whose classes together have more or fewer jobs than the queue
local function unindexed()
  local found = {}
  for _, queue in ipairs(queues) do
    local classed = 0
    for _, class in ipairs(redis.call('HKEYS', key('classes', queue))) do
      classed = classed + redis.call('ZCARD', key('class', queue, class))
    end
    if classed ~= redis.call('ZCARD', key('queue', queue)) then
      found[#found + 1] = queue
    end
  end
  return found
end

-- `jobs:served:<device>`, ZSET: each owner and queue -> the number of the claim that last served it
local function served(kind, name)
  return tonumber(redis.call('ZSCORE', key('jobs', 'served', device), kind .. ' ' .. name) or 0)
end

local function note_served(owner, queue)
  local name = key('jobs', 'served', device)
  local number = (tonumber(redis.call('ZRANGE', name, 0, 0, 'REV', 'WITHSCORES')[2]) or 0) + 1
  redis.call('ZADD', name, integer(number), 'owner ' .. owner, integer(number), 'queue ' .. queue)
  redis.call('PEXPIRE', name, DAY_MS)
end

-- The turn of each queue that has a head, its first job that fits or may fit. The head whose key this device served
-- longest ago goes first. Among the heads of one key, heads in queues that also have other keys' jobs go first, and
-- these queues take turns. Among equal heads, the oldest goes first: ids begin with the time.
local function turns_of_queues(heads)
  local turns, number = {}, 0
  for _ in pairs(heads) do
    number = number + 1
  end
  for queue, head in pairs(number > 1 and heads or {}) do
    local owner = redis.call('HGET', key('job', head.id), 'owner') or ''
    local is_alone = redis.call('ZCARD', key('queue', queue)) == redis.call('ZCARD', line_of(queue, owner))
    turns[queue] = { served('owner', owner), is_alone and math.huge or served('queue', queue), head.id }
  end
  return turns
end

local function has_turn(one, other)
  for place = 1, 2 do
    if one[place] ~= other[place] then
      return one[place] < other[place]
    end
  end
  return one[3] < other[3]
end

-- Adds the first `count` jobs of a class to `jobs`. Updates the head of their queue.
local function add_first(jobs, heads, queue, class, count)
  local found = redis.call('ZRANGE', key('class', queue, class), 0, count - 1, 'WITHSCORES')
  for at = 1, #found, 2 do
    local job = { id = found[at], order = tonumber(found[at + 1]), queue = queue, class = class }
    jobs[#jobs + 1] = job
    if not heads[queue] or job.order < heads[queue].order then
      heads[queue] = job
    end
  end
end

-- Returns the best job that fits, if any; the jobs before it that may fit (their answers are unknown), best first; the
-- classes of newer schemas; and the heads by queue
local function survey()
  local fitting, unknown, newer, heads = {}, {}, {}, {}
  for _, queue in ipairs(queues) do
    local classes = redis.call('HGETALL', key('classes', queue))
    for at = 1, #classes, 2 do
      local class, sign = classes[at], answer(classes[at + 1])
      if tonumber(string.match(class, '^%d+')) > known_schema then
        newer[#newer + 1] = { queue = queue, class = class }
      elseif sign == '+' then
        add_first(fitting, heads, queue, class, 1)
      elseif not sign then
        add_first(unknown, heads, queue, class, string.find(class, '~', 1, true) and tonumber(ARGV[9]) or 1)
      end
    end
  end
  local turns = turns_of_queues(heads)
  local function is_before(one, other)
    local first, second = priority_of(one.order), priority_of(other.order)
    if first == second and one.queue ~= other.queue then
      return has_turn(turns[one.queue], turns[other.queue])
    end
    return one.order < other.order
  end
  table.sort(fitting, is_before)
  table.sort(unknown, is_before)
  while fitting[1] and unknown[1] and is_before(fitting[1], unknown[#unknown]) do
    unknown[#unknown] = nil
  end
  return fitting[1], unknown, newer, heads
end

-- Whether the job waits in `job.class`. If not, corrects the index: the record is authoritative.
local function is_placed(job)
  local record = redis.call('HMGET', key('job', job.id), 'status', 'schema', 'needs', 'fits')
  local class = class_of(record[2], record[3], record[4])
  local waits = allowed(record[1] or nil, 'claim')
  if waits and class == job.class then
    return true
  end
  leave_class(job.id, job.queue, job.class)
  if waits then
    join_class(job.id, job.queue, integer(job.order))
  else
    dequeue(job.id, job.queue)
  end
  return false
end

-- {"asked", …} for the first of these jobs; {"further"} if none of them waits
local function ask(unknown)
  local asked = { 'asked' }
  for at = 1, math.min(#unknown, tonumber(ARGV[9])) do
    local id = unknown[at].id
    if is_placed(unknown[at]) then
      asked[#asked + 1] = id
      asked[#asked + 1] = redis.call('HGET', key('job', id), 'spec')
    end
  end
  return #asked > 1 and asked or { 'further' }
end

local function remember(queue, name, score)
  redis.call('HSET', key('passed', queue), name, score)
  redis.call('PEXPIRE', key('passed', queue), REMEMBERED_MS, 'NX')
end

-- The score up to which this call has checked a queue, as a bound of ZRANGE
local function looked_until(heads, queue)
  return heads[queue] and '(' .. integer(heads[queue].order) or '+inf'
end

-- Remembers which jobs this device has passed over.
local function remember_passed(heads)
  for _, queue in ipairs(queues) do
    local line, before = key('queue', queue), looked_until(heads, queue)
    local last = redis.call('ZRANGE', line, before, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
    if last[1] then
      remember(queue, profile, last[2])
    end
  end
end

-- Records the reason in up to LOOKS jobs of newer schemas, once per job, however many workers pass it over. Returns
-- whether there may be more such jobs. A field of `passed` has the score up to which each class was processed.
local function note_newer(newer, heads)
  local left = LOOKS
  for _, at in ipairs(newer) do
    local noted = redis.call('HGET', key('passed', at.queue), at.class)
    local jobs, from = key('class', at.queue, at.class), tonumber(noted or '') and '(' .. noted or '-inf'
    local before = looked_until(heads, at.queue)
    local found = redis.call('ZRANGE', jobs, from, before, 'BYSCORE', 'LIMIT', 0, left, 'WITHSCORES')
    for place = 1, #found, 2 do
      local id = found[place]
      if is_placed({ id = id, queue = at.queue, class = at.class, order = tonumber(found[place + 1]) }) then
        if redis.call('HGET', key('job', id), 'status_reason') ~= NEWER then
          change(id, 'pass_over', 'queued', { status_reason = NEWER }, NEWER)
        end
        remember(at.queue, at.class, found[place + 1])
      end
    end
    left = left - #found / 2
    if left == 0 then
      return true
    end
  end
  return false
end

-- Marks the queues whose jobs don't fit the device: the next submit must wake a worker, as this worker becomes idle.
local function rest()
  for _, queue in ipairs(queues) do
    if redis.call('EXISTS', key('passed', queue)) == 1 then
      redis.call('SADD', key('resting'), queue)
    end
  end
end

local function take(job)
  local id, answers = job.id, redis.call('HGET', key('classes', job.queue), job.class)
  local record = redis.call('HMGET', key('job', id), 'queue', 'attempt', 'queued_at', 'owner')
  local attempt = tonumber(record[2]) + 1
  require_rights(
    { 'HSET', 'HDEL', 'HINCRBY', 'ZADD', 'ZREM', 'XADD', 'EXISTS', 'SREM', 'PEXPIRE' },
    NAMESPACE .. ':jobs:turns:', NAMESPACE .. ':jobs:served:'
  )
  take_lease(device, id, token, ARGV[4], ARGV[5]) -- first, so that a running job always has a lease, which can expire
  redis.call('HDEL', key('job', id), 'status_reason', 'held_by')
  change(id, 'claim', 'queued', {
    token = token, device = device, worker = ARGV[4], started_at = NOW_S, attempt = attempt,
    fits = answers, -- for the class that the job joins if it is requeued
  }, ARGV[4], whose(attempt, token, device))
  note_turn(job.queue, job.order, profile)
  note_served(record[4] or '', job.queue)
  dequeue(id, record[1], job.class)
  observe('wait', kind_of(device), since(record[3]))
  return reply(id)
end

local lease = redis.call('HMGET', KEYS[1], 'job', 'token', 'expires_at_ms')
if lease[1] then
  if lease[2] == token then
    return reply(lease[1]) -- a retry of a call whose reply was lost
  end
  if lease[3] and redis.call('ZADD', key('leases'), 'NX', lease[3], device) == 1 then
    count(1, 'repaired', 'lease_not_listed') -- an unlisted lease would never expire
  end
  return { 'leased', lease[1] }
end
if redis.call('SISMEMBER', key('cordoned'), device) == 1 then
  return { 'cordoned' } -- checked in the script, so that no job is claimed after the response to the cordon request
end

if ARGV[10] == '' then
  local found = unindexed()
  if found[1] then
    return { 'unindexed', unpack(found) }
  end
end
for index = 11, #ARGV, 2 do
  note_answer(ARGV[index], ARGV[index + 1])
end

for _ = 1, LOOKS do
  local best, unknown, newer, heads = survey()
  if unknown[1] then
    return ask(unknown)
  end
  if not best then
    remember_passed(heads)
    rest()
    return { note_newer(newer, heads) and 'further' or 'empty' }
  end
  if is_placed(best) then
    note_newer(newer, heads)
    remember_passed(heads)
    if ARGV[8] ~= '' then
      return { 'held', note_held(best.id, ARGV[8]) }
    end
    return take(best)
  end
end
return { 'further' }
