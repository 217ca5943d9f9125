-- Returns all keys of the database but ours: name, what DUMP has of it, and when it expires, one after the other.
-- KEYS: the journal.
-- ARGV: how many bytes, and how many keys, it may return.
local left, most = tonumber(ARGV[1]), tonumber(ARGV[2])
if redis.call('DBSIZE') - 1 > most then return answer('large') end
local all = {}
for _, key in ipairs(all_keys()) do
  local dump = redis.call('DUMP', key)
  if dump then -- else it has expired
    left = left - #key - #dump
    if left < 0 then return answer('large') end
    all[#all + 1] = key
    all[#all + 1] = dump
    all[#all + 1] = string.format('%.0f', redis.call('PEXPIRETIME', key))
  end
end
return answer('captured', { keys = all, now = string.format('%.0f', milliseconds()) })
