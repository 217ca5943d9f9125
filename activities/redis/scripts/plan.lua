-- Says what the commands of a step would do. They run on copies, which have the same names in another logical database that has none of
-- them; nobody ever sees these. The keys themselves are only read.
-- KEYS: the journal, the keys that the commands change, those that they only read.
-- ARGV: id, how many keys change, bytes, elements, the number of this logical database, then the commands.
local other = other_journal(ARGV[1])
if other then return other end
local changed, here = tonumber(ARGV[2]), ARGV[5]
local left, before = budget(ARGV[3], ARGV[4]), {}
for i = 2, #KEYS do
  local s = look(KEYS[i], left)
  if s.problem then return answer('unfit', { key = s.key, problem = s.problem }) end
  if i <= changed + 1 then before[i - 1] = s end
end

-- free returns the number of a logical database without any of the keys.
local function free()
  for n = 15, 0, -1 do
    local selected = tostring(n) ~= here and redis.pcall('SELECT', n)
    if selected and selected.ok then
      local there = 0
      for i = 2, #KEYS do there = there + redis.call('EXISTS', KEYS[i]) end
      if there == 0 then
        redis.call('SELECT', here)
        return n
      end
    end
  end
  redis.pcall('SELECT', here)
end

-- difference returns what of a list of items is not in another, and counts it.
local function difference(all, others)
  local there, only = {}, {}
  for _, each in ipairs(others) do there[each] = (there[each] or 0) + 1 end
  for _, each in ipairs(all) do
    if (there[each] or 0) > 0 then
      there[each] = there[each] - 1
    else
      only[#only + 1] = each
    end
  end
  return shown(only), #only
end

local spare = free()
local function rehearse()
  for i = 2, #KEYS do redis.call('COPY', KEYS[i], KEYS[i], 'DB', spare) end
  redis.call('SELECT', spare)
  local replies, failed, err = perform(6)
  if not replies then return answer('failed', { command = failed, error = err }) end
  local all, room = {}, budget(ARGV[3], ARGV[4])
  for i, was in ipairs(before) do
    local is = look(was.key, room)
    if is.problem then return answer('unfit', { key = is.key, problem = is.problem .. ', once the commands have run' }) end
    local went, went_count = difference(was.items, is.items)
    local came, came_count = difference(is.items, was.items)
    all[i] = named({ key = was.key, before = described(was, went, went_count), after = described(is, came, came_count) })
  end
  return answer('planned', { keys = all })
end

if not spare then
  local all = {}
  for i, was in ipairs(before) do
    local unknown = { sum = '?', expires = '?', kind = '?', count = 0 }
    all[i] = named({ key = was.key, before = described(was, shown(was.items), #was.items), after = described(unknown, {}, 0) })
  end
  return answer('planned', { keys = all })
end
local whole, planned = pcall(rehearse)
redis.call('SELECT', spare)
for i = 2, #KEYS do redis.call('DEL', KEYS[i]) end
redis.call('SELECT', here)
if not whole then planned = answer('failed', { command = 0, error = failure(planned) }) end
return planned
