-- Makes the keys of a step what they were, if each is as it was seen, and keeps the outcome.
-- KEYS: the journal.
-- ARGV: id, token, now, outcome, bytes, elements, then for each key its digest and expiry as seen, and 1 if its time has passed.
local token = ARGV[2]
local other = other_journal(ARGV[1])
if other then return other end
local state = get(token, 'state')
if state == 'undone' then return answer('undone', { outcome = get(token, 'outcome') }) end
if state ~= 'undoing' then return answer('fenced', { state = state }) end
local wrong = damage(token, state)
if wrong then return answer('damaged', { what = wrong }) end
local packed = get(token, 'images')
local images, before, left = packed and cmsgpack.unpack(packed) or {}, {}, budget(ARGV[5], ARGV[6])
if #ARGV ~= 6 + 3 * #images then return answer('moved') end
local now = milliseconds()
for i, image in ipairs(images) do
  local at, expires = 7 + 3 * (i - 1), tonumber(image[4])
  local passed = image[2] and expires >= 0 and expires <= now
  local s = look(image[1], left)
  if s.problem or not same(s, ARGV[at], ARGV[at + 1]) or passed ~= (ARGV[at + 2] == '1') then return answer('moved') end
  before[i] = keep(s)
end

local function put_back()
  for i, image in ipairs(images) do
    local key, dump, sum, expires = unpack(image)
    if ARGV[9 + 3 * (i - 1)] == '1' then dump, sum = false, '' end
    put(key, dump, expires)
    if not same(look(key, budget(math.huge, math.huge)), sum, expires) then error('key ' .. i .. ' does not come back as it was') end
  end
  redis.call('HSET', JOURNAL, field(token, 'state'), 'undone', field(token, 'outcome'), ARGV[4], field(token, 'ended'), ARGV[3])
end

local whole, err = pcall(put_back)
if whole then return answer('undone', { outcome = ARGV[4] }) end
for _, s in ipairs(before) do put(s.key, s.dump, s.expires) end
return answer('failed', { error = failure(err) })
