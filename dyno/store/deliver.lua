#!lua flags=allow-oom
-- Takes the delivery that is due first, for as long as an attempt may last. It counts from now on: also where nobody
-- lives to tell how it ended. One of which no attempt is left, as whoever made the last is gone, has failed.
--
-- KEYS[1]  due, ZSET of jobs by when their delivery is to be tried next, ms
-- ARGV[1]  namespace
-- ARGV[2]  token of the attempt         ARGV[3]  for how long it is taken, ms
-- ARGV[4]  most attempts in a row       ARGV[5]  of how many attempts the ends are kept
-- ARGV[6]… receivers that are left out: host, and port where the URL has one
--
-- Returns {"taken", job id, attempts in this row, receiver, now} or {"none"}

local LOOKED_AT = 1000 -- so many due for receivers that are left out may stand before one that isn't

local busy = {}
for index = 6, #ARGV do
  busy[ARGV[index]] = true
end

local function take(id, delivery, receiver)
  local tried = redis.call('HINCRBY', delivery, 'tried', 1)
  local attempt = redis.call('HINCRBY', delivery, 'attempts', 1)
  redis.call('HSET', delivery, 'token', ARGV[2], 'at:' .. attempt, NOW_S)
  local old = integer(attempt - tonumber(ARGV[5]))
  redis.call('HDEL', delivery, 'at:' .. old, 'end:' .. old)
  redis.call('ZADD', KEYS[1], integer(NOW_MS + tonumber(ARGV[3])), id)
  return { 'taken', id, tried, receiver, NOW_S }
end

for _, id in ipairs(redis.call('ZRANGE', KEYS[1], '-inf', integer(NOW_MS), 'BYSCORE', 'LIMIT', 0, LOOKED_AT)) do
  local delivery = key('job', id, 'webhook')
  local record = redis.call('HMGET', delivery, 'url', 'tried')
  if not record[1] then
    redis.call('ZREM', KEYS[1], id) -- it went with its job
  elseif tonumber(record[2]) >= tonumber(ARGV[4]) then
    end_delivery(id, 'failed')
  else
    local receiver = string.lower(string.match(record[1], '//([^/?]*)'))
    if not busy[receiver] then
      return take(id, delivery, receiver)
    end
  end
end
return { 'none' }
