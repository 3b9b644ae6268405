#!lua flags=allow-oom
-- Finds an API key, counts a request against its rate limit, and records when it was used.
-- The limit is a token bucket: it holds one second's worth of requests and refills at the same rate.
--
-- KEYS[1]  API key, HASH
-- ARGV[1]  namespace
-- ARGV[2]  digest of the secret
--
-- Returns {"admitted", {name, scope, prefix, created_at, last_used_at, each limit, high_priority, expires_at; nil for a
--      field that the record lacks}}
--      or {"limited", ms until the next token, requests per second} or {"unknown"}: the key is missing or revoked
--      or {"expired", time of the expiry}

local STEPPED_BACK_MS = 5000 -- if a bucket's fill time is more than this in the future, Redis' clock has stepped back

local wanted = { 'digest', 'revoked_at', 'requests_per_s', 'tokens', 'filled_ms', 'last_used_at', 'expires_at' }
local record = redis.call('HMGET', KEYS[1], unpack(wanted))
if not record[1] or record[1] ~= ARGV[2] or record[2] then
  return { 'unknown' }
end
if record[7] and tonumber(record[7]) <= tonumber(NOW_S) then
  return { 'expired', record[7] }
end
local rate = tonumber(record[3] or '')
if rate then
  local passed_ms = NOW_MS - tonumber(record[5] or 0)
  if passed_ms < -STEPPED_BACK_MS then
    passed_ms = 1000 -- the bucket is full
  end
  passed_ms = math.max(0, passed_ms)
  local tokens = math.min(rate, tonumber(record[4] or rate) + passed_ms * rate / 1000)
  if tokens < 1 then
    return { 'limited', math.ceil((1 - tokens) * 1000 / rate), rate }
  end
  redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens - 1), 'filled_ms', integer(NOW_MS))
end
if not record[6] or NOW_MS / 1000 - tonumber(record[6]) >= 60 then
  redis.call('HSET', KEYS[1], 'last_used_at', NOW_S)
end
local shown = {
  'name', 'scope', 'prefix', 'created_at', 'last_used_at',
  'queued_jobs', 'device_s_per_day', 'requests_per_s', 'stored_jobs', 'expires_in_s', 'high_priority', 'expires_at',
}
return { 'admitted', redis.call('HMGET', KEYS[1], unpack(shown)) }
