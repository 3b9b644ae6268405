#!lua flags=allow-oom
-- Notes how an attempt at a delivery ended, and when the next one is due, if any. Where it was to be sent again meanwhile
-- (redeliver.lua) and was not delivered, that is now, and begins a new row.
--
-- KEYS[1]  delivery, HASH
-- KEYS[2]  due, ZSET of jobs by when their delivery is to be tried next, ms
-- ARGV[1]  namespace
-- ARGV[2]  job id                       ARGV[3]  token of the attempt
-- ARGV[4]  outcome, a word              ARGV[5]  how it ended, JSON
-- ARGV[6]  what the delivery is now: pending, delivered or failed
-- ARGV[7]  in how many ms to try again; with pending alone
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
