#!lua flags=allow-oom
-- Leases the best waiting job over several queues that fits a device to that device.
-- A job that doesn't fit is passed over and keeps its place. So is a job of a newer schema, because the worker would
-- silently ignore fields that it doesn't know; the job's record then gives this as the reason.
-- The script stores how far devices of each profile have checked a queue, so that no job is checked twice. One call
-- checks LOOKS jobs at most.
-- A lease that ran out still counts: only expire.lua ends it, so that two attempts are never live at once.
--
-- KEYS[1]  lease of the device, HASH {job, token, worker, expires_at_ms}
-- KEYS[2]… queues that the device serves, ZSET of job ids by score
-- ARGV[1]  namespace
-- ARGV[2]  device id, with its host     ARGV[3]  token of the attempt
-- ARGV[4]  worker, JSON                 ARGV[5]  lease, ms
-- ARGV[6]  profile of the device (dyno/store/placement.py); "" if every job fits
-- ARGV[7]  newest schema of a job that the worker knows
-- ARGV[8]  job of the last "asked" reply   ARGV[9]  "+" if it fits that profile, "-" if not; both "" for none
-- ARGV[10] process that uses the device while its worker waits for it, JSON. The job isn't leased then, and its record
--          names the process. "" for a worker that has its device
--
-- Returns {"claimed", id, spec, attempt, queue, jobs left in that queue, 1 if a cancel was requested}
--      or {"held", queue}: instead of "claimed" if ARGV[10] is set
--      or {"asked", id, spec}: the fit of that job is unknown; call again with the answer
--      or {"further"}: LOOKS jobs were passed over and more wait; call again
--      or {"leased", id} or {"cordoned"} or {"empty"}: no waiting job fits

local LOOKS = 100 -- 1.5 ms, measured on a busy machine with two cores: the longest that a call blocks other clients
local NEWER = 'newer_schema'
local BUSY = 'device_busy'
local REMEMBERED_MS = 60000 -- TTL of `passed`: an older API may queue jobs in front without resetting it

local device, token, profile, known_schema = ARGV[2], ARGV[3], ARGV[6], tonumber(ARGV[7])
local QUEUE_NAME_AT = #key('queue', '') + 1

local function passed(index)
  return key('passed', string.sub(KEYS[index], QUEUE_NAME_AT))
end

local function reply(id)
  local record = redis.call('HMGET', key('job', id), 'spec', 'attempt', 'queue', 'cancel_requested_at')
  local left_behind = redis.call('ZCARD', key('queue', record[3]))
  return { 'claimed', id, record[1], tonumber(record[2]), record[3], left_behind, record[4] and 1 or 0 }
end

-- "+", "-", or nil if unknown. `fits` is a list of profiles, each followed by its answer.
local function answer(fits)
  if profile == '' then
    return '+'
  end
  local _, last = string.find(fits or '', profile, 1, true)
  return last and string.sub(fits, last + 1, last + 1)
end

local function note_answer(id, sign)
  local record = redis.call('HMGET', key('job', id), 'status', 'fits')
  if allowed(record[1] or nil, 'claim') and not answer(record[2]) then
    redis.call('HSET', key('job', id), 'fits', (record[2] or '') .. profile .. sign)
  end
end

-- Records the reason once, however many workers pass the job over.
local function note_newer(id, reason)
  if reason ~= NEWER then
    change(id, 'pass_over', 'queued', { status_reason = NEWER }, NEWER)
  end
end

-- Records the holder once for each process that uses the device, however often its worker calls.
local function note_held(id, held_by)
  local record = redis.call('HMGET', key('job', id), 'queue', 'status_reason', 'held_by')
  if record[2] ~= BUSY or record[3] ~= held_by then
    change(id, 'pass_over', 'queued', { status_reason = BUSY, held_by = held_by }, BUSY, { 'held_by', held_by })
  end
  return record[1]
end

local heads, looked = {}, {} -- by index of KEYS: the next job to check, and the score of the last one passed over

local function look_behind(index, score)
  local found = redis.call('ZRANGE', KEYS[index], '(' .. score, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  heads[index] = found[1] and { id = found[1], score = found[2], order = tonumber(found[2]) } or nil
end

local function best_head()
  local best
  for index = 2, #KEYS do
    if heads[index] and (not best or heads[index].order < heads[best].order) then
      best = index
    end
  end
  return best
end

local function drop(id)
  for index = 2, #KEYS do
    redis.call('ZREM', KEYS[index], id) -- the queue disagrees with the record, which is authoritative
  end
end

-- Finds the best job that fits. Returns "claimed" or "asked" with its id, or "further" or "empty".
local function look()
  for _ = 1, LOOKS do
    local index = best_head()
    if not index then
      return 'empty'
    end
    local head = heads[index]
    local record = redis.call('HMGET', key('job', head.id), 'status', 'fits', 'schema', 'status_reason')
    local fits = answer(record[2])
    if not allowed(record[1] or nil, 'claim') then
      drop(head.id)
    elseif (tonumber(record[3]) or 0) > known_schema then
      note_newer(head.id, record[4])
      looked[index] = head.score
    elseif fits ~= '-' then
      return fits and 'claimed' or 'asked', head.id
    else
      looked[index] = head.score
    end
    look_behind(index, head.score)
  end
  return 'further'
end

local function remember_looks()
  for index, score in pairs(looked) do
    redis.call('HSET', passed(index), profile, score)
    redis.call('PEXPIRE', passed(index), REMEMBERED_MS, 'NX')
  end
end

-- The worker is idle from now on. Marks the queues whose jobs don't fit its device: their next submit must wake a
-- worker.
local function rest()
  for index = 2, #KEYS do
    if redis.call('EXISTS', passed(index)) == 1 then
      redis.call('SADD', key('resting'), string.sub(KEYS[index], QUEUE_NAME_AT))
    end
  end
end

local function take(id)
  local record = redis.call('HMGET', key('job', id), 'queue', 'attempt', 'queued_at')
  local attempt = tonumber(record[2]) + 1
  dequeue(id, record[1])
  take_lease(device, id, token, ARGV[4], ARGV[5])
  observe('wait', kind_of(device), since(record[3]))
  redis.call('HDEL', key('job', id), 'status_reason', 'held_by')
  change(id, 'claim', 'queued', {
    token = token, device = device, worker = ARGV[4], started_at = NOW_S, attempt = attempt,
  }, ARGV[4], whose(attempt, token, device))
  return reply(id)
end

local lease = redis.call('HMGET', KEYS[1], 'job', 'token')
if lease[1] then
  if lease[2] == token then
    return reply(lease[1]) -- a retry of a call whose reply was lost
  end
  return { 'leased', lease[1] }
end
if redis.call('SISMEMBER', key('cordoned'), device) == 1 then
  return { 'cordoned' } -- checked in the script, so that no job is claimed after the response to the cordon request
end

if ARGV[8] ~= '' then
  note_answer(ARGV[8], ARGV[9])
end
for index = 2, #KEYS do
  look_behind(index, profile ~= '' and redis.call('HGET', passed(index), profile) or '-inf')
end
local outcome, id = look()
remember_looks()
if outcome == 'claimed' and ARGV[10] ~= '' then
  return { 'held', note_held(id, ARGV[10]) }
end
if outcome == 'claimed' then
  return take(id)
end
if outcome == 'asked' then
  return { 'asked', id, redis.call('HGET', key('job', id), 'spec') }
end
if outcome == 'empty' then
  rest()
end
return { outcome }
