#!lua flags=allow-oom
-- Cancels a waiting job at once, or asks the worker of a running job to stop it. A repeated call changes nothing.
--
-- KEYS[1]  job record, HASH
-- ARGV[1]  namespace
-- ARGV[2]  job id
--
-- Returns {"canceled"} or {"requested"} or {"already"} or {"finished", status} or {"unknown"}

local id = ARGV[2]
local record = redis.call('HMGET', KEYS[1], 'status', 'queue', 'cancel_requested_at')
local status = record[1]
if not status then
  return { 'unknown' }
end
if not allowed(status, 'cancel') then
  return { 'finished', status }
end
if status == 'canceled' or record[3] then
  return { 'already' }
end

require_rights({ 'HINCRBY', 'ZADD', 'ZREM', 'XADD', 'PEXPIRE', 'EXISTS', 'HDEL', 'ZCARD', 'SREM', 'HKEYS', 'SADD' })
change(id, 'cancel', status, { cancel_requested_at = NOW_S })
if status == 'queued' then
  dequeue(id, record[2])
end
return { status == 'queued' and 'canceled' or 'requested' }
