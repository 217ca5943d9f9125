-- Returns a value as DUMP has it, which ends with the version of its format.
-- KEYS: the journal, a name of ours, which nobody ever sees.
redis.call('SET', KEYS[2], '')
local dump = redis.call('DUMP', KEYS[2])
redis.call('DEL', KEYS[2])
return answer('read', { dump = dump })
