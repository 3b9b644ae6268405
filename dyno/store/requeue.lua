#!lua flags=allow-oom
-- Hands a running job back to the front of its queue, because its worker shuts down or its infrastructure failed.
-- The job ends instead if a cancel was requested, or if the attempt counts and was the last.
--
-- KEYS[1]  job record, HASH
-- ARGV[1]  namespace
-- ARGV[2]  job id                       ARGV[3]  token of the attempt
-- ARGV[4]  device id, with its host     ARGV[5]  reason
-- ARGV[6]  1 if the attempt counts, else 0
-- ARGV[7]  most attempts                ARGV[8]  failure of the last one, JSON
--
-- Returns {"queued" | "canceled" | "failed", 1 if its queue was empty} or {"already"} or {"superseded"}

local id, token, device = ARGV[2], ARGV[3], ARGV[4]
local record = redis.call('HMGET', KEYS[1], 'status', 'token', 'last_token', 'last_event')
if not allowed(record[1], 'requeue') or record[2] ~= token then
  local again = record[3] == token and record[4] == 'requeue'
  return { again and 'already' or 'superseded' }
end

local ended = end_attempt(id, token, device, 'requeue', ARGV[5], ARGV[6], ARGV[7], ARGV[8])
drop_lease(device, token)
return ended
