#!lua flags=no-writes
-- Reads a page of jobs, newest first. It reads the smallest of the indexes that the filters select, and looks up
-- the jobs in the other indexes. Only filters without an index need the jobs' records.
--
-- KEYS[1]  none: the keys follow from the filters
-- ARGV[1]  namespace
-- ARGV[2]  maximum number of jobs        ARGV[3]  maximum number of index entries to read; a record counts as eight
-- ARGV[4]  creation in ms and ARGV[5] id of the job before the page, both "" for the first page
-- ARGV[6]… filters, name and value: status, workload, owner, device, framework, label; imported: true or false; after
--          and before: times of creation in s, exclusive
--
-- Returns {jobs, ids of the running jobs if any returned job waits, "end" | "more", creation in ms and id of the last
--      job that was checked, the index that was read, ids in this index whose records are gone}
--      each job is {the record as with_fits returns it, joined by NUL; as in read.lua: rank, score, passed score}

local RECORD_COST = 8
local MOST_AT_ONCE = 100

local wanted = {}
for index = 6, #ARGV, 2 do
  wanted[ARGV[index]] = ARGV[index + 1]
end
local by_record = wanted.framework or wanted.device or wanted.imported
local newest, oldest = '+inf', '-inf'
if wanted.before then
  newest = integer(math.floor(tonumber(wanted.before) * 1000))
end
if wanted.after then
  oldest = integer(math.floor(tonumber(wanted.after) * 1000))
end
if ARGV[4] ~= '' and (not wanted.before or tonumber(ARGV[4]) < tonumber(newest)) then
  newest = ARGV[4]
end

-- Returns the index to read, and the others. The cursor of the next page names a job of the index that is read. As the
-- caller must be allowed to see this job, an owner's index is preferred, unless another index is empty.
local function choose_indexes() -- server.call: a damaged index must not look like an empty one
  local found = {}
  for _, name in ipairs({ 'owner', 'status', 'workload' }) do
    if wanted[name] then
      found[#found + 1] = key('jobs', name, wanted[name])
    end
  end
  if wanted.label and string.find(wanted.label, '=', 1, true) then -- names without values have no index
    found[#found + 1] = key('jobs', 'label', label_digest(wanted.label))
  elseif wanted.label then
    by_record = true
  end
  if #found == 0 then
    return key('jobs'), {}
  end
  local smallest, fewest
  for place, name in ipairs(found) do
    local count = server.call('ZCARD', name)
    if not fewest or count < fewest and (count == 0 or not wanted.owner) then
      smallest, fewest = place, count
    end
  end
  return table.remove(found, smallest), found
end

local function has_label(labels)
  for name, value in pairs(labels or {}) do
    if wanted.label == name or wanted.label == name .. '=' .. value then
      return true
    end
  end
  return false
end

local function has_device(asked, worker)
  if asked.kind == wanted.device or asked.id == wanted.device then
    return true
  end
  if not worker then
    return false
  end
  local runs_on = cjson.decode(worker)
  local short = string.match(runs_on.device, '^[^@]*')
  return wanted.device == short
    or wanted.device == string.match(short, '^[^:]*')
    or wanted.device == short .. '@' .. runs_on.host
end

local function matches(id)
  local record = redis.call('HMGET', key('job', id), 'spec', 'worker', 'created_at', 'imported')
  local created_s = tonumber(record[3] or '')
  if created_s and wanted.after and created_s <= tonumber(wanted.after) then
    return false
  end
  if created_s and wanted.before and created_s >= tonumber(wanted.before) then
    return false
  end
  if not by_record or not record[1] then
    return true
  end
  if wanted.imported and (record[4] and 'true' or 'false') ~= wanted.imported then
    return false
  end
  local spec = cjson.decode(record[1])
  return (not wanted.framework or spec.framework == wanted.framework)
    and (not wanted.device or has_device(spec.device, record[2]))
    and (not wanted.label or has_label(spec.labels))
end

local index, others = choose_indexes()
local most, left = tonumber(ARGV[2]), tonumber(ARGV[3])
local jobs, waits, gone = {}, false, {}
local outcome, last_ms, last_id = 'more', ARGV[4], ARGV[5]

-- The entries of `rows` that are in all other indexes, by id.
local function in_others(rows)
  local found = {}
  for _, row in ipairs(rows) do
    found[row[2]] = true
  end
  for _, other in ipairs(others) do
    for _, row in ipairs(rows) do
      found[row[2]] = found[row[2]] and redis.call('ZSCORE', other, row[2])
    end
  end
  return found
end

local function is_fit(row)
  local is_at_limit = (wanted.before or wanted.after) and (row[1] == newest or row[1] == oldest)
  if not by_record and not is_at_limit then
    return true
  end
  left = left - RECORD_COST
  local is_read, fits = pcall(matches, row[2])
  return not is_read or fits -- the caller reports a damaged record
end

local function take(id)
  local record, queue = with_fits(id)
  if #record == 0 then
    gone[#gone + 1] = id
    return
  end
  local job = { table.concat(record, '\0') }
  if queue then
    job[2], job[3], job[4] = place_of(id, queue)
    waits = true
  end
  jobs[#jobs + 1] = job
end

-- Takes the jobs of these entries that match the filters. Returns whether to read more entries.
local function look(rows)
  local found = in_others(rows)
  for _, row in ipairs(rows) do
    if found[row[2]] and is_fit(row) then
      if #jobs == most and redis.call('EXISTS', key('job', row[2])) == 1 then
        return false
      end
      if #jobs < most then
        take(row[2])
      end
    end
    left = left - 1
    last_ms, last_id = row[1], row[2]
    if left <= 0 then
      return false
    end
  end
  return true
end

local offset, at_once = 0, math.min(by_record and MOST_AT_ONCE or most + 1, MOST_AT_ONCE)
while true do
  local entries = server.call('ZRANGE', index, newest, oldest, 'BYSCORE', 'REV', 'LIMIT', offset, at_once, 'WITHSCORES')
  local rows = {}
  for place = 1, #entries, 2 do
    if ARGV[4] == '' or tonumber(entries[place + 1]) < tonumber(ARGV[4]) or entries[place] < ARGV[5] then
      rows[#rows + 1] = { entries[place + 1], entries[place] }
    end
  end
  if not look(rows) then
    break
  end
  if #entries < 2 * at_once then
    outcome = 'end'
    break
  end
  offset = offset + at_once
end
return { jobs, waits and redis.call('ZRANGE', key('jobs', 'status', 'running'), 0, -1) or {}, outcome, last_ms, last_id, index, gone }
