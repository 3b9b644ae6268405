#!lua flags=allow-oom
-- Hands a running job back to the front of its queue, because its worker shuts down or its infrastructure failed. The
-- job ends instead if a cancel was requested, or if the attempt counts and was the last. Hand-backs beyond the limit
-- count as attempts.
--
-- KEYS[1]  job record, HASH
-- ARGV[1]  namespace
-- ARGV[2]  job id                       ARGV[3]  token of the attempt
-- ARGV[4]  device id, with its host     ARGV[5]  reason
-- ARGV[6]  1 if the attempt counts, else 0
-- ARGV[7]  maximum number of attempts   ARGV[8]  failure of the last attempt, JSON
-- ARGV[9]  maximum number of hand-backs that don't count; "" or absent for no limit
--
-- Returns {"queued" | "canceled" | "failed", 1 if its queue was empty} or {"already"} or {"superseded"}

local id, token, device = ARGV[2], ARGV[3], ARGV[4]
-- server.call: as in finish.lua
local record = server.call('HMGET', KEYS[1], 'status', 'token', 'last_token', 'last_event', 'handed_back')
if not allowed(record[1], 'requeue') or record[2] ~= token then
  local again = record[3] == token and record[4] == 'requeue'
  return { again and 'already' or 'superseded' }
end

local most, counts, handed_back = tonumber(ARGV[9] or ''), ARGV[6], tonumber(record[5] or 0) + 1
if most and handed_back > most then
  counts = '1'
end
local ended = end_attempt(id, token, device, 'requeue', ARGV[5], counts, ARGV[7], ARGV[8], most or ARGV[6] ~= '1')
if most then
  redis.call('HSET', KEYS[1], 'handed_back', handed_back)
end
drop_lease(device, token)
return ended
