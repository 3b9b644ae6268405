#!lua
-- Writes jobs that ran in another Dyno, with their results and samples, in one step. A full Redis refuses all jobs.
--
-- KEYS[1]  none: the keys follow from the ids
-- ARGV[1]  namespace
-- ARGV[2]  owner, or ""                 ARGV[3]  1 if the owner may see the jobs of all others
-- ARGV[4]  number of jobs
-- ARGV[5]… for each job: id, its id in the other Dyno, result, samples ("" for none), number of fields, fields and
--          values of the record, which include `created_ms` and `finished_at`
--
-- Returns for each job: {its id here, 1 if it is new}. A job isn't new if the owner has imported it before, or if it is
--      a job of this Dyno that the owner may see.

local owner, sees_all = ARGV[2], ARGV[3] == '1'

local function is_visible(id)
  local record = redis.call('HMGET', key('job', id), 'status', 'owner')
  return record[1] and (sees_all or record[2] == owner)
end

local function write(id, result, samples, fields)
  redis.call('SET', key('job', id, 'result'), result)
  if samples ~= '' then
    redis.call('SET', key('job', id, 'samples'), samples)
  end
  fields.id, fields.version = id, '1'
  if owner ~= '' then
    fields.owner = owner
    redis.call('ZADD', key('jobs', 'owner', owner), fields.created_ms, id)
  end
  redis.call('ZADD', key('jobs'), fields.created_ms, id)
  redis.call('ZADD', key('jobs', 'workload', fields.workload), fields.created_ms, id)
  index_labels(id, fields.created_ms, label_digests(fields.spec))
  change(id, 'import', nil, fields)
end

require_room(tonumber(ARGV[4]))
require_rights(
  { 'HSET', 'XADD', 'ZADD', 'HMGET', 'PEXPIRE', 'SADD' },
  key('jobs'), key('jobs', 'workload', ''), key('jobs', 'owner', ''), key('jobs', 'label', '')
)
local written, at = {}, 5
for _ = 1, tonumber(ARGV[4]) do
  local id, original, count = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 4])
  if is_visible(original) then
    written[#written + 1] = { original, 0 }
  elseif redis.call('EXISTS', key('job', id)) == 1 then
    written[#written + 1] = { id, 0 }
  else
    local fields = {}
    for place = at + 5, at + 4 + 2 * count, 2 do
      fields[ARGV[place]] = ARGV[place + 1]
    end
    write(id, ARGV[at + 2], ARGV[at + 3], fields)
    written[#written + 1] = { id, 1 }
  end
  at = at + 5 + 2 * count
end
return written
