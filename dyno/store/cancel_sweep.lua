#!lua flags=allow-oom
-- Cancels all jobs of a sweep that aren't done, in one step. A repeated call changes nothing. The function `cancel` is
-- cancel.lua.
--
-- KEYS[1]  sweep, HASH
-- ARGV[1]  namespace
-- ARGV[2]… job ids
--
-- Returns {"requested"} or {"already"} or {"finished"} or {"unknown"}

if redis.call('EXISTS', KEYS[1]) == 0 then
  return { 'unknown' }
end
local is_canceled, live = redis.call('HEXISTS', KEYS[1], 'cancel_requested_at') == 1, false
for index = 2, #ARGV do
  local id = ARGV[index]
  local status = redis.call('HGET', key('job', id), 'status')
  if status and not is_done(status) then
    live = true
    cancel({ key('job', id) }, { NAMESPACE, id })
  end
end
if is_canceled then
  return { 'already' }
end
if not live then
  return { 'finished' }
end
redis.call('HSET', KEYS[1], 'cancel_requested_at', NOW_S)
return { 'requested' }
