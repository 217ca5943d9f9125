-- Compares the keys of a step with what it left, and with what was there before.
-- KEYS: the journal.
-- ARGV: id, token, bytes, elements.
local token = ARGV[2]
local other = other_journal(ARGV[1])
if other then return other end
local state = get(token, 'state')
local wrong = damage(token, state)
if wrong then return answer('damaged', { what = wrong }) end
if not state then return answer('none') end
local packed = state ~= 'undone' and get(token, 'images')
local all = {}
if packed then
  local left = budget(ARGV[3], ARGV[4])
  for i, image in ipairs(cmsgpack.unpack(packed)) do
    local key, dump, sum, expires, left_sum, left_expires, left_kind = unpack(image)
    local s = look(key, left)
    all[i] = named({
      key = key, before = named({ sum = sum, expires = expires }), left = named({ sum = left_sum, expires = left_expires, kind = left_kind }),
      now = described(s, shown(s.items), #s.items), problem = s.problem,
    })
  end
end
return answer('seen', {
  state = state, outcome = get(token, 'outcome'), forgotten = get(token, 'forgotten'), private = get(token, 'private') or packed and '1' or '',
  images = packed and 1 or 0, now = milliseconds(), keys = all,
})
