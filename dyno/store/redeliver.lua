#!lua flags=allow-oom
-- Makes a delivery due at once, whatever its status, with a new series of attempts. A running attempt continues; if it
-- fails, the new series follows (settle.lua, deliver.lua).
--
-- KEYS[1]  delivery, HASH
-- KEYS[2]  due, ZSET of jobs by time of the next attempt, ms
-- ARGV[1]  namespace
-- ARGV[2]  job id
--
-- Returns {"due"} or {"under_way"} or {"unknown"}

local record = redis.call('HMGET', KEYS[1], 'status', 'token')
if not record[1] then
  return { 'unknown' }
end
redis.call('HSET', KEYS[1], 'redelivered', 1) -- retention needn't wait for this delivery any more
if record[2] and tonumber(redis.call('ZSCORE', KEYS[2], ARGV[2]) or 0) > NOW_MS then
  redis.call('HSET', KEYS[1], 'again', 1)
  return { 'under_way' }
end

redis.call('HSET', KEYS[1], 'status', 'pending', 'tried', 0)
redis.call('HDEL', KEYS[1], 'token', 'ready_ms', 'again')
redis.call('ZADD', KEYS[2], integer(NOW_MS), ARGV[2])
return { 'due' }
