-- Makes sure that no forward of a token changes the whole database any more, and returns the state of the token.
-- KEYS: the journal.
-- ARGV: id, token, the state of one that has not acted, and 1 if one that has acted gets it as well.
local token = ARGV[2]
local other = other_journal(ARGV[1])
if other then return other end
local state = get(token, 'whole')
if not state or (ARGV[4] == '1' and state:sub(1, 8) == 'applied ') then
  state = ARGV[3]
  set(token, 'whole', state)
end
return answer('closed', { state = state })
