package rediskv

import "github.com/redis/rueidis"

// A space has four keys: v (hash of values), m (hash of updated_ms, expires_ms and size, by key), k
// (sorted set of its keys, by code point), x (sorted set of those that end, by when), and n, the
// bytes of all. A script changes them together. Times are texts of 15 digits, so that they compare
// as numbers do.
const library = `
local v, m, k, x, n = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local function drop(key)
  local meta = redis.call('HGET', m, key)
  if not meta then return false end
  redis.call('HDEL', v, key) redis.call('HDEL', m, key)
  redis.call('ZREM', k, key) redis.call('ZREM', x, key)
  redis.call('DECRBY', n, string.sub(meta, 31))
  return string.sub(meta, 16, 30)
end
local function purge(now)
  local gone = redis.call('ZRANGEBYSCORE', x, '-inf', now, 'LIMIT', 0, 1000)
  for _, key in ipairs(gone) do drop(key) end
  return #gone
end
`

// put stores entries: ARGV is now, the limits of keys and bytes, whether the next argument is what
// m holds of the first key, that, a value for the mark KEYS[6] and its life in ms, and key, times,
// size and value of each entry. It returns 0 and whether the space was empty; 1 and what the space
// would hold, if that is too much; or 2 if the first key has changed or there is the mark.
var put = rueidis.NewLuaScript(library + `
local now, most, bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if KEYS[6] and redis.call('EXISTS', KEYS[6]) == 1 then return {2, 0, 0} end
if ARGV[4] == '1' then
  local meta = redis.call('HGET', m, ARGV[8])
  if meta and string.sub(meta, 16, 30) <= now then meta = false end
  if (meta or '') ~= ARGV[5] then return {2, 0, 0} end
end
local count, size, grown, empty = 0, 0, 0, 0
for try = 1, 2 do
  count, size, grown = redis.call('ZCARD', k), tonumber(redis.call('GET', n) or '0'), 0
  if count == 0 then empty = 1 end
  for i = 8, #ARGV, 4 do
    local meta = redis.call('HGET', m, ARGV[i])
    if meta then size = size - tonumber(string.sub(meta, 31)) else grown = grown + 1 end
    size = size + tonumber(string.sub(ARGV[i + 1], 31))
  end
  if (most == 0 or grown == 0 or count + grown <= most) and (bytes == 0 or size <= bytes) then break end
  if try == 2 or purge(now) == 0 then return {1, count + grown, size} end
  while purge(now) > 0 do end
end
for i = 8, #ARGV, 4 do
  drop(ARGV[i])
  redis.call('HSET', m, ARGV[i], ARGV[i + 1]) redis.call('HSET', v, ARGV[i], ARGV[i + 2])
  redis.call('ZADD', k, 0, ARGV[i]) redis.call('INCRBY', n, string.sub(ARGV[i + 1], 31))
  if ARGV[i + 3] == '1' then redis.call('ZADD', x, string.sub(ARGV[i + 1], 16, 30), ARGV[i]) end
end
if KEYS[6] then redis.call('SET', KEYS[6], ARGV[6], 'PX', ARGV[7]) end
return {0, empty, 0}
`)

// get returns m and v of each key, false for both where there is none.
var get = rueidis.NewLuaScript(library + `
local out = {}
for i, key in ipairs(ARGV) do
  out[2 * i - 1] = redis.call('HGET', m, key) out[2 * i] = redis.call('HGET', v, key)
end
return out
`)

// remove deletes the key ARGV[2] and returns 1 if it was there at ARGV[1].
var remove = rueidis.NewLuaScript(library + `
local ends = drop(ARGV[2])
if ends and ends > ARGV[1] then return 1 end
return 0
`)

// list returns the number of keys, their bytes, and key and m of up to ARGV[3] keys after ARGV[2].
var list = rueidis.NewLuaScript(library + `
while purge(ARGV[1]) > 0 do end
local from = '-'
if ARGV[2] ~= '' then from = '(' .. ARGV[2] end
local out = {tostring(redis.call('ZCARD', k)), redis.call('GET', n) or '0'}
for _, key in ipairs(redis.call('ZRANGEBYLEX', k, from, '+', 'LIMIT', 0, ARGV[3])) do
  out[#out + 1] = key out[#out + 1] = redis.call('HGET', m, key)
end
return out
`)

// clear deletes all keys and returns how many had not ended at ARGV[1].
var clearAll = rueidis.NewLuaScript(library + `
local live = redis.call('ZCARD', k) - redis.call('ZCOUNT', x, '-inf', ARGV[1])
redis.call('UNLINK', v, m, k, x, n)
return live
`)

// sweep deletes up to 1,000 keys that have ended at ARGV[1], and returns how many, and how many
// are left.
var sweep = rueidis.NewLuaScript(library + `
return {purge(ARGV[1]), redis.call('ZCARD', k)}
`)
