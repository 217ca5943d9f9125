-- What all scripts share. Each runs with JOURNAL as its first key: a hash with the id of the journal, and the fields of each token as
-- TOKEN:FIELD. It is one key, so that a server that evicts it, or restarts without it, loses all of it: that is noticed.

local JOURNAL = KEYS[1]

local function field(token, name) return token .. ':' .. name end
local function get(token, name) return redis.call('HGET', JOURNAL, field(token, name)) end
local function set(token, name, value) redis.call('HSET', JOURNAL, field(token, name), value) end

-- named returns values with their names before them: a script can only answer with a list.
local function named(parts)
  local all = {}
  for name, value in pairs(parts) do
    all[#all + 1] = name
    all[#all + 1] = value
  end
  return all
end

-- answer returns what happened, and more by name.
local function answer(happened, parts)
  parts = parts or {}
  parts.happened = happened
  return named(parts)
end

-- other_journal returns the answer where the journal is not the one with this id.
local function other_journal(id)
  local is = redis.call('HGET', JOURNAL, 'id')
  if is ~= id then return answer('journal', { id = is }) end
end

-- seal is a digest by which fields of another token, or others of this one, are noticed.
local function seal(token, ...) return redis.sha1hex(cmsgpack.pack({ token, ... })) end

-- damage returns what is wrong with the record of a token; nil if nothing is. What its parts say of each other has to agree: only all of them
-- can have been written together.
local function damage(token, state)
  if not state then
    for _, name in ipairs({ 'entry', 'owner', 'since', 'acted', 'images', 'check' }) do
      if get(token, name) then return 'has lost the state of its record' end
    end
    return nil
  end
  local images, check, acted, outcome = get(token, 'images'), get(token, 'check'), get(token, 'acted'), get(token, 'outcome')
  if state == 'undone' then return nil end -- its outcome says the rest
  if state ~= 'applied' and state ~= 'undoing' and state ~= 'released' then return 'has a record of it that is damaged' end
  if get(token, 'forgotten') then return nil end
  if outcome or get(token, 'ended') then return 'has a record of it that is damaged: its undo has ended before' end
  if state == 'released' then
    if images or check or acted then return 'has a record of it that is damaged: it says that it was released' end
    return nil
  end
  if not images and not check and not acted then
    if state == 'applied' then return 'has lost what its keys held before' end
    return nil
  end
  if not acted or check ~= seal(token, images or '') then return 'has a record of it that is damaged' end
  return nil
end

local function milliseconds()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local COUNT = { string = 'STRLEN', list = 'LLEN', set = 'SCARD', hash = 'HLEN', zset = 'ZCARD', stream = 'XLEN' }

local function pairs_of(flat)
  local all = {}
  for i = 1, #flat, 2 do all[#all + 1] = cmsgpack.pack({ flat[i], flat[i + 1] }) end
  return all
end

-- What a server that restarts computes anew, or forgets, of a stream.
local INTERNAL = {
  ['radix-tree-keys'] = true, ['radix-tree-nodes'] = true, length = true, ['entries-read'] = true, lag = true, ['seen-time'] = true, ['active-time'] = true,
}

local function essential(info)
  local all = {}
  for i = 1, #info, 2 do
    local name, value = info[i], info[i + 1]
    if name == 'groups' or name == 'consumers' then
      local each = {}
      for n, one in ipairs(value) do each[n] = essential(one) end
      value = each
    end
    if not INTERNAL[name] then
      all[#all + 1] = name
      all[#all + 1] = value
    end
  end
  return all
end

local function stream_items(key)
  local all, info = {}, essential(redis.call('XINFO', 'STREAM', key, 'FULL', 'COUNT', 0))
  for i = 1, #info, 2 do
    if info[i] == 'entries' or info[i] == 'groups' then
      for _, each in ipairs(info[i + 1]) do all[#all + 1] = cmsgpack.pack({ info[i], each }) end
    else
      all[#all + 1] = cmsgpack.pack({ info[i], info[i + 1] })
    end
  end
  return all
end

-- items returns the content of a key as a list of packed items; nothing of how the server stores it is in them.
local function items(key, kind)
  if kind == 'string' then return { cmsgpack.pack({ redis.call('GET', key) }) } end
  if kind == 'hash' then return pairs_of(redis.call('HGETALL', key)) end
  if kind == 'zset' then return pairs_of(redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')) end
  if kind == 'stream' then return stream_items(key) end
  if kind == 'none' then return {} end
  local all = {}
  for i, each in ipairs(redis.call(kind == 'list' and 'LRANGE' or 'SMEMBERS', key, unpack(kind == 'list' and { 0, -1 } or {}))) do
    all[i] = cmsgpack.pack({ each })
  end
  return all
end

-- digest is that of the content of a key. The order of a set and of a hash is not part of it.
local function digest(kind, all)
  if kind == 'none' then return '' end
  if kind == 'set' or kind == 'hash' then
    local sums = {}
    for i, each in ipairs(all) do sums[i] = redis.sha1hex(each) end
    table.sort(sums)
    all = sums
  end
  return redis.sha1hex(kind .. table.concat(all))
end

-- Budget bounds what one script reads: a script holds up everybody else.
local function budget(bytes, elements) return { bytes = tonumber(bytes), elements = tonumber(elements) } end

-- look returns the present state of a key: kind, digest, when it expires (in milliseconds, or -1), how many elements it has, and its
-- items. If it has a type of a module, or exceeds the budget, problem says so.
local function look(key, left)
  local kind = redis.call('TYPE', key).ok
  local s = { key = key, kind = kind, sum = '', expires = '-1', count = 0, items = {} }
  if kind == 'none' then return s end
  if not COUNT[kind] then
    s.sum, s.problem = '?', 'has the type ' .. kind .. ', which is one of a module'
    return s
  end
  s.sum, s.expires = '?', string.format('%.0f', redis.call('PEXPIRETIME', key))
  s.count = redis.call(COUNT[kind], key)
  local bytes = redis.call('MEMORY', 'USAGE', key)
  left.bytes = left.bytes - bytes
  if kind ~= 'string' then left.elements = left.elements - s.count end
  if left.bytes < 0 or left.elements < 0 then
    s.problem = string.format('is too large: %d bytes, %d elements', bytes, s.count)
    return s
  end
  s.items = items(key, kind)
  s.sum = digest(kind, s.items)
  return s
end

-- same reports whether a key is as it was seen before.
local function same(s, sum, expires) return s.sum == sum and (sum == '' or s.expires == expires) end

-- all_keys returns the names of all keys of the database, but for ours.
local function all_keys()
  local names, there, cursor = {}, {}, '0'
  repeat
    local page = redis.call('SCAN', cursor, 'COUNT', 1000)
    cursor = page[1]
    for _, key in ipairs(page[2]) do
      if not there[key] and key:sub(1, 7) ~= 'unwind:' then
        there[key] = true
        names[#names + 1] = key
      end
    end
  until cursor == '0'
  return names
end

-- keep adds what brings a key back.
local function keep(s)
  s.dump = s.kind ~= 'none' and redis.call('DUMP', s.key)
  return s
end

-- put makes a key what it was. It raises the error of the server.
local function put(key, dump, expires)
  if not dump then
    redis.call('DEL', key)
  elseif expires == '-1' then
    redis.call('RESTORE', key, 0, dump, 'REPLACE')
  else
    redis.call('RESTORE', key, expires, dump, 'REPLACE', 'ABSTTL')
  end
end

-- shorten bounds an item that is shown or a reply that is kept.
local function shorten(v, most)
  if type(v) == 'string' and #v > most then return v:sub(1, most) .. '...' end
  if type(v) ~= 'table' then return v end
  if v.ok then return v.ok end
  if v.err then return v.err end
  local all = {}
  for i, each in ipairs(v) do
    if i > 1000 then
      all[i] = '...'
      break
    end
    all[i] = shorten(each, most)
  end
  return all
end

local function failure(err)
  if type(err) == 'table' then return err.err or 'unknown' end
  return tostring(err)
end

-- perform runs commands, each a list of a count and as many arguments in ARGV from a place on. It returns their replies, or the number of
-- the one that failed and its error.
local function perform(from)
  local replies = {}
  while from <= #ARGV do
    local n = tonumber(ARGV[from])
    local reply = redis.pcall(unpack(ARGV, from + 1, from + n))
    if type(reply) == 'table' and reply.err then return nil, #replies + 1, reply.err end
    replies[#replies + 1] = shorten(reply, 16384)
    from = from + n + 1
  end
  return replies
end

-- shown are up to twenty items, unpacked and shortened.
local function shown(all)
  local some = {}
  for i = 1, math.min(#all, 20) do some[i] = shorten(cmsgpack.unpack(all[i]), 200) end
  return some
end

-- described is what is shown of a key: some items of so many.
local function described(s, some, total)
  return named({ sum = s.sum, expires = s.expires, kind = s.kind, count = s.count, items = some, total = total })
end
