#!lua flags=allow-oom
-- Repairs the placement classes of a queue after damage to the data. A call puts up to BATCH jobs of the queue into
-- their classes. In the same range of scores, it also removes jobs from classes that they don't fit. Call it with
-- the returned cursor until it returns "indexed".
--
-- KEYS[1]  queue, ZSET of job ids by score
-- ARGV[1]  namespace
-- ARGV[2]  name of the queue            ARGV[3]  cursor, "-inf" for the first call
--
-- Returns {"further", the next cursor} or {"indexed"}

local BATCH = 100 -- 1.5 ms

local queue, from = ARGV[2], ARGV[3]
local found = redis.call('ZRANGE', KEYS[1], from, '+inf', 'BYSCORE', 'LIMIT', 0, BATCH, 'WITHSCORES')
local is_last = #found < 2 * BATCH
local last = is_last and '+inf' or found[#found]

local expected = {} -- class -> its jobs
local listed = {} -- class -> its answers; false if `classes` lacks it
for at = 1, #found, 2 do
  local id = found[at]
  local class = class_of(unpack(redis.call('HMGET', key('job', id), 'schema', 'needs', 'fits')))
  expected[class] = expected[class] or {}
  expected[class][id] = true
  if listed[class] == nil then
    listed[class] = redis.call('HGET', key('classes', queue), class)
  end
  if not listed[class] or not redis.call('ZSCORE', key('class', queue, class), id) then
    listed[class] = join_class(id, queue, found[at + 1])
  end
end
for _, class in ipairs(redis.call('HKEYS', key('classes', queue))) do
  for _, id in ipairs(redis.call('ZRANGE', key('class', queue, class), from, last, 'BYSCORE')) do
    if not (expected[class] and expected[class][id]) then
      leave_class(id, queue, class)
    end
  end
end
if is_last then
  return { 'indexed' }
end
return { 'further', '(' .. last }
