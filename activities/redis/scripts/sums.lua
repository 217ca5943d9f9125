-- Returns a digest of the content of each of some values: of what is in it, and not of how the server stores it. For that each is put into
-- the database under a name of ours, which nobody ever sees.
-- KEYS: the journal, that name.
-- ARGV: the values, as DUMP has them.
local sums = {}
local function read()
  for i, dump in ipairs(ARGV) do
    put(KEYS[2], dump, '-1')
    local s = look(KEYS[2], budget(math.huge, math.huge))
    if s.problem then error(s.problem) end
    sums[i] = s.sum
  end
end
local whole, err = pcall(read)
redis.call('DEL', KEYS[2])
if whole then return answer('read', { sums = sums }) end
return answer('failed', { error = failure(err) })
