#!lua flags=allow-oom
-- Extends the lease of a running attempt, records its progress and stores its runner's output. An expired lease is
-- revived unless it was taken.
--
-- KEYS[1]  job record, HASH
-- KEYS[2]  lease of the device, HASH {job, token, worker, expires_at_ms}
-- ARGV[1]  namespace
-- ARGV[2]  job id                       ARGV[3]  token of the attempt
-- ARGV[4]  device id, with its host     ARGV[5]  lease, ms
-- ARGV[6]  progress, JSON; "" for none
-- ARGV[7]  number of a piece of log within the attempt   ARGV[8]  its text; "" for none
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
return { 'beating', record[3] and 1 or 0 }
