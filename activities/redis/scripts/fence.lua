-- Decides the fate of a token: after this no forward acts.
-- KEYS: the journal.
-- ARGV: id, token, entry, owner, now, whether the history knows that the step has acted.
local token = ARGV[2]
local other = other_journal(ARGV[1])
if other then return other end
local state = get(token, 'state')
if not state then
  local wrong = damage(token, state)
  if wrong then return answer('damaged', { what = wrong }) end
  if ARGV[6] == '1' then return answer('lost') end
  redis.call('HSET', JOURNAL, field(token, 'state'), 'undoing', field(token, 'entry'), ARGV[3], field(token, 'owner'), ARGV[4],
    field(token, 'since'), ARGV[5], field(token, 'begun'), ARGV[5])
elseif state == 'applied' then
  -- Where nothing else is left that says that the step has acted, its state did.
  if not get(token, 'images') and not get(token, 'check') then set(token, 'acted', '1') end
  redis.call('HSET', JOURNAL, field(token, 'state'), 'undoing', field(token, 'begun'), ARGV[5])
end
return answer('fenced')
