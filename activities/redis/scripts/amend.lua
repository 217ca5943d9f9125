-- Sets fields of a token if some have the values that they are expected to have; '' stands for a field that is not there.
-- KEYS: the journal.
-- ARGV: token, how many are expected and these (name, value), then the fields to set (name, value), where '' removes one.
local token, expected = ARGV[1], tonumber(ARGV[2])
for i = 3, 2 + 2 * expected, 2 do
  if (get(token, ARGV[i]) or '') ~= ARGV[i + 1] then return 0 end
end
for i = 3 + 2 * expected, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', JOURNAL, field(token, ARGV[i]))
  else
    set(token, ARGV[i], ARGV[i + 1])
  end
end
return 1
