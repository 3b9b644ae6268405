#!lua flags=allow-oom
-- Deletes values of wrong types, and lists the names of their keys. The script itself checks the types: between a check
-- outside the script and the deletion, another process might create the key again.
--
-- KEYS[1]  none: the names are arguments
-- ARGV[1]  namespace
-- ARGV[2]… name and expected type, for each key
--
-- Returns nothing

for at = 2, #ARGV, 2 do
  local stored = server.call('TYPE', ARGV[at]).ok
  if stored ~= 'none' and stored ~= ARGV[at + 1] then
    remove_damaged(ARGV[at], ARGV[at + 1] == 'stream' and 'XADD')
  end
end
