#!lua flags=allow-oom
-- Ends a running job, once: with its result, with the failure that stands in its place, or stopped as its caller asked.
-- A cancel that was requested doesn't stand in the way of a result: where the runner was done before its worker heard of
-- the request, the result exists, so it wins over the cancel.
--
-- KEYS[1]  job record, HASH
-- KEYS[2]  result, STRING (JSON)
-- KEYS[3]  raw samples, STRING (JSON)
-- KEYS[4]  series that the result's headline figure goes into, LIST (JSON, newest first); absent for none
-- ARGV[1]  namespace
-- ARGV[2]  job id                       ARGV[3]  token of the attempt
-- ARGV[4]  device id, with its host     ARGV[5]  event: succeed, fail or stop
-- ARGV[6]  status_reason   ARGV[7]  failure, JSON   ARGV[8]  result, JSON   ARGV[9]  samples, JSON; each "" for none
-- ARGV[10] series that says how long such jobs take, "" for none   ARGV[11] seconds that were expected of this one
-- ARGV[12] the figure, JSON   ARGV[13] how many a series keeps   ARGV[14] for how many ms; with KEYS[4] alone
--
-- Returns {"finished"} or {"already"} (the same token ended it so before) or {"superseded"}

local PACES_KEPT = 20
local PACES_LIVE_MS = 90 * DAY_MS

-- How long the attempt took. pcall: whatever is wrong with a series, it must not stand in the way of a result.
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
local record = redis.call('HMGET', KEYS[1], 'status', 'token', 'last_token', 'last_event', 'attempt', 'started_at')
if not allowed(record[1], event) or record[2] ~= token then
  local again = record[3] == token and record[4] == event
  return { again and 'already' or 'superseded' }
end

if ARGV[8] ~= '' then
  redis.call('SET', KEYS[2], ARGV[8])
end
if ARGV[9] ~= '' then
  redis.call('SET', KEYS[3], ARGV[9])
end
if KEYS[4] then
  -- pcall: whatever is wrong with a series, it must not stand in the way of a result
  redis.pcall('LPUSH', KEYS[4], ARGV[12])
  redis.pcall('LTRIM', KEYS[4], 0, tonumber(ARGV[13]) - 1)
  redis.pcall('PEXPIRE', KEYS[4], ARGV[14])
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
redis.call('HDEL', KEYS[1], 'token')
change(id, event, record[1], fields, ARGV[6], whose(record[5], token, device))
drop_lease(device, token)
return { 'finished' }
