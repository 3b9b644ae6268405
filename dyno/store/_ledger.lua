-- Code that is prepended to every script: the clock, the job's record, and everything that changes with the record.
-- dyno/store/redis.py adds definitions above this line: TRANSITIONS ("state event" -> state) from dyno/models/job.py,
-- BOUNDS_S (the bounds of each histogram), deletable_patterns() and RESERVED_BYTES.
--
-- KEYS     see each script. Names of keys that depend on stored data are built below, from the namespace. Redis Cluster
--          forbids access to such keys, so Dyno doesn't support it.
-- ARGV[1]  namespace, the first part of every key

local NAMESPACE = ARGV[1]
local JOB_EVENTS_KEPT = 1000 -- per job, about 150 bytes each; only progress events can reach this number
local ALL_EVENTS_KEPT = 10000 -- the backlog for readers that lost their connection
local EVENTS_REWRITTEN = 100 -- maximum number of events rewritten when a job ends, in 0.5 ms
local LOG_BYTES_KEPT = 256 * 1024 -- per job: Dyno keeps only the end of the runners' output
local FULL = '[Redis is full: output was dropped]\n'
local DAY_MS = 86400000
local PRIORITY_STEP = 2 ^ 50 -- distance between the scores of two priority classes; a double holds all scores exactly
local ROUND_STEP = 2 ^ 16 -- distance between the scores of two rounds

local function key(...)
  return NAMESPACE .. ':' .. table.concat({ ... }, ':')
end

-- Lua's tostring keeps 14 digits only
local function integer(number)
  return string.format('%.0f', number)
end

local server = redis

-- Returns "record" for a job's record, and "derived" for a key whose damaged value may be deleted, because Dyno can
-- rebuild the value or doesn't promise to keep it (`Keys` in redis.py). Returns nil for all other keys.
local function role_of_key(name)
  local name_within = string.sub(name, #NAMESPACE + 2)
  if string.find(name_within, '^job:[^:]*$') then
    return 'record'
  end
  for _, pattern in ipairs(deletable_patterns()) do
    if string.find(name_within, pattern) then
      return 'derived'
    end
  end
  return nil
end

local IS_READ = [[ GET HGET HMGET HGETALL HEXISTS HKEYS HVALS HLEN ZRANGE ZRANK ZSCORE ZCARD SISMEMBER XRANGE ]]

-- Deletes a value of a wrong type, and lists its key so that maintenance rebuilds the value (`repair_damage`). Returns
-- false if this script or this user may not delete it.
local function remove_damaged(name, command)
  if type(server.pcall('DEL', name)) == 'table' then
    return false
  end
  if name == key('sequence') then
    server.call('SET', name, integer(tonumber(server.call('TIME')[1]) * 1000)) -- higher than the number of any job
  end
  if type(server.pcall('SADD', key('jobs', 'damaged'), name)) == 'table' then -- the list of damaged keys is damaged
    server.pcall('DEL', key('jobs', 'damaged'))
    server.pcall('SADD', key('jobs', 'damaged'), name)
  end
  server.pcall('HINCRBY', key('counts'), 'repaired ' .. (command == 'XADD' and 'stream' or 'index'), 1)
  return true
end

local function recover(failure, command, name, ...)
  local is_number = string.find(command, 'INCR', 1, true) -- other commands' errors may concern an argument
  local is_damaged = string.find(failure.err, 'WRONGTYPE', 1, true)
    or is_number and string.find(failure.err, 'not an integer', 1, true)
  local kind = is_damaged and role_of_key(name)
  if kind == 'derived' and remove_damaged(name, command) then
    return server.call(command, name, ...)
  end
  if kind and string.find(IS_READ, ' ' .. command .. ' ', 1, true) then
    return server.call(command, key('jobs', 'none'), ...)
  end
  error(failure)
end

-- Like redis.call, but a value of a wrong type doesn't end the script. After the script's first write, the error would
-- leave a job between two states; before that write, it would block a queue, a device or all submits. A value that can
-- be rebuilt is deleted. A damaged record, or a value that the script may not delete, is treated as missing. Only the
-- scripts that end an attempt fail at a damaged record (`server.call`), so that the worker keeps the outcome.
local type, try = type, server.pcall
local function call(...)
  local reply = try(...)
  if type(reply) == 'table' and reply.err then
    return recover(reply, ...)
  end
  return reply
end

local redis = { call = call, pcall = server.pcall, sha1hex = server.sha1hex, acl_check_cmd = server.acl_check_cmd }

local TIME = server.call('TIME')
local NOW_MS = tonumber(TIME[1]) * 1000 + math.floor(tonumber(TIME[2]) / 1000)
local NOW_S = string.format('%d.%06d', tonumber(TIME[1]), tonumber(TIME[2]))

-- Days of UTC since 1970
local function today()
  return integer(math.floor(NOW_MS / DAY_MS))
end

local function allowed(status, event)
  return TRANSITIONS[(status or 'none') .. ' ' .. event] ~= nil
end

-- Fails unless this user may call the command with this key.
local function check_right(command, name)
  if not redis.acl_check_cmd(command, name) then
    error({ err = 'NOPERM this user may not ' .. command .. ' ' .. name .. '; see deploy/redis/users.acl' })
  end
end

-- Fails unless this user may call these commands and write these keys.
local function check_rights(commands, names)
  for index = 1, #commands do
    check_right(commands[index], names[1])
  end
  if not redis.acl_check_cmd('DEL', unpack(names)) then -- one call for all names: each call takes 0.4 us
    for _, name in ipairs(names) do
      check_right('DEL', name)
    end
  end
end

-- Redis doesn't undo the writes of a failed script, and a job whose record and indexes disagree would be lost. So each
-- script with a transition calls this function before its first write. It checks that this user may call `commands`,
-- which the script hasn't called yet, and may write the keys of all transitions and the additional keys.
local has_rights = false
local function require_rights(commands, ...)
  if has_rights then
    return
  end
  local at = NAMESPACE .. ':'
  check_rights(commands, {
    at .. 'job:', at .. 'job::events', at .. 'job::result', at .. 'job::samples', at .. 'job::log', at .. 'job::partial',
    at .. 'job::webhook', at .. 'jobs:status:', at .. 'jobs:queued:', at .. 'jobs:webhooks', at .. 'jobs:webhooks:due',
    at .. 'jobs:webhooks:owner:', at .. 'jobs:done', at .. 'jobs:done:', at .. 'jobs:waiting:', at .. 'events',
    at .. 'expiring', at .. 'queue:', at .. 'queues', at .. 'resting', at .. 'class:', at .. 'classes:', at .. 'passed:',
    at .. 'woken:', at .. 'lease:', at .. 'leases', at .. 'spent:', ...,
  })
  has_rights = true
end

-- The bytes left below `maxmemory`; negative if Redis uses more, math.huge without a limit or the right to call INFO
local function bytes_left()
  local info = redis.pcall('INFO', 'memory')
  local function figure(name)
    return tonumber(type(info) == 'string' and string.match(info, name .. ':(%d+)') or 0)
  end
  local most = figure('\nmaxmemory')
  return most == 0 and math.huge or most - figure('\nused_memory') + figure('\nmem_not_counted_for_evict')
end

-- Returns whether `bytes` are free beyond the memory reserved for live and `further` jobs, and the number of live jobs
local function is_spare(bytes, further)
  local live = redis.call('ZCARD', key('jobs', 'status', 'queued')) + redis.call('ZCARD', key('jobs', 'status', 'running'))
  return bytes_left() >= (live + further) * RESERVED_BYTES + bytes, live
end

-- Fails with Redis' out-of-memory error unless the memory suffices for these new jobs and the results of all live jobs.
-- Only the first call in a script checks the memory.
local has_room_for_jobs = false
local function require_room(jobs)
  if has_room_for_jobs then
    return
  end
  local spare, live = is_spare(0, jobs)
  if not spare then
    error({ err = 'OOM the memory below maxmemory is reserved for the results of ' .. live .. ' queued and running jobs' })
  end
  has_room_for_jobs = true
end

-- Increases a Prometheus counter (dyno/store/metrics.py): a field of one HASH, whose name has words from closed sets.
-- pcall: an error in a counter must not prevent a transition.
local function count(by, ...)
  redis.pcall('HINCRBY', key('counts'), table.concat({ ... }, ' '), by)
end

-- Identifies the attempt in the events of its claim and its end, so that readers can match the two events.
-- `claim` is a digest of the token, because the token is secret.
local function whose(attempt, token, device)
  return { 'attempt', attempt or '', 'device', device, 'claim', string.sub(redis.sha1hex(token), 1, 12) }
end

-- `more`: additional fields, such as the result of whose() at the claim and the end of an attempt.
local function append_event(id, event, status, version, owner, detail, more)
  local fields = { 'job', id, 'event', event, 'status', status, 'version', version, 'at', NOW_S, unpack(more or {}) }
  for name, text in pairs({ detail = detail, owner = owner }) do
    if text and text ~= '' then
      fields[#fields + 1] = name
      fields[#fields + 1] = text
    end
  end
  redis.call('XADD', key('job', id, 'events'), 'MAXLEN', '~', JOB_EVENTS_KEPT, '*', unpack(fields))
  redis.call('XADD', key('events'), 'MAXLEN', '~', ALL_EVENTS_KEPT, '*', unpack(fields))
end

local function fields_of(entry)
  local fields = {}
  for index = 1, #entry[2], 2 do
    fields[entry[2][index]] = entry[2][index + 1]
  end
  return fields
end

local function is_progress(fields)
  return fields.event == 'heartbeat' and not fields.log and not fields.partial
end

-- When a job ends, removes the progress events from the job's own stream: they are most of its events, and no longer
-- needed. Pieces of log stay. The first entry also stays, as it shows readers that they missed nothing. Entries of
-- partial figures hold no events any more, but a reader's position may be within such an entry. So each of these
-- entries is replaced with an entry without a job, which readers skip. If few entries stay, the stream is rewritten,
-- because deleted entries leave gaps in memory. pcall: a user that may not read or delete entries must still be able to
-- end jobs.
local function drop_progress(id)
  local stream, dropped, kept = key('job', id, 'events'), {}, {}
  local entries, changed = redis.pcall('XRANGE', stream, '-', '+'), false
  for index, entry in ipairs(entries.err and {} or entries) do
    local fields = fields_of(entry)
    local list = index > 1 and is_progress(fields) and dropped or kept
    list[#list + 1] = entry
    if index > 1 and fields.partial then
      entry[2], changed = { 'partial', '' }, true
    end
  end
  if (changed or #dropped > 0) and #kept <= EVENTS_REWRITTEN then
    redis.call('DEL', stream)
    for _, entry in ipairs(kept) do
      redis.call('XADD', stream, entry[1], unpack(entry[2]))
    end
  elseif #dropped > 0 then
    for index, entry in ipairs(dropped) do
      dropped[index] = entry[1]
    end
    redis.pcall('XDEL', stream, unpack(dropped))
  end
end

-- Counts a reading in a histogram; does nothing if `seconds` is nil.
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

-- Seconds since `at`, a time in the format of NOW_S; nil if `at` is missing.
local function since(at)
  local began_s = tonumber(at or '')
  return began_s and math.max(0, tonumber(NOW_S) - began_s)
end

local function kind_of(device)
  return string.match(device or '', '^(%l+):') or 'other'
end

-- Counts the time for which an attempt had its device. The time is rounded up: metrics.py rounds the time of a running
-- attempt down, and a counter must not decrease.
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

-- All keys of one job; indexes are not included.
local function keys_of(id)
  local names = { key('job', id) }
  for _, part in ipairs({ 'events', 'result', 'samples', 'log', 'partial', 'webhook' }) do
    names[#names + 1] = key('job', id, part)
  end
  return names
end

-- The digest that names a label's index, jobs:label:<digest>. A label itself may be long and have any characters.
local function label_digest(label)
  return string.sub(redis.sha1hex(label), 1, 16)
end

-- The digests of a job's labels, from its stored spec: one for each "name=value". A name that contains "=" also has a
-- digest of its own, because the filter "a=b" also selects jobs with a label of the name "a=b".
local function label_digests(spec)
  local digests = {}
  if not spec or not string.find(spec, '"labels":{"', 1, true) then
    return digests
  end
  local is_json, document = pcall(cjson.decode, spec)
  local labels = is_json and type(document) == 'table' and document.labels
  for name, value in pairs(type(labels) == 'table' and labels or {}) do
    if type(value) == 'string' then
      digests[#digests + 1] = label_digest(name .. '=' .. value)
      if string.find(name, '=', 1, true) then
        digests[#digests + 1] = label_digest(name)
      end
    end
  end
  table.sort(digests)
  return digests
end

local function index_labels(id, created_ms, digests)
  for _, digest in ipairs(digests) do
    redis.call('ZADD', key('jobs', 'label', digest), created_ms, id)
  end
end

-- `digests`: the digests of the job's labels.
local function expiring_member(id, status, workload, owner, digests)
  local parts = { id, status, workload }
  if owner or #digests > 0 then
    parts[4] = owner or ''
  end
  if #digests > 0 then
    parts[5] = table.concat(digests, ',')
  end
  return table.concat(parts, ':')
end

-- Sets the TTL of a done job's keys. `expiring` tells maintenance which index entries to remove. Returns the workload.
local function expire_record(id, status)
  local record = redis.call('HMGET', key('job', id), 'expires_in_s', 'workload', 'owner', 'spec')
  local ttl_ms = tonumber(record[1]) * 1000
  for _, name in ipairs(keys_of(id)) do
    redis.call('PEXPIRE', name, integer(ttl_ms))
  end
  local member = expiring_member(id, status, record[2], record[3], label_digests(record[4]))
  redis.call('ZADD', key('expiring'), integer(NOW_MS + ttl_ms), member)
  return record[2]
end

-- Stores a piece of log under the next number, and returns the number; nil if the last piece has the same `name`.
-- Drops the oldest pieces beyond LOG_BYTES_KEPT. If the free memory is reserved, stores FULL once instead of pieces.
local function keep_log(id, name, text)
  local log = key('job', id, 'log')
  local kept = redis.call('HMGET', log, 'first', 'next', 'bytes', 'last', 'full')
  if kept[4] == name then
    return nil -- a retry of a call whose reply was lost
  end
  local is_full = not is_spare(#text, 0)
  if is_full and kept[5] then
    return nil
  end
  if is_full then
    text = FULL
    redis.call('HSET', log, 'full', 1)
  elseif kept[5] then
    redis.call('HDEL', log, 'full')
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

-- Creates the delivery of a done job's webhook and makes it due. This happens in the step that ends the job, so that no
-- delivery is lost, and before expire_record, so that the delivery expires with the job.
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

-- Ends a delivery: no further attempts are made unless it is redelivered.
local function end_delivery(id, status)
  redis.call('HSET', key('job', id, 'webhook'), 'status', status)
  redis.call('HDEL', key('job', id, 'webhook'), 'token', 'again')
  redis.call('ZREM', key('jobs', 'webhooks', 'due'), id)
  count(1, 'webhook', status)
end

-- Updates the figures that the limits of an API key apply to: its queued jobs, and its device time today.
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

-- Applies an event to a job. `before`: the job's status before the event (nil for a new job). `fields`: other fields to
-- change; for a new job, the whole record. The calling script must call this function first, and drop the lease or
-- leave the queue last. After an error in between, expire.lua, a claim or audit.lua repairs the lease or the queue.
local function change(id, event, before, fields, detail, more)
  local after = TRANSITIONS[(before or 'none') .. ' ' .. event]
  local done = is_done(after)
  assert(has_rights or before == after, 'rights unchecked')
  fields.status = after
  if done and before ~= after then
    fields.finished_at = fields.finished_at or NOW_S -- an imported job has its own
  end
  local flat = {}
  for name, value in pairs(fields) do
    flat[#flat + 1] = name
    flat[#flat + 1] = value
  end
  redis.call('HSET', key('job', id), unpack(flat))
  local version, record = fields.version, { fields.created_ms, fields.owner, nil, nil, fields.uncharged }
  if before then
    version = redis.call('HINCRBY', key('job', id), 'version', 1)
    record = redis.call('HMGET', key('job', id), 'created_ms', 'owner', 'started_at', 'webhook', 'uncharged')
  end
  if before ~= after then
    redis.call('ZADD', key('jobs', 'status', after), record[1], id)
    if before then
      redis.call('ZREM', key('jobs', 'status', before), id)
    end
    if record[2] and not record[5] then
      note_for_owner(record[2], id, before, after, record[3])
    end
  end
  append_event(id, event, after, version, record[2], detail, more)
  if before == 'running' and after ~= before then
    redis.call('DEL', key('job', id, 'partial')) -- the figures of the runs so far
    redis.call('HDEL', key('job', id), 'token')
  end
  if done and before == 'running' then
    drop_progress(id) -- after the last event: its id must be higher than the ids of dropped events
    redis.call('HDEL', key('job', id), 'needs', 'fits', 'score') -- fields of queued jobs
  end
  if before == 'running' and after ~= before then
    count_attempt(id)
  end
  if done and before ~= after then
    redis.call('SADD', key('jobs', 'done'), record[2] or '')
    redis.call('ZADD', key('jobs', 'done', record[2] or ''), integer(NOW_MS), id) -- an import can't choose this time
    if record[4] then
      note_delivery(id, after, record[4], record[2])
    end
    local workload = expire_record(id, after)
    if event ~= 'import' then
      count_end(workload, after, fields.failure)
    end
  end
  return version
end

-- A job's placement class. Jobs of one class fit the same devices, so a claim checks classes instead of jobs. The class
-- is the job's schema, followed by a digest of its needs (dyno/store/placement.py). A job has no digest if its queue
-- had too many classes (submit.lua), or if a worker couldn't read its spec (claim.lua). The class of such a job is its
-- schema and its answers so far: whether the job fits, for each device profile that was checked.
-- `classes:<queue>`, HASH: class -> answers. `class:<queue>:<class>`, ZSET: the class's jobs, scored as in the queue.
-- Both keys are indexes of the queue. The queue is authoritative: index.lua and audit.lua correct the indexes.
local function class_of(schema, needs, fits)
  if needs then
    return (schema or '0') .. '.' .. needs
  end
  local answers = {}
  for each in string.gmatch(fits or '', '%w+[+-]') do
    answers[#answers + 1] = each
  end
  table.sort(answers)
  return (schema or '0') .. '~' .. table.concat(answers)
end

-- `answers`, followed by the answers in `more` for profiles that `answers` lacks
local function with_answers(answers, more)
  for profile, sign in string.gmatch(more, '(%w+)([+-])') do
    if not string.find(answers, profile, 1, true) then
      answers = answers .. profile .. sign
    end
  end
  return answers
end

-- Adds a job to its class. Without `class`, reads it and `answers` from the job's record. Returns the class's answers.
local function join_class(id, queue, score, class, answers)
  if not class then
    local record = redis.call('HMGET', key('job', id), 'schema', 'needs', 'fits')
    class, answers = class_of(unpack(record)), record[3]
  end
  local classes = key('classes', queue)
  local known = redis.call('HGET', classes, class)
  local all = with_answers(known or '', answers or '')
  if all ~= known then
    redis.call('HSET', classes, class, all)
  end
  redis.call('ZADD', key('class', queue, class), score, id)
  return all
end

local function leave_class(id, queue, class)
  local jobs = key('class', queue, class)
  redis.call('ZREM', jobs, id)
  if redis.call('EXISTS', jobs) == 0 then
    redis.call('HDEL', key('classes', queue), class)
  end
end

local answers_of = {} -- answers by queue and class, read once in a call
local function answers_in(queue, class)
  local name = queue .. ' ' .. class
  answers_of[name] = answers_of[name] or redis.call('HGET', key('classes', queue), class) or ''
  return answers_of[name]
end

-- Returns the record as HGETALL does. If the job waits, adds the answers of its class, and also returns the queue.
local function with_fits(id)
  local record = redis.call('HMGET', key('job', id), 'status', 'queue', 'schema', 'needs')
  local flat, queue = redis.call('HGETALL', key('job', id)), record[1] == 'queued' and record[2]
  if queue and record[4] then
    flat[#flat + 1] = 'fits'
    flat[#flat + 1] = answers_in(queue, class_of(record[3], record[4]))
  end
  return flat, queue
end

local reached = {} -- results by queue, computed once in a call
local function passed_over(queue)
  if reached[queue] == nil then
    local highest = false
    for _, score in ipairs(redis.call('HVALS', key('passed', queue))) do
      if tonumber(score) and (not highest or tonumber(score) > tonumber(highest)) then
        highest = score
      end
    end
    reached[queue] = highest
  end
  return reached[queue]
end

-- Returns a queued job's rank in the queue, its score, and the highest score that a device of the queue passed over.
local function place_of(id, queue)
  local line = key('queue', queue)
  return redis.call('ZRANK', line, id), redis.call('ZSCORE', line, id), passed_over(queue)
end

local function priority_of(score)
  return math.floor(tonumber(score) / PRIORITY_STEP)
end

-- The first (or last) job of a priority class in a queue or in a key's line, with its score; nil if there is none
local function edge_of(line, priority, is_last)
  local from, to = integer(priority * PRIORITY_STEP), '(' .. integer((priority + 1) * PRIORITY_STEP)
  local edge
  if is_last then
    edge = redis.call('ZRANGE', line, to, from, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
  else
    edge = redis.call('ZRANGE', line, from, to, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  end
  return edge[1], tonumber(edge[2])
end

local function round_of(score)
  return score and math.floor(score % PRIORITY_STEP / ROUND_STEP)
end

-- Keys take turns within a priority class, by start-time fair queueing (Goyal, Vin and Cheng, 1996) with jobs of equal
-- cost: each job has a round, and the queue is sorted by rounds. A new job gets the round that follows the later of two
-- rounds: the round of its key's last waiting job, and the last round in which devices for the job took a job. So a
-- key's only job in the queue waits for at most one job of every other key. Requests without a key count as one key.
--
-- `jobs:turns:<queue>`, HASH: "<priority>+<profile>" -> the highest round in which devices of the profile took a job;
-- "<priority>+" -> the highest of all profiles, for jobs without answers. If it is lost, the first job sets it.
-- `jobs:waiting:<queue>:<owner>`, ZSET: the key's jobs, with their scores in the queue. The queue is authoritative.
local function turns_of(queue)
  return key('jobs', 'turns', queue)
end

local function line_of(queue, owner)
  return key('jobs', 'waiting', queue, owner or '')
end

-- The round of the key's last waiting job, or 0. Drops entries of jobs that have left the queue. A job with a damaged
-- record leaves such an entry, because its owner is unknown.
local function own_round(queue, priority, owner)
  while true do
    local id, score = edge_of(line_of(queue, owner), priority, true)
    if not id or redis.call('ZSCORE', key('queue', queue), id) then
      return round_of(score) or 0
    end
    redis.call('ZREM', line_of(queue, owner), id)
  end
end

-- The score of a new job. `fits`: answers by profile, as in the job's record. `number`: orders the jobs of a round.
local function next_score(queue, priority, owner, fits, number)
  local fields = {}
  for profile in string.gmatch(fits or '', '(%w+)%+') do
    fields[#fields + 1] = priority .. '+' .. profile
  end
  fields[1] = fields[1] or priority .. '+'
  local _, head = edge_of(key('queue', queue), priority)
  local reached = math.max((round_of(head) or 0) - 1, own_round(queue, priority, owner))
  for _, round in ipairs(redis.call('HMGET', turns_of(queue), unpack(fields))) do
    reached = math.max(reached, tonumber(round or 0))
  end
  local score = priority * PRIORITY_STEP + (reached + 1) * ROUND_STEP + number % ROUND_STEP
  while redis.call('ZRANGE', key('queue', queue), integer(score), integer(score), 'BYSCORE', 'LIMIT', 0, 1)[1] do
    score = score + 1 -- scores must be unique, because scripts continue reading after a score
  end
  return integer(score)
end

-- Records that a device of this profile takes the job with this score.
local function note_turn(queue, score, profile)
  for _, name in ipairs({ profile, '' }) do
    local turns, field = turns_of(queue), priority_of(score) .. '+' .. name
    if round_of(score) > tonumber(redis.call('HGET', turns, field) or 0) then
      redis.call('HSET', turns, field, integer(round_of(score)))
    end
  end
end

-- Returns 1 if the queue was empty before (then a worker has to be woken), else 0; and the answers of the job's class.
-- `class` and `answers`: as for join_class
local function enqueue(id, queue, score, class, answers)
  redis.call('ZADD', key('queue', queue), score, id)
  redis.call('ZADD', line_of(queue, redis.call('HGET', key('job', id), 'owner')), score, id)
  redis.call('SADD', key('queues'), queue)
  local all = join_class(id, queue, score, class, answers)
  for _, passed in ipairs(redis.call('HVALS', key('passed', queue))) do
    if (tonumber(passed) or math.huge) >= tonumber(score) then
      redis.call('DEL', key('passed', queue)) -- the job is before jobs that were passed over, or `passed` is damaged
      break
    end
  end
  return redis.call('ZCARD', key('queue', queue)) == 1 and 1 or 0, all
end

-- `class`: as for join_class
local function dequeue(id, queue, class)
  local record = redis.call('HMGET', key('job', id), 'schema', 'needs', 'fits', 'owner')
  leave_class(id, queue, class or class_of(record[1], record[2], record[3]))
  redis.call('ZREM', line_of(queue, record[4]), id)
  redis.call('ZREM', key('queue', queue), id)
  if redis.call('ZCARD', key('queue', queue)) == 0 then
    redis.call('SREM', key('queues'), queue)
    redis.call('SREM', key('resting'), queue)
    for _, class in ipairs(redis.call('HKEYS', key('classes', queue))) do
      redis.call('DEL', key('class', queue, class)) -- entries of jobs whose records are damaged
    end
    redis.call('DEL', key('passed', queue), key('classes', queue))
  end
end

-- The number of the owner's queued jobs. At the limit, up to 100 index entries are checked against their records,
-- because a wrong entry would otherwise stay forever.
local function waiting(owner, most)
  local index = key('jobs', 'queued', owner)
  local queued = redis.call('ZCARD', index)
  if queued >= most then
    for _, id in ipairs(redis.call('ZRANGE', index, 0, 99)) do
      if redis.call('HGET', key('job', id), 'status') ~= 'queued' then
        redis.call('ZREM', index, id)
      end
    end
    queued = redis.call('ZCARD', index)
  end
  return queued
end

local function take_lease(device, id, token, worker, lease_ms)
  local expires_ms = integer(NOW_MS + tonumber(lease_ms))
  redis.call('ZADD', key('leases'), expires_ms, device)
  redis.call(
    'HSET', key('lease', device),
    'job', id, 'token', token, 'worker', worker, 'expires_at_ms', expires_ms, 'length_ms', lease_ms
  )
end

local function drop_lease(device, token)
  if redis.call('HGET', key('lease', device), 'token') == token then
    redis.call('DEL', key('lease', device))
    redis.call('ZREM', key('leases'), device)
  end
end

local END_COMMANDS = {
  'HSET', 'HINCRBY', 'ZADD', 'ZREM', 'XADD', 'HDEL', 'PEXPIRE', 'HGET', 'SADD', 'HVALS', 'ZCARD',
}

-- Ends an attempt without an outcome: cancels its job if a client requested that, queues it if an attempt is left,
-- or fails it. Returns {new status, 1 if its queue was empty}. `counts` "0": don't count the attempt. Keeps the lease.
local function end_attempt(id, token, device, event, reason, counts, max_attempts, failure, is_handed_back)
  require_rights(END_COMMANDS)
  local record = redis.call('HMGET', key('job', id), 'cancel_requested_at', 'attempt', 'queue', 'score')
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
  -- The job's old score puts it before all later jobs of its priority class.
  local was_empty = enqueue(id, record[3], record[4])
  change(id, event, 'running', fields, reason, by)
  redis.call('HDEL', key('job', id), 'worker', 'device', 'progress', 'started_at')
  count(1, 'requeued', event == 'expire' and 'lost' or is_handed_back and 'handed_back' or 'infrastructure')
  redis.call('DEL', key('woken', record[3])) -- so that the next maintenance run wakes a worker for it
  return { 'queued', was_empty }
end
