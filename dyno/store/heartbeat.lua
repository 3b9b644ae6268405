#!lua flags=allow-oom
-- Extends the lease of a running attempt, records its progress, and stores its runner's output and the figures of its
-- runs so far. An expired lease is extended too, unless expire.lua has ended it.
--
-- KEYS[1]  job record, HASH
-- KEYS[2]  lease of the device, HASH {job, token, worker, expires_at_ms, length_ms}
-- ARGV[1]  namespace
-- ARGV[2]  job id                       ARGV[3]  token of the attempt
-- ARGV[4]  device id, with its host     ARGV[5]  lease, ms
-- ARGV[6]  progress, JSON; "" for none
-- ARGV[7]  number of a piece of log within the attempt   ARGV[8]  its text; "" for none
-- ARGV[9]  name of the figures within the attempt   ARGV[10] the figures, JSON; "" for none
--
-- Returns {"beating", 1 if a cancel was requested} or {"superseded"}

local id, token, device, progress = ARGV[2], ARGV[3], ARGV[4], ARGV[6]
local record = redis.call('HMGET', KEYS[1], 'status', 'token', 'cancel_requested_at', 'progress', 'worker')
local holder = redis.call('HGET', KEYS[2], 'token')
if not allowed(record[1], 'heartbeat') or record[2] ~= token or (holder and holder ~= token) then
  return { 'superseded' }
end

take_lease(device, id, token, record[5], ARGV[5])
local piece = ARGV[8] ~= '' and keep_log(id, token .. ':' .. ARGV[7], ARGV[8])
local more = piece and { 'log', piece } or nil
if progress ~= '' and progress ~= record[4] then
  change(id, 'heartbeat', record[1], { progress = progress }, progress, more)
elseif more then
  change(id, 'heartbeat', record[1], {}, nil, more)
end
-- The figures get a stream entry of their own, so that each read of that entry gives the same events.
if ARGV[10] ~= '' and is_spare(#ARGV[10], 0) then
  local partial, name = key('job', id, 'partial'), string.sub(redis.sha1hex(token), 1, 12) .. ':' .. ARGV[9]
  if not redis.call('HGET', partial, name) then -- a known name: a retry of a call whose reply was lost
    redis.call('HSET', partial, name, ARGV[10])
    change(id, 'heartbeat', record[1], {}, nil, { 'partial', name })
  end
end
return { 'beating', record[3] and 1 or 0 }
