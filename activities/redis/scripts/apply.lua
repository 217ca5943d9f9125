-- Runs the commands of a step, once for its token, together with its record.
-- KEYS: the journal, the keys that the commands change, those that they only read.
-- ARGV: id, token, entry, owner, now, private, how many keys change, bytes, elements, how many expectations and these (digest, expiry),
-- then the commands.
local id, token, changed = ARGV[1], ARGV[2], tonumber(ARGV[7])
local other = other_journal(id)
if other then return other end
local state = get(token, 'state')
local wrong = damage(token, state)
if wrong then return answer('damaged', { what = wrong }) end
if state == 'applied' then
  local replies, counts, confirm = get(token, 'replies'), get(token, 'counts'), get(token, 'confirm')
  if not replies or not counts or confirm ~= seal(token, replies, counts) then
    return answer('damaged', { what = 'does not hold what its commands returned' })
  end
  return answer('applied', { replies = cmsgpack.unpack(replies), counts = counts })
end
if state then return answer('fenced', { state = state }) end

local left, before = budget(ARGV[8], ARGV[9]), {}
for i = 2, #KEYS do
  local s = look(KEYS[i], left)
  if s.problem then return answer('unfit', { key = s.key, problem = s.problem }) end
  if i <= changed + 1 then before[i - 1] = s end
end
local expected = tonumber(ARGV[10])
for i = 1, expected do
  if not same(before[i], ARGV[9 + 2 * i], ARGV[10 + 2 * i]) then return answer('moved') end
end
for _, s in ipairs(before) do keep(s) end

-- From here on something is written. Where the memory is full, the server refuses this first write.
redis.call('HSET', JOURNAL, field(token, 'state'), 'applied', field(token, 'entry'), ARGV[3], field(token, 'owner'), ARGV[4],
  field(token, 'since'), ARGV[5], field(token, 'private'), ARGV[6])

local function change()
  local replies, failed, err = perform(11 + 2 * expected)
  if not replies then return 'failed', { command = failed, error = err } end
  local images, counts, spare = {}, { came = 0, went = 0, changed = 0 }, budget(ARGV[8], ARGV[9])
  for i, was in ipairs(before) do
    local is = look(was.key, spare)
    if is.problem then return 'unfit', { key = is.key, problem = is.problem .. ', once the commands have run' } end
    images[i] = { was.key, was.dump, was.sum, was.expires, is.sum, is.expires, is.kind }
    if not same(is, was.sum, was.expires) then
      local what = was.kind == 'none' and 'came' or is.kind == 'none' and 'went' or 'changed'
      counts[what] = counts[what] + 1
    end
  end
  local packed = cmsgpack.pack(images)
  local packed_replies, packed_counts = cmsgpack.pack(replies), counts.came .. ' ' .. counts.went .. ' ' .. counts.changed
  redis.call('HSET', JOURNAL, field(token, 'images'), packed, field(token, 'check'), seal(token, packed), field(token, 'acted'), '1', field(token, 'replies'), packed_replies,
    field(token, 'counts'), packed_counts, field(token, 'confirm'), seal(token, packed_replies, packed_counts), field(token, 'bytes'), #packed + #packed_replies)
  return 'applied', { replies = replies, counts = packed_counts }
end

local whole, happened, more = pcall(change)
if not whole then happened, more = 'failed', { command = 0, error = failure(happened) } end
if happened ~= 'applied' then
  for _, s in ipairs(before) do put(s.key, s.dump, s.expires) end
  for _, name in ipairs({ 'state', 'entry', 'owner', 'since', 'private', 'images', 'check', 'acted', 'replies', 'counts', 'confirm', 'bytes' }) do
    redis.call('HDEL', JOURNAL, field(token, name))
  end
end
return answer(happened, more)
