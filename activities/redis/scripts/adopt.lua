-- Lets the journal that is there now, which is made if there is none, go on with a step whose own was lost with all other keys.
-- KEYS: the journal.
-- ARGV: an id for a new journal, token, the state of the step.
local token = ARGV[2]
redis.call('HSETNX', JOURNAL, 'id', ARGV[1])
redis.call('HSETNX', JOURNAL, field(token, 'whole'), ARGV[3])
return answer('adopted', { id = redis.call('HGET', JOURNAL, 'id'), state = get(token, 'whole') })
