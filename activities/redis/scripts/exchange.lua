-- Makes the database hold other keys, all at once, and takes its token to another state, if that is as expected, and so is every key.
-- KEYS: the journal.
-- ARGV: id, token, the state as expected ('' for none), the next one, then, packed: what all keys are expected to be (name, sum, expiry), and
-- those to change (name, dump or '' for none, expiry).
local token, from, to = ARGV[2], ARGV[3], ARGV[4]
local other = other_journal(ARGV[1])
if other then return other end
local state = get(token, 'whole') or ''
if state ~= from then return answer('fenced', { state = state }) end
local expected, changes = cmsgpack.unpack(ARGV[5]), cmsgpack.unpack(ARGV[6])
local sums, ends, before = {}, {}, {}
for i = 1, #expected, 3 do sums[expected[i]], ends[expected[i]] = expected[i + 1], tonumber(expected[i + 2]) end
for i = 1, #changes, 3 do before[changes[i]] = { false, '-1' } end
for _, key in ipairs(all_keys()) do
  local dump = redis.call('DUMP', key)
  if dump then
    local expires = string.format('%.0f', redis.call('PEXPIRETIME', key))
    if sums[key] ~= redis.sha1hex(expires .. ' ' .. dump) then return answer('moved') end
    sums[key] = nil
    if before[key] then before[key] = { dump, expires } end
  end
end
local now = milliseconds()
for key in pairs(sums) do -- these are gone
  if ends[key] < 0 or ends[key] > now then return answer('moved') end
end

-- From here on something is written. Where the memory is full, the server refuses this first write to a forward.
set(token, 'whole', to)
local function change()
  for i = 1, #changes, 3 do
    local key, dump, expires = changes[i], changes[i + 1] ~= '' and changes[i + 1], changes[i + 2]
    put(key, dump, expires)
    local is = string.format('%.0f', redis.call('PEXPIRETIME', key))
    local passed = dump and expires ~= '-1' and tonumber(expires) <= milliseconds()
    if is ~= (dump and expires or '-2') and not (passed and is == '-2') then error('a key does not come back as it was') end
  end
end
local whole, err = pcall(change)
if whole then return answer('done') end
for key, was in pairs(before) do put(key, was[1], was[2]) end
if from == '' then redis.call('HDEL', JOURNAL, field(token, 'whole')) else set(token, 'whole', from) end
return answer('failed', { error = failure(err) })
