#!lua flags=allow-oom
-- Deletes all API keys if all are revoked, and sets a mark: requests then need no key. An API that has seen keys
-- requires a key until it finds this mark, even if the keys are gone.
--
-- KEYS[1]  ids of all API keys, ZSET
-- KEYS[2]  the mark, STRING
-- ARGV[1]  namespace
--
-- Returns {"opened"} or {"standing", id of a key that isn't revoked}

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
