-- Drops what an undo of a token needs.
-- KEYS: the journal.
-- ARGV: id, token, entry, owner, now.
local token = ARGV[2]
local other = other_journal(ARGV[1])
if other then return other end
local state = get(token, 'state')
if state == 'undoing' then return answer('undoing') end
local wrong = damage(token, state)
if wrong then return answer('damaged', { what = wrong }) end
local holders = get(token, 'holders')
if state == 'applied' and holders and holders ~= '[]' then return answer('held', { holders = holders }) end
if state == 'applied' and get(token, 'held') then return answer('damaged', { what = 'does not say who needs its record' }) end
if not state then
  redis.call('HSET', JOURNAL, field(token, 'state'), 'released', field(token, 'entry'), ARGV[3], field(token, 'owner'), ARGV[4], field(token, 'since'), ARGV[5])
elseif state == 'applied' then
  set(token, 'state', 'released')
end
redis.call('HSETNX', JOURNAL, field(token, 'released'), ARGV[5])
for _, name in ipairs({ 'acted', 'images', 'check', 'replies', 'counts', 'confirm', 'bytes' }) do redis.call('HDEL', JOURNAL, field(token, name)) end
return answer('released')
