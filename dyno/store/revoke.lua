#!lua flags=allow-oom
-- Revokes an API key: deletes its secret's digest, but keeps its record, because jobs refer to the key.
--
-- KEYS[1]  API key, HASH
-- ARGV[1]  namespace
--
-- Returns {"revoked"} or {"already"} or {"unknown"}

local record = redis.call('HMGET', KEYS[1], 'name', 'revoked_at')
if not record[1] then
  return { 'unknown' }
end
if record[2] then
  return { 'already' }
end
redis.call('HSET', KEYS[1], 'revoked_at', NOW_S)
redis.call('HDEL', KEYS[1], 'digest')
return { 'revoked' }
