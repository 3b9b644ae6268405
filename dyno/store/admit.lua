#!lua flags=allow-oom
-- Takes a request from what an API key may still ask in this second, and notes when the key was used.
-- A bucket that holds as many requests as may come in a second, and fills at that rate.
--
-- KEYS[1]  API key, HASH
-- ARGV[1]  namespace
-- ARGV[2]  requests per second; "" for no limit
--
-- Returns {"admitted"} or {"limited", ms until there is one more} or {"unknown"}

local record = redis.call('HMGET', KEYS[1], 'name', 'tokens', 'filled_ms', 'last_used_at')
if not record[1] then
  return { 'unknown' }
end
local rate = tonumber(ARGV[2])
if rate then
  local passed_ms = math.max(0, NOW_MS - tonumber(record[3] or 0))
  local tokens = math.min(rate, tonumber(record[2] or rate) + passed_ms * rate / 1000)
  if tokens < 1 then
    return { 'limited', math.ceil((1 - tokens) * 1000 / rate) }
  end
  redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens - 1), 'filled_ms', integer(NOW_MS))
end
if not record[4] or NOW_MS / 1000 - tonumber(record[4]) >= 60 then
  redis.call('HSET', KEYS[1], 'last_used_at', NOW_S)
end
return { 'admitted' }
