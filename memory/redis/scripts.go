package redis

import (
	"context"
	"crypto/sha1" // as EVALSHA has it
	"encoding/hex"
	"strconv"

	"github.com/redis/rueidis"
)

// Numbers in Lua are doubles. Whatever is counted here stays far below 2^53; times and revisions pass as text.

// luaWindow collects messages from a seq on, downwards, until it has so many, or has looked at about so many bytes or messages; it tells where it stopped. A script holds up everybody, so that none may read without end. luaExpire keeps the agent's keys alive: both are parts of the scripts below.
const (
	luaWindow = `
local function newest(key, from, want, shown, bytes, looks)
  local out, at, size, looked = {}, from, 0, 0
  while at > 0 and #out < want and size < bytes and looked < looks do
    local fields, width = {}, math.min(want - #out + 16, 1000)
    if looked == 0 then
      width = math.min(width, 8)
    else
      width = math.min(width, looks - looked, math.floor((bytes - size) / (size / looked + 1)) + 1)
    end
    for seq = at, math.max(at - width + 1, 1), -1 do fields[#fields + 1] = string.format('%.0f', seq) end
    local rows = redis.call('HMGET', key, unpack(fields))
    looked = looked + #fields
    for i = 1, #fields do
      local row = rows[i]
      at = at - 1
      if row then
        size = size + #row
        if not shown or string.byte(row) % 2 == 1 then
          out[#out + 1] = row
          if #out == want then break end
        end
      end
    end
  end
  return out, at
end
`
	// All keys of an agent end together: ttl after its end is written, and a life after a write while it lives, renewed hourly so that most writes do not pay for it.
	// It gives the ms, -1 where they are to last for ever, 0 where nothing changes.
	luaExpire = `
local function expire(was, now, ttl, life)
  local left = redis.call('PTTL', KEYS[1])
  local after = 0
  if ttl <= 0 then
    if left > 0 then after = -1 end
  elseif now == '1' then
    if was ~= '1' or left < 0 then after = ttl end
  elseif left < life - 3600000 then
    after = life
  end
  for i = 1, math.min(#KEYS, 9) do
    if after > 0 then redis.call('PEXPIRE', KEYS[i], string.format('%.0f', after)) end
    if after < 0 then redis.call('PERSIST', KEYS[i]) end
  end
  return string.format('%.0f', after)
end
`
	// luaRows writes messages: ARGV from at on, with the number of those that are appended and those that are replaced, each as seq, id, turn, revision, body. It looks at all of them before the
	// first is written.
	luaRows = `
local function rows(at)
  local added, replaced = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local first, second = at + 2, at + 2 + 5 * added
  for i = first, second - 1, 5 do
    if redis.call('HEXISTS', KEYS[2], ARGV[i]) == 1 then return {'seq', ARGV[i]} end
    if ARGV[i + 1] ~= '' and redis.call('HEXISTS', KEYS[5], ARGV[i + 1]) == 1 then return {'id', ARGV[i + 1]} end
  end
  for i = second, second + 5 * replaced - 1, 5 do
    local old = redis.call('HGET', KEYS[2], ARGV[i])
    if not old then return {'absent', ARGV[i]} end
    local named = string.byte(old) % 4 >= 2
    if named ~= (ARGV[i + 1] ~= '') or named and redis.call('HGET', KEYS[5], ARGV[i + 1]) ~= ARGV[i] then return {'absent', ARGV[i]} end
  end
  for i = first, second + 5 * replaced - 1, 5 do
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 4])
    redis.call('ZADD', KEYS[3], ARGV[i + 3], ARGV[i])
    redis.call('ZADD', KEYS[4], ARGV[i + 2], ARGV[i])
    if i < second and ARGV[i + 1] ~= '' then redis.call('HSET', KEYS[5], ARGV[i + 1], ARGV[i]) end
  end
end
`
)

var (
	// readScript reads an agent as of one moment: how many of its newest messages (0: as many as a view wants), whether only those that history shows, how many bytes and messages it looks at. The sixth it gives is the seq
	// at which more would be found, 0 for none.
	readScript = newManyScript(luaWindow + `
local h = redis.call('HMGET', KEYS[1], 'v', 'a', 'r', 'n', 't', 'k')
if not h[1] then return {} end
local want = tonumber(ARGV[1])
if want == 0 then want = tonumber(h[6]) end
local out, at = newest(KEYS[2], tonumber(h[4]) - 1, want, ARGV[2] == '1', tonumber(ARGV[3]), tonumber(ARGV[4]))
if redis.call('EXISTS', KEYS[2]) == 0 then return {'part'} end
local last = out
if ARGV[2] == '1' then last = newest(KEYS[2], tonumber(h[4]) - 1, 1, false, 1, 1000) end
return {h[1], h[2], h[3], h[4], h[5], string.format('%.0f', at), last[1] or '', out}`)

	// moreScript goes on where readScript has stopped: from which seq on, then its arguments. It gives the stamp that stands, where it stopped, and the messages.
	moreScript = rueidis.NewLuaScript(luaWindow + `
local v = redis.call('HGET', KEYS[1], 'v')
if not v then return {} end
local out, at = newest(KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1', tonumber(ARGV[4]), tonumber(ARGV[5]))
return {v, string.format('%.0f', at), out}`)

	// pageScript pages through a ledger: after which seq and revision, how many, whether only what history shows. It looks at so many messages and bytes in one go, and gives where to go on, 0 at the end.
	pageScript = rueidis.NewLuaScript(`
local h = redis.call('HMGET', KEYS[1], 'v', 'n')
if not h[1] then return {} end
local after, rev, limit, shown = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'
local last, out, size, looked = tonumber(h[2]) - 1, {}, 0, 0
if after >= last then return {'0', out} end
local function take(fields)
  local found = redis.call('HMGET', KEYS[2], unpack(fields))
  for i = 1, #fields do
    local row = found[i]
    looked = looked + 1
    if row and (not shown or string.byte(row) % 2 == 1) then
      out[#out + 1] = row
      size = size + #row
      if #out == limit or size > 4000000 then return fields[i] end
    end
  end
end
if rev ~= '0' then
  if redis.call('ZCOUNT', KEYS[3], '(' .. rev, '+inf') <= 2000 then
    local seqs = {}
    for _, seq in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. rev, '+inf')) do
      local n = tonumber(seq)
      if n > after then seqs[#seqs + 1] = n end
    end
    table.sort(seqs)
    for i = 1, #seqs, 100 do
      local fields = {}
      for j = i, math.min(i + 99, #seqs) do fields[#fields + 1] = string.format('%.0f', seqs[j]) end
      local stop = take(fields)
      if stop then return {stop, out} end
    end
    return {'0', out}
  end
end
while after < last do
  local fields = {}
  for seq = after + 1, math.min(after + 100, last) do
    local text = string.format('%.0f', seq)
    if rev == '0' or tonumber(redis.call('ZSCORE', KEYS[3], text) or '0') > tonumber(rev) then fields[#fields + 1] = text end
  end
  after = math.min(after + 100, last)
  looked = looked + 100 - #fields
  if #fields > 0 then
    local stop = take(fields)
    if stop then return {stop, out} end
  end
  if looked >= 2000 and after < last then return {string.format('%.0f', after), out} end
end
return {'0', out}`)

	// commitScript writes a change if the agent is still what the decision saw: 1 the stamp that it saw, 2 the new one, 3 revision, 4 next seq, 5 highest turn, 6 status, 7 the agent ("" = as it was), 8 how many
	// messages a view wants, 9 whether it has ended, 10 ms that its keys last then, 11 ms that they last while it lives, from 12 on the messages. Its keys are those alone that every agent has, since a cluster that
	// moves their slot runs no script on others. It gives how long the others are to last, as luaExpire does.
	commitScript = rueidis.NewLuaScript(luaExpire + luaRows + `
local h = redis.call('HMGET', KEYS[1], 'v', 's')
if not h[1] then return {'gone'} end
if h[1] ~= ARGV[1] then return {'stale'} end
local bad = rows(12)
if bad then return bad end
if ARGV[7] == '' then
  redis.call('HSET', KEYS[1], 'v', ARGV[2], 'r', ARGV[3], 'n', ARGV[4], 't', ARGV[5])
else
  redis.call('HSET', KEYS[1], 'v', ARGV[2], 'r', ARGV[3], 'n', ARGV[4], 't', ARGV[5], 's', ARGV[6], 'a', ARGV[7], 'k', ARGV[8], 'e', ARGV[9])
end
return {'ok', expire((h[2] == '4' or h[2] == '6') and '1' or '0', ARGV[9], tonumber(ARGV[10]), tonumber(ARGV[11]))}`)

	// createScript makes an agent: arguments as of commitScript, the first being the claim. What a server has kept of an earlier one whose head it dropped goes. Each key but the head's begins with an entry that nobody asks for, so that all of them are there to be given an end.
	createScript = rueidis.NewLuaScript(luaExpire + luaRows + `
if redis.call('EXISTS', KEYS[1]) == 1 then return {'taken'} end
if redis.call('GET', KEYS[#KEYS]) == ARGV[1] then return {'void'} end
for i = 2, #KEYS - 1 do redis.call('UNLINK', KEYS[i]) end
local bad = rows(12)
if bad then return bad end
redis.call('HSET', KEYS[1], 'v', ARGV[2], 'r', ARGV[3], 'n', ARGV[4], 't', ARGV[5], 's', ARGV[6], 'a', ARGV[7], 'k', ARGV[8], 'e', ARGV[9])
redis.call('HSET', KEYS[2], '0', '')
redis.call('ZADD', KEYS[3], '-1', '0')
redis.call('ZADD', KEYS[4], '-1', '0')
redis.call('HSET', KEYS[5], '', '0')
expire('0', ARGV[9], tonumber(ARGV[10]), tonumber(ARGV[11]))
return {'ok'}`)

	// dropScript takes an agent away if it is still of the claim.
	dropScript = rueidis.NewLuaScript(`
local v = redis.call('HGET', KEYS[1], 'v')
if not v then return 0 end
if string.sub(v, 1, #ARGV[1]) ~= ARGV[1] then return -1 end
for i = 1, #KEYS - 1 do redis.call('UNLINK', KEYS[i]) end
return 1`)

	// voidScript tells whether an agent of the claim is there; if there is none, none will be made: its maker may be slow and not dead.
	voidScript = rueidis.NewLuaScript(`
local v = redis.call('HGET', KEYS[1], 'v')
if v then
  if string.sub(v, 1, #ARGV[1]) == ARGV[1] then return 1 end
  return 0
end
redis.call('SET', KEYS[#KEYS], ARGV[1], 'PX', ARGV[2])
return 0`)

	// claimScript takes an agent's id, name and keys in its project: 1 id, 2 entry, 3 time, 4 limit, 5 name, 6 join key, 7 whether it lives, from 8 on its own keys.
	claimScript = rueidis.NewLuaScript(`
if ARGV[6] ~= '' then
  local id = redis.call('HGET', KEYS[4], ARGV[6])
  if id then return {'join', id} end
end
if ARGV[7] == '1' then
  local id = ARGV[5] ~= '' and redis.call('HGET', KEYS[2], ARGV[5])
  if id then return {'name', id} end
  for i = 8, #ARGV do
    id = redis.call('HGET', KEYS[3], ARGV[i])
    if id then return {'key', id, ARGV[i]} end
  end
  local limit = tonumber(ARGV[4])
  if limit > 0 then
    local n = redis.call('ZCARD', KEYS[5])
    for _, st in ipairs({0, 1, 2, 3, 5}) do n = n + redis.call('ZCARD', KEYS[13 + st]) end
    if n >= limit then return {'quota'} end
  end
end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return {'id', ARGV[1]} end
local no = redis.call('INCR', KEYS[11])
redis.call('HSET', KEYS[1], ARGV[1], string.format('%016.0f', no) .. ARGV[2])
redis.call('ZADD', KEYS[5], ARGV[3], ARGV[1])
if ARGV[6] ~= '' then redis.call('HSET', KEYS[4], ARGV[6], ARGV[1]) end
if ARGV[7] == '1' then
  if ARGV[5] ~= '' then redis.call('HSET', KEYS[2], ARGV[5], ARGV[1]) end
  for i = 8, #ARGV do redis.call('HSET', KEYS[3], ARGV[i], ARGV[1]) end
end
return {'ok', string.format('%016.0f', no), redis.call('HLEN', KEYS[1]) == 1 and '1' or '0'}`)

	// indexScript changes what finds an agent, if its entry is still what the caller saw: 1 id, 2 the entry that it saw, 3 the new one ("" = none), then commands with the number of their key, each of four words.
	indexScript = rueidis.NewLuaScript(`
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
for i = 4, #ARGV, 4 do
  local what, key, a, b = ARGV[i], KEYS[tonumber(ARGV[i + 1])], ARGV[i + 2], ARGV[i + 3]
  if what == 'zadd' then redis.call('ZADD', key, a, b)
  elseif what == 'zrem' then redis.call('ZREM', key, b)
  elseif what == 'hset' then redis.call('HSET', key, a, b)
  elseif what == 'hdel' then
    if redis.call('HGET', key, a) == b then redis.call('HDEL', key, a) end
  end
end
return 1`)
)

// manyScript is a script that is run for many agents in one round trip to each node.
type manyScript struct {
	*rueidis.Lua
	sha string
}

func newManyScript(text string) manyScript {
	sum := sha1.Sum([]byte(text))
	return manyScript{rueidis.NewLuaScript(text), hex.EncodeToString(sum[:])}
}

// evalMany runs a script once for each list of keys, with the arguments of the same place. rueidis' own way gives the script to every node first, replicas too, and fails where one of them is away that nobody needs.
func (s *Store) evalMany(ctx context.Context, script manyScript, keys, args [][]string) []rueidis.RedisResult {
	cmds := make(rueidis.Commands, len(keys))
	for i := range keys {
		cmds[i] = s.client.B().Evalsha().Sha1(script.sha).Numkeys(int64(len(keys[i]))).Key(keys[i]...).Arg(args[i]...).Build()
	}
	out := s.client.DoMulti(ctx, cmds...)
	for i := range out {
		if e, ok := rueidis.IsRedisErr(out[i].Error()); ok && e.IsNoScript() {
			out[i] = s.eval(ctx, script.Lua, keys[i], args[i]...)
		}
	}
	return out
}

// eval runs a script. A server that has lost its scripts is given them again. While a cluster moves the keys' slot its node runs no script on keys that do not all stand there; nothing was done then, and it is tried
// again for as long as the call may take.
func (s *Store) eval(ctx context.Context, script *rueidis.Lua, keys []string, args ...string) rueidis.RedisResult {
	for try := 0; ; try++ {
		answer := script.Exec(ctx, s.client, keys, args)
		e, ok := rueidis.IsRedisErr(answer.Error())
		if !ok || !e.IsTryAgain() || ctx.Err() != nil {
			return answer
		}
		pause(ctx, try)
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
