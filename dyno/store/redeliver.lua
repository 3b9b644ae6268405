#!lua flags=allow-oom
-- Has a delivery tried again at once, whatever became of it, with all attempts of a new row. One that is under way goes
-- on; unless it is delivered by that, the new row follows (settle.lua, deliver.lua).
--
-- KEYS[1]  delivery, HASH
-- KEYS[2]  due, ZSET of jobs by when their delivery is to be tried next, ms
-- ARGV[1]  namespace
-- ARGV[2]  job id
--
-- Returns {"due"} or {"under_way"} or {"unknown"}

local record = redis.call('HMGET', KEYS[1], 'status', 'token')
if not record[1] then
  return { 'unknown' }
end
if record[2] and tonumber(redis.call('ZSCORE', KEYS[2], ARGV[2]) or 0) > NOW_MS then
  redis.call('HSET', KEYS[1], 'again', 1)
  return { 'under_way' }
end

redis.call('HSET', KEYS[1], 'status', 'pending', 'tried', 0)
redis.call('HDEL', KEYS[1], 'token', 'ready_ms', 'again')
redis.call('ZADD', KEYS[2], integer(NOW_MS), ARGV[2])
return { 'due' }
