#!lua
-- Writes a schedule, if it hasn't changed since the caller read it, and queues the job of its firing. It does both or
-- neither. So if several APIs fire a schedule at the same time, only one of them queues a job, and a crash neither
-- loses a job nor makes a second job. The function `submit` is submit.lua.
--
-- KEYS[1]  schedules of the owner, HASH name -> JSON
-- KEYS[2]  due, ZSET "<owner>:<name>" by the next firing in ms
-- KEYS[3]  owners of schedules, SET
-- ARGV[1]  namespace
-- ARGV[2]  owner, or ""            ARGV[3]  name
-- ARGV[4]  the schedule as read, or "" if there was none
-- ARGV[5]  the schedule to write, or "" to write nothing and remove the schedule from KEYS[2]
-- ARGV[6]  its next firing, ms, or "" for none
-- ARGV[7]  limit on the owner's schedules
-- ARGV[8]  outcome of a firing to count, or ""      ARGV[9]  how many times were missed
-- ARGV[10]… for a firing: the arguments for submit.lua after the namespace
--
-- Returns {"written"} or {"changed"} or {"limit"} or a refusal as submit.lua does

local name, after = ARGV[3], ARGV[5]
local member = ARGV[2] .. ':' .. name
local before = redis.call('HGET', KEYS[1], name) or ''
if after ~= '' and before == after then
  return { 'written' } -- a retry of a call whose reply was lost
end
if before ~= ARGV[4] then
  return { 'changed' }
end
if before == '' and after ~= '' and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[7]) then
  return { 'limit' }
end

if #ARGV >= 10 then
  check_rights({ 'HSET', 'SADD', 'ZADD', 'ZREM' }, KEYS) -- here, before `submit` writes; it checks only its own rights
  local reply = submit({ key('job', ARGV[10]) }, { NAMESPACE, unpack(ARGV, 10) })
  if reply[1] ~= 'submitted' then
    return reply
  end
end

if after ~= '' then
  redis.call('HSET', KEYS[1], name, after)
  redis.call('SADD', KEYS[3], ARGV[2])
end
if ARGV[6] ~= '' then
  redis.call('ZADD', KEYS[2], ARGV[6], member)
else
  redis.call('ZREM', KEYS[2], member)
end
if ARGV[8] ~= '' then
  count(1, 'firing', ARGV[8])
end
if tonumber(ARGV[9]) > 0 then
  count(ARGV[9], 'firing', 'missed')
end
return { 'written' }
