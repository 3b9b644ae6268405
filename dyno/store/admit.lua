#!lua flags=allow-oom
-- Counts a request against the rate limit of an API key, and records when the key was used.
-- The limit is a token bucket: it holds one second's worth of requests and refills at the same rate.
--
-- KEYS[1]  API key, HASH
-- ARGV[1]  namespace
-- ARGV[2]  requests per second; "" for no limit
--
-- Returns {"admitted"} or {"limited", ms until the next token} or {"unknown"}

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
