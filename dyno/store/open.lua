#!lua flags=allow-oom
-- Forgets all API keys, once they are revoked, and notes that requests need none: an API that knew of keys believes
-- nothing else, least of all that they are gone.
--
-- KEYS[1]  ids of all API keys, ZSET
-- KEYS[2]  the note, STRING
-- ARGV[1]  namespace
--
-- Returns {"opened"} or {"standing", id}: a key that isn't revoked

local ids = redis.call('ZRANGE', KEYS[1], 0, -1)
for _, id in ipairs(ids) do
  local record = redis.call('HMGET', key('key', id), 'name', 'revoked_at')
  if record[1] and not record[2] then
    return { 'standing', id }
  end
end
for _, id in ipairs(ids) do
  redis.call('DEL', key('key', id))
end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[2], NOW_S)
return { 'opened' }
