-- Compares the keys of a step with what it left, and with what was there before.
-- KEYS: the journal.
-- ARGV: id, token, bytes, elements.
local token = ARGV[2]
local other = other_journal(ARGV[1])
if other then return other end
local state = get(token, 'state')
local wrong = damage(token, state)
if wrong then return { 'damaged', wrong } end
if not state then return { 'none' } end
local packed = state ~= 'undone' and get(token, 'images')
local all = {}
if packed then
  local left = budget(ARGV[3], ARGV[4])
  for i, image in ipairs(cmsgpack.unpack(packed)) do
    local key, dump, sum, expires, left_sum, left_expires, left_kind = unpack(image)
    local s = look(key, left)
    all[i] = { key, sum, expires, left_sum, left_expires, left_kind, s.sum, s.expires, s.kind, s.count, shown(s.items), s.problem or '' }
  end
end
return { 'seen', state, get(token, 'outcome') or '', get(token, 'forgotten') or '', get(token, 'private') or packed and '1' or '', packed and 1 or 0, milliseconds(), all }
