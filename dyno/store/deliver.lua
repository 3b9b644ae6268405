#!lua flags=allow-oom
-- Leases a due delivery for the duration of an attempt. The attempt counts from now on, even if the deliverer dies
-- before it settles the attempt. If no attempt is left and the last one was never settled, the delivery has failed.
--
-- Due deliveries wait in lanes: one lane for each pair of owner (an API key; "" for none) and receiver. A call picks
-- the owner that was served longest ago, then its receiver that was served longest ago, then the receiver's job that
-- was due first. So a backlog of one owner or receiver doesn't delay the others.
--
-- KEYS[1]  due, ZSET of jobs by time of the next attempt, ms; deliveries in lanes aren't in it
-- KEYS[2]  ready, ZSET of owners by the time when they were last served, ms. <KEYS[2]>:<owner> is the same for the
--          owner's receivers, and <KEYS[2]>:<owner>:<receiver> is a ZSET of jobs by the time when they were due
-- ARGV[1]  namespace
-- ARGV[2]  token of the attempt         ARGV[3]  duration of the lease, ms
-- ARGV[4]  maximum number of attempts in a series   ARGV[5]  number of attempts whose outcomes are kept
-- ARGV[6]  number of excluded receivers; these receivers follow, as earlier calls returned them, then excluded owners
--
-- Returns {"taken", job id, attempts in this series, receiver, owner, now} or {"none"} or {"again"} (call again: one
-- call is limited to LOOKED_AT jobs)

local LOOKED_AT = 500 -- maximum number of jobs that one call checks, in about 4 ms
local CLOCK_NOTED_MS = 5000 -- a call updates `clock` (a STRING: Redis' time in ms) if it differs by this much

local looked_at = 0
local busy_receivers, busy_owners = {}, {}
local MOST_BUSY = tonumber(ARGV[6])
for index = 7, #ARGV do
  local busy = index <= 6 + MOST_BUSY and busy_receivers or busy_owners
  busy[ARGV[index]] = true
end
-- The time in ms, exact to the microsecond, to order two calls within a millisecond.
local NOW_EXACT = string.format('%.3f', tonumber(TIME[1]) * 1000 + tonumber(TIME[2]) / 1000)

-- Host and port, normalized so that different spellings of one receiver give the same text.
local function receiver_of(url)
  local scheme, authority = string.match(string.lower(url), '^(%a+)://([^/?]*)')
  local host, port = string.match(authority or '', '^(.*):(%d+)$')
  local name = string.gsub(host or authority or '', '%.$', '')
  return name .. ':' .. integer(tonumber(port) or (scheme == 'http' and 80 or 443))
end

-- If Redis' clock has stepped back by 5 s or more since a recent call, moves all due times back by the same amount.
local function follow_clock()
  local clock = key('jobs', 'webhooks', 'clock')
  local back_ms = (tonumber(redis.call('GET', clock)) or 0) - NOW_MS
  if math.abs(back_ms) < CLOCK_NOTED_MS then
    return
  end
  redis.call('SET', clock, integer(NOW_MS))
  local due = back_ms > 0 and redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES') or {}
  for index = 1, #due, 2 do
    redis.call('ZADD', KEYS[1], integer(tonumber(due[index + 1]) - back_ms), due[index])
  end
end

-- Moves deliveries that have become due to their lanes.
local function sort_in()
  local due = redis.call('ZRANGE', KEYS[1], '-inf', integer(NOW_MS), 'BYSCORE', 'LIMIT', 0, LOOKED_AT, 'WITHSCORES')
  for index = 1, #due, 2 do
    local id, at_ms = due[index], due[index + 1]
    local record = redis.call('HMGET', key('job', id, 'webhook'), 'url', 'owner')
    redis.call('ZREM', KEYS[1], id)
    if record[1] then -- else the delivery was deleted with its job
      local owner, receiver = record[2] or '', receiver_of(record[1])
      redis.call('HSET', key('job', id, 'webhook'), 'ready_ms', at_ms)
      redis.call('ZADD', key('jobs', 'webhooks', 'ready', owner, receiver), at_ms, id)
      redis.call('ZADD', key('jobs', 'webhooks', 'ready', owner), 'NX', at_ms, receiver)
      redis.call('ZADD', KEYS[2], 'NX', at_ms, owner)
    end
  end
  return #due == 2 * LOOKED_AT
end

-- Whether the delivery needs an attempt now. A rescheduled delivery returns to its lane when it is due again.
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

-- Returns the first job of a lane that needs an attempt. Removes this job and the jobs before it from the lane.
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

-- Removes an owner or receiver that has no deliveries left, or moves it behind all others if it was served now.
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

follow_clock()
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
