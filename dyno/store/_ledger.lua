-- Prepended to every script (no script of its own): the clock, the record and everything that changes with it.
-- TRANSITIONS ("state event" -> state) is rendered above this line from the one table in dyno/models/job.py, and so are
-- BOUNDS_S (of each histogram) from dyno/store/metrics.py.
--
-- KEYS     per script. Keys that depend on stored data are derived below from the namespace: no cluster, so that is allowed
-- ARGV[1]  namespace, the first part of every key

local NAMESPACE = ARGV[1]
local JOB_EVENTS_KEPT = 1000 -- per job, about 150 bytes each; only progress comes in such numbers
local ALL_EVENTS_KEPT = 10000 -- what a reader that lost its connection can catch up with
local LOG_BYTES_KEPT = 256 * 1024 -- of the end of what a job's runners print
local DAY_MS = 86400000

local function key(...)
  return NAMESPACE .. ':' .. table.concat({ ... }, ':')
end

-- Lua's own tostring keeps 14 digits only
local function integer(number)
  return string.format('%.0f', number)
end

local TIME = redis.call('TIME')
local NOW_MS = tonumber(TIME[1]) * 1000 + math.floor(tonumber(TIME[2]) / 1000)
local NOW_S = string.format('%d.%06d', tonumber(TIME[1]), tonumber(TIME[2]))

-- Days of UTC since 1970
local function today()
  return integer(math.floor(NOW_MS / DAY_MS))
end

local function allowed(status, event)
  return TRANSITIONS[(status or 'none') .. ' ' .. event] ~= nil
end

-- Whose attempt it is: said with its claim and with its end, so that each end can be laid beside the claim it belongs to.
-- A digest of the token, which itself never gets out.
local function whose(attempt, token, device)
  return { 'attempt', attempt or '', 'device', device, 'claim', string.sub(redis.sha1hex(token), 1, 12) }
end

-- `more`: fields besides, as of whose() with a claim and with the end of an attempt.
local function append_event(id, event, status, version, detail, more)
  local fields = { 'job', id, 'event', event, 'status', status, 'version', version, 'at', NOW_S, unpack(more or {}) }
  for name, text in pairs({ detail = detail, owner = redis.call('HGET', key('job', id), 'owner') }) do
    if text and text ~= '' then
      fields[#fields + 1] = name
      fields[#fields + 1] = text
    end
  end
  redis.call('XADD', key('job', id, 'events'), 'MAXLEN', '~', JOB_EVENTS_KEPT, '*', unpack(fields))
  redis.call('XADD', key('events'), 'MAXLEN', '~', ALL_EVENTS_KEPT, '*', unpack(fields))
end

-- Counts for Prometheus, as dyno/store/metrics.py reads them: fields of one HASH, made of words from closed sets.
-- pcall: whatever is wrong with a count, it must not stand in the way of a transition.
local function count(by, ...)
  redis.pcall('HINCRBY', key('counts'), table.concat({ ... }, ' '), by)
end

-- One reading of a histogram; none where `seconds` isn't known.
local function observe(what, label, seconds)
  if not seconds then
    return
  end
  local within = 'inf'
  for _, bound in ipairs(BOUNDS_S[what]) do
    if seconds <= bound then
      within = bound
      break
    end
  end
  count(1, what, label, within)
  count(integer(math.ceil(seconds * 1000)), what, label, 'sum_ms')
end

-- Seconds since `at`, a time as NOW_S is one; nil where it isn't known.
local function since(at)
  local began_s = tonumber(at or '')
  return began_s and math.max(0, tonumber(NOW_S) - began_s)
end

local function kind_of(device)
  return string.match(device or '', '^(%l+):') or 'other'
end

-- How long an attempt had its device. Rounded up: while it ran it was told as less, and a counter must not go back.
local function count_attempt(id)
  local record = redis.call('HMGET', key('job', id), 'workload', 'device', 'started_at')
  local seconds = since(record[3])
  observe('attempt', record[1] or 'other', seconds)
  count(integer(math.ceil((seconds or 0) * 1000)), 'busy_ms', kind_of(record[2]))
end

local function count_end(workload, status, failure)
  count(1, 'ended', workload or 'other', status, string.match(failure or '', '"class":"(%l+)"') or 'none')
end

local function is_done(status)
  return status == 'succeeded' or status == 'failed' or status == 'canceled'
end

-- All that there is of one job, but for what indexes say.
local function keys_of(id)
  local names = { key('job', id) }
  for _, part in ipairs({ 'events', 'result', 'samples', 'log', 'webhook' }) do
    names[#names + 1] = key('job', id, part)
  end
  return names
end

local function expiring_member(id, status, workload, owner)
  return table.concat({ id, status, workload, owner or nil }, ':')
end

-- A done job goes by itself; `expiring` tells the upkeep which index entries went with it. Returns its workload.
local function expire_record(id, status)
  local record = redis.call('HMGET', key('job', id), 'expires_in_s', 'workload', 'owner')
  local ttl_ms = tonumber(record[1]) * 1000
  for _, name in ipairs(keys_of(id)) do
    redis.call('PEXPIRE', name, integer(ttl_ms))
  end
  local member = expiring_member(id, status, record[2], record[3])
  redis.call('ZADD', key('expiring'), integer(NOW_MS + ttl_ms), member)
  return record[2]
end

-- Keeps a piece of log under the next number, and returns that; nil where `name`, its name, is that of the last one.
-- What is beyond LOG_BYTES_KEPT goes, the oldest first.
local function keep_log(id, name, text)
  local log = key('job', id, 'log')
  local kept = redis.call('HMGET', log, 'first', 'next', 'bytes', 'last')
  if kept[4] == name then
    return nil -- the same call again: its answer was lost on the way
  end
  local first, number = tonumber(kept[1]) or 0, tonumber(kept[2]) or 0
  local bytes = (tonumber(kept[3]) or 0) + #text
  while bytes > LOG_BYTES_KEPT and first < number do
    bytes = bytes - #(redis.call('HGET', log, integer(first)) or '')
    redis.call('HDEL', log, integer(first))
    first = first + 1
  end
  redis.call('HSET', log, integer(number), text, 'first', first, 'next', number + 1, 'bytes', bytes, 'last', name)
  return integer(number)
end

-- What a done job's webhook is to be told: in the step that ends it, so that none is forgotten, and before expire_record,
-- so that it goes with the job. Whoever delivers finds it among those that are due.
local function note_delivery(id, status, url, owner)
  local fields = { 'status', 'pending', 'type', 'job.' .. status, 'url', url, 'tried', 0, 'attempts', 0, 'created_at', NOW_S }
  redis.call('HSET', key('job', id, 'webhook'), unpack(fields))
  redis.call('ZADD', key('jobs', 'webhooks'), integer(NOW_MS), id)
  redis.call('ZADD', key('jobs', 'webhooks', 'due'), integer(NOW_MS), id)
  if owner then
    redis.call('HSET', key('job', id, 'webhook'), 'owner', owner)
    redis.call('ZADD', key('jobs', 'webhooks', 'owner', owner), integer(NOW_MS), id)
  end
end

-- There are no further attempts at it, unless it is redelivered.
local function end_delivery(id, status)
  redis.call('HSET', key('job', id, 'webhook'), 'status', status)
  redis.call('HDEL', key('job', id, 'webhook'), 'token', 'again')
  redis.call('ZREM', key('jobs', 'webhooks', 'due'), id)
  count(1, 'webhook', status)
end

-- What the limits of an API key look at: which of its jobs wait, and what it has had of devices today.
local function note_for_owner(owner, id, before, after, started_at)
  if after == 'queued' then
    redis.call('ZADD', key('jobs', 'queued', owner), integer(NOW_MS), id)
  elseif before == 'queued' then
    redis.call('ZREM', key('jobs', 'queued', owner), id)
  end
  if before == 'running' and started_at then
    local spent, took_ms = key('spent', owner, today()), NOW_MS - tonumber(started_at) * 1000
    redis.call('HINCRBY', spent, 'device_ms', integer(math.max(0, took_ms)))
    redis.call('PEXPIRE', spent, 2 * DAY_MS)
  end
end

-- The only way a record changes. `before` is its status until now (nil: none yet), `fields` what else changes.
local function change(id, event, before, fields, detail, more)
  local after = TRANSITIONS[(before or 'none') .. ' ' .. event]
  local done = is_done(after)
  fields.status = after
  if done and before ~= after then
    fields.finished_at = NOW_S
  end
  local flat = {}
  for name, value in pairs(fields) do
    flat[#flat + 1] = name
    flat[#flat + 1] = value
  end
  redis.call('HSET', key('job', id), unpack(flat))
  local version = redis.call('HINCRBY', key('job', id), 'version', 1)
  local record = {}
  if before ~= after then
    record = redis.call('HMGET', key('job', id), 'created_ms', 'owner', 'started_at', 'webhook')
    if before then
      redis.call('ZREM', key('jobs', 'status', before), id)
    end
    redis.call('ZADD', key('jobs', 'status', after), record[1], id)
    if record[2] then
      note_for_owner(record[2], id, before, after, record[3])
    end
  end
  append_event(id, event, after, version, detail, more)
  if before == 'running' and after ~= before then
    count_attempt(id)
  end
  if done and before ~= after then
    if record[4] then
      note_delivery(id, after, record[4], record[2])
    end
    count_end(expire_record(id, after), after, fields.failure)
  end
  return version
end

-- Returns 1 where the queue was empty before: then somebody has to be woken.
local function enqueue(id, queue, score)
  redis.call('ZADD', key('queue', queue), score, id)
  redis.call('SADD', key('queues'), queue)
  for _, passed in ipairs(redis.call('HVALS', key('passed', queue))) do
    if tonumber(passed) >= tonumber(score) then
      redis.call('DEL', key('passed', queue)) -- it comes in front of some that claim.lua would not look at again
      break
    end
  end
  return redis.call('ZCARD', key('queue', queue)) == 1 and 1 or 0
end

local function dequeue(id, queue)
  redis.call('ZREM', key('queue', queue), id)
  if redis.call('ZCARD', key('queue', queue)) == 0 then
    redis.call('SREM', key('queues'), queue)
    redis.call('SREM', key('resting'), queue)
    redis.call('DEL', key('passed', queue))
  end
end

local function take_lease(device, id, token, worker, lease_ms)
  local expires_ms = integer(NOW_MS + tonumber(lease_ms))
  redis.call('HSET', key('lease', device), 'job', id, 'token', token, 'worker', worker, 'expires_at_ms', expires_ms)
  redis.call('ZADD', key('leases'), expires_ms, device)
end

local function drop_lease(device, token)
  if redis.call('HGET', key('lease', device), 'token') == token then
    redis.call('DEL', key('lease', device))
    redis.call('ZREM', key('leases'), device)
  end
end

-- Ends an attempt without an outcome of its own: a cancel that was asked for wins, then another attempt, then failure.
-- Returns {status now, 1 where its queue was empty}. `counts` 0 gives the attempt back.
local function end_attempt(id, token, device, event, reason, counts, max_attempts, failure)
  local record = redis.call('HMGET', key('job', id), 'cancel_requested_at', 'attempt', 'queue', 'score')
  redis.call('HDEL', key('job', id), 'token')
  local fields = { last_token = token, last_event = event, status_reason = reason }
  local by = whose(record[2], token, device)
  if record[1] then
    change(id, 'stop', 'running', fields, reason, by)
    return { 'canceled', 0 }
  end
  if counts == '1' and tonumber(record[2]) >= tonumber(max_attempts) then
    fields.failure = failure
    change(id, 'exhaust', 'running', fields, reason, by)
    return { 'failed', 0 }
  end
  if counts ~= '1' then
    fields.attempt = tonumber(record[2]) - 1
  end
  fields.queued_at = NOW_S
  change(id, event, 'running', fields, reason, by)
  redis.call('HDEL', key('job', id), 'worker', 'device', 'progress', 'started_at')
  count(1, 'requeued', event == 'expire' and 'lost' or counts == '1' and 'infrastructure' or 'handed_back')
  redis.call('DEL', key('woken', record[3])) -- whoever reconciles next wakes a worker for it at once
  -- its old score is lower than that of every job of its class that came later: the front
  return { 'queued', enqueue(id, record[3], record[4]) }
end
