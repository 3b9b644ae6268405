#!lua flags=allow-oom
-- Takes a delivery that is due, for as long as an attempt may last. It counts from now on: also where nobody lives to
-- tell how it ended. One of which no attempt is left, as whoever made the last is gone, has failed.
--
-- What is due waits in lanes: of each owner (an API key; "" is nobody), of each of its receivers. The owner that was
-- served longest ago comes first, of its receivers likewise, and of those jobs the one that was due first. So however
-- much is due for one of them, the others' turn comes.
--
-- KEYS[1]  due, ZSET of jobs by when their delivery is to be tried next, ms; those in lanes aren't there any more
-- KEYS[2]  ready, ZSET of owners by when they were served, ms; each has the same of its receivers under its name, and
--          each receiver behind that a ZSET of jobs by when they were due
-- ARGV[1]  namespace
-- ARGV[2]  token of the attempt         ARGV[3]  for how long it is taken, ms
-- ARGV[4]  most attempts in a row       ARGV[5]  of how many attempts the ends are kept
-- ARGV[6]  how many receivers are left out; then these, as they were returned, and the owners that are left out
--
-- Returns {"taken", job id, attempts in this row, receiver, owner, now} or {"none"} or {"again"} (there is more to look
-- at than one call does)

local LOOKED_AT = 500 -- jobs in one call, about 4 ms

local looked_at = 0
local busy_receivers, busy_owners = {}, {}
local MOST_BUSY = tonumber(ARGV[6])
for index = 7, #ARGV do
  local busy = index <= 6 + MOST_BUSY and busy_receivers or busy_owners
  busy[ARGV[index]] = true
end
-- Exact to the microsecond: two calls within a millisecond are told apart.
local NOW_EXACT = string.format('%.3f', tonumber(TIME[1]) * 1000 + tonumber(TIME[2]) / 1000)

-- Host and port, which all spellings of one receiver have in common.
local function receiver_of(url)
  local scheme, authority = string.match(string.lower(url), '^(%a+)://([^/?]*)')
  local host, port = string.match(authority or '', '^(.*):(%d+)$')
  local name = string.gsub(host or authority or '', '%.$', '')
  return name .. ':' .. integer(tonumber(port) or (scheme == 'http' and 80 or 443))
end

-- What has become due goes to its lane.
local function sort_in()
  local due = redis.call('ZRANGE', KEYS[1], '-inf', integer(NOW_MS), 'BYSCORE', 'LIMIT', 0, LOOKED_AT, 'WITHSCORES')
  for index = 1, #due, 2 do
    local id, at_ms = due[index], due[index + 1]
    local record = redis.call('HMGET', key('job', id, 'webhook'), 'url', 'owner')
    redis.call('ZREM', KEYS[1], id)
    if record[1] then -- else it went with its job
      local owner, receiver = record[2] or '', receiver_of(record[1])
      redis.call('HSET', key('job', id, 'webhook'), 'ready_ms', at_ms)
      redis.call('ZADD', key('jobs', 'webhooks', 'ready', owner, receiver), at_ms, id)
      redis.call('ZADD', key('jobs', 'webhooks', 'ready', owner), 'NX', at_ms, receiver)
      redis.call('ZADD', KEYS[2], 'NX', at_ms, owner)
    end
  end
  return #due == 2 * LOOKED_AT
end

-- Whether it is still to be tried; one that was scheduled anew since comes back to its lane by itself.
local function is_ready(id)
  local record = redis.call('HMGET', key('job', id, 'webhook'), 'status', 'tried', 'again')
  if record[1] ~= 'pending' or redis.call('ZSCORE', KEYS[1], id) then
    return false
  end
  local tried = tonumber(record[2])
  if not tried or (tried >= tonumber(ARGV[4]) and not record[3]) then
    end_delivery(id, 'failed')
    return false
  end
  return true
end

-- The first job of a lane that is to be tried; those looked at leave it.
local function first_of(lane)
  while looked_at < LOOKED_AT do
    local id = redis.call('ZRANGE', lane, 0, 0)[1]
    if not id then
      return nil
    end
    looked_at = looked_at + 1
    redis.call('ZREM', lane, id)
    if is_ready(id) then
      return id
    end
  end
  return nil
end

-- Out where nothing is left for it; where it was served, behind all others of its kind.
local function renew(kind, name, was_served)
  if redis.call('EXISTS', kind .. ':' .. name) == 0 then
    redis.call('ZREM', kind, name)
  elseif was_served then
    redis.call('ZADD', kind, NOW_EXACT, name)
  end
end

local function next_of(owner)
  local receivers, passed = KEYS[2] .. ':' .. owner, 0
  while looked_at < LOOKED_AT do
    local receiver = redis.call('ZRANGE', receivers, passed, passed)[1]
    if not receiver then
      return nil
    end
    if busy_receivers[receiver] then
      passed = passed + 1
    else
      local id = first_of(receivers .. ':' .. receiver)
      renew(receivers, receiver, id)
      if id then
        return id, receiver
      end
    end
  end
  return nil
end

local function take(id, receiver, owner)
  local delivery = key('job', id, 'webhook')
  if redis.call('HGET', delivery, 'again') then
    redis.call('HSET', delivery, 'tried', 0)
  end
  local tried = redis.call('HINCRBY', delivery, 'tried', 1)
  local attempt = redis.call('HINCRBY', delivery, 'attempts', 1)
  redis.call('HSET', delivery, 'token', ARGV[2], 'at:' .. attempt, NOW_S)
  local old = integer(attempt - tonumber(ARGV[5]))
  redis.call('HDEL', delivery, 'again', 'ready_ms', 'at:' .. old, 'end:' .. old)
  redis.call('ZADD', KEYS[1], integer(NOW_MS + tonumber(ARGV[3])), id)
  return { 'taken', id, tried, receiver, owner, NOW_S }
end

local more = sort_in()
for _, owner in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  if not busy_owners[owner] then
    local id, receiver = next_of(owner)
    renew(KEYS[2], owner, id)
    if id then
      return take(id, receiver, owner)
    end
    more = more or looked_at == LOOKED_AT
  end
end
return { more and 'again' or 'none' }
