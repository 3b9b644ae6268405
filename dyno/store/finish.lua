#!lua flags=allow-oom
-- Ends a running job, once: with a result, with a failure, or as canceled if its run was stopped because of a cancel.
-- A result takes precedence over a requested cancel: the runner may have finished before its worker saw the request.
--
-- KEYS[1]  job record, HASH
-- KEYS[2]  result, STRING (compressed JSON)
-- KEYS[3]  raw samples, STRING (compressed JSON)
-- KEYS[4]  series of the result's headline figure, LIST (JSON, newest first); absent if the result has no such figure
-- ARGV[1]  namespace
-- ARGV[2]  job id                       ARGV[3]  token of the attempt
-- ARGV[4]  device id, with its host     ARGV[5]  event: succeed, fail or stop
-- ARGV[6]  status_reason   ARGV[7]  failure, JSON   ARGV[8]  result   ARGV[9]  samples; each "" for none
-- ARGV[10] series of durations, "" for none   ARGV[11] digest and estimated duration, s, of this job
-- ARGV[12] outcome of the comparison with the job's baseline, JSON, "" for none
-- With KEYS[4] only: ARGV[13] the figure, JSON   ARGV[14] maximum length of the series   ARGV[15] its TTL, ms
--
-- Returns {"finished"} or {"already"} (the same token has ended the job with the same event) or {"superseded"}
--      or {"full"}: no memory is left for the samples, and nothing was written; call again without samples

local PACES_KEPT = 60
local PACES_LIVE_MS = 90 * DAY_MS

-- Records the duration of the attempt. pcall: an error in a series must not prevent a result.
local function note_pace(started_at, series, expected_s)
  local took_s = since(started_at)
  if series == '' or not took_s then
    return
  end
  local paces = key('paces', series)
  redis.pcall('LPUSH', paces, expected_s .. ' ' .. string.format('%.3f', took_s))
  redis.pcall('LTRIM', paces, 0, PACES_KEPT - 1)
  redis.pcall('PEXPIRE', paces, PACES_LIVE_MS)
end

local id, token, device, event = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
-- server.call: it fails at a damaged record, so that the worker keeps the outcome (workers/outbox.py)
local record = server.call('HMGET', KEYS[1], 'status', 'token', 'last_token', 'last_event', 'attempt', 'started_at')
if not allowed(record[1], event) or record[2] ~= token then
  local again = record[3] == token and record[4] == event
  return { again and 'already' or 'superseded' }
end

if ARGV[9] ~= '' and not is_spare(#ARGV[9], 0) then
  return { 'full' }
end
require_rights({ 'HSET', 'HINCRBY', 'ZADD', 'ZREM', 'XADD', 'HDEL', 'PEXPIRE', 'HGET', 'SADD' })
if ARGV[8] ~= '' then
  redis.call('SET', KEYS[2], ARGV[8])
end
if ARGV[9] ~= '' then
  redis.call('SET', KEYS[3], ARGV[9])
end
if KEYS[4] then
  -- pcall: as in note_pace
  redis.pcall('LPUSH', KEYS[4], ARGV[13])
  redis.pcall('LTRIM', KEYS[4], 0, tonumber(ARGV[14]) - 1)
  redis.pcall('PEXPIRE', KEYS[4], ARGV[15])
end
if event == 'succeed' then
  note_pace(record[6], ARGV[10], ARGV[11])
end
local fields = { last_token = token, last_event = event }
if ARGV[6] ~= '' then
  fields.status_reason = ARGV[6]
end
if ARGV[7] ~= '' then
  fields.failure = ARGV[7]
end
if ARGV[12] ~= '' then
  fields.judged = ARGV[12]
end
change(id, event, record[1], fields, ARGV[6], whose(record[5], token, device))
redis.call('HDEL', KEYS[1], 'baseline')
drop_lease(device, token)
return { 'finished' }
