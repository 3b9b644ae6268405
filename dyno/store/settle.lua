#!lua flags=allow-oom
-- Records the outcome of an attempt at a delivery, and when the next attempt is due, if any. If a redelivery was
-- requested meanwhile (redeliver.lua) and this attempt failed, the next attempt is due now and begins a new series.
--
-- KEYS[1]  delivery, HASH
-- KEYS[2]  due, ZSET of jobs by time of the next attempt, ms
-- ARGV[1]  namespace
-- ARGV[2]  job id                       ARGV[3]  token of the attempt
-- ARGV[4]  outcome, a word              ARGV[5]  end of the attempt, JSON
-- ARGV[6]  new status of the delivery: pending, delivered or failed
-- ARGV[7]  ms until the next attempt; with pending only
--
-- Returns {"settled"} or {"superseded"}

local id = ARGV[2]
local record = redis.call('HMGET', KEYS[1], 'token', 'attempts', 'again')
if record[1] ~= ARGV[3] then
  return { 'superseded' }
end

redis.call('HSET', KEYS[1], 'end:' .. record[2], ARGV[5])
redis.call('HDEL', KEYS[1], 'token')
count(1, 'webhook_attempt', ARGV[4])
if record[3] and ARGV[6] ~= 'delivered' then
  redis.call('ZADD', KEYS[2], integer(NOW_MS), id)
elseif ARGV[6] == 'pending' then
  redis.call('ZADD', KEYS[2], integer(NOW_MS + tonumber(ARGV[7])), id)
else
  end_delivery(id, ARGV[6])
end
return { 'settled' }
