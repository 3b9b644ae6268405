#!lua flags=allow-oom
-- Shortens leases that end later than twice their length from now, because Redis' clock has stepped back since their
-- last heartbeats. The next heartbeat extends a lease again; the lease of a dead worker runs out after its length.
--
-- KEYS[1]  leases, ZSET of devices by expiry in ms
-- ARGV[1]  namespace
-- ARGV[2]  length of a lease whose HASH is lost, ms
-- ARGV[3]  maximum number of leases
--
-- Returns the devices of the shortened leases

local shortened = {}
local latest = integer(NOW_MS + 2 * tonumber(ARGV[2]))
local found = redis.call('ZRANGE', KEYS[1], '(' .. latest, '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[3], 'WITHSCORES')
for at = 1, #found, 2 do
  local device, lease = found[at], key('lease', found[at])
  local length_ms = tonumber(redis.call('HGET', lease, 'length_ms') or ARGV[2])
  if tonumber(found[at + 1]) > NOW_MS + 2 * length_ms then
    local expires_ms = integer(NOW_MS + length_ms)
    redis.call('ZADD', KEYS[1], expires_ms, device)
    if redis.call('EXISTS', lease) == 1 then
      redis.call('HSET', lease, 'expires_at_ms', expires_ms)
    end
    shortened[#shortened + 1] = device
  end
end
return shortened
