-- Copies a job: repeats the commands that would write it, each time with another id.
--
-- ARGV[1]  the job's id                ARGV[2]  number of the first copy      ARGV[3]  how many copies
-- ARGV[4]… the commands, each as the number of its words and the words. A copy has its own id in place of ARGV[1].

local source, first, copies = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local commands, at = {}, 4
while ARGV[at] do
  local command = { words = {}, marked = {} }
  for index = 1, tonumber(ARGV[at]) do
    command.words[index] = ARGV[at + index]
    if string.find(ARGV[at + index], source, 1, true) then
      command.marked[#command.marked + 1] = index
    end
  end
  commands[#commands + 1] = command
  at = at + #command.words + 1
end

for number = first, first + copies - 1 do
  local id = string.sub(source, 1, 14) .. string.format('%016d', number) -- "job_", the time, and 16 digits
  for _, command in ipairs(commands) do
    local words = { unpack(command.words) }
    for _, index in ipairs(command.marked) do
      words[index] = string.gsub(words[index], source, id)
    end
    redis.call(unpack(words))
  end
end
