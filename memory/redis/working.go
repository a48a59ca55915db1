package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// luaOver takes entries of working memory away whose end has come, at most so many, and counts their bytes off.
const luaOver = `
local function over(now, most)
  local gone = redis.call('ZRANGEBYSCORE', KEYS[8], '-inf', now, 'LIMIT', '0', most)
  local size = 0
  for _, key in ipairs(gone) do
    size = size + tonumber(string.match(redis.call('HGET', KEYS[7], key), '^%d+'))
    redis.call('HDEL', KEYS[6], key)
    redis.call('HDEL', KEYS[7], key)
    redis.call('ZREM', KEYS[8], key)
  end
  if size > 0 then redis.call('HINCRBY', KEYS[1], 'w', string.format('%.0f', -size)) end
  return #gone
end
`

var (
	// putWorkScript stores an entry: 1 claim, 2 key, 3 value, 4 its size, 5 when it is set, 6 when it ends, 7 now, 8 most keys, 9 most bytes. It gives what there would be where that is too much.
	putWorkScript = rueidis.NewLuaScript(luaOver + `
local h = redis.call('HMGET', KEYS[1], 'v', 'e', 'w')
if not h[1] or string.sub(h[1], 1, #ARGV[1]) ~= ARGV[1] then return {'gone'} end
if h[2] == '1' then return {'ended'} end
over(ARGV[7], -1)
local old = redis.call('HGET', KEYS[7], ARGV[2])
local keys = redis.call('ZCARD', KEYS[8])
local size = tonumber(redis.call('HGET', KEYS[1], 'w') or '0') + tonumber(ARGV[4])
if old then size = size - tonumber(string.match(old, '^%d+')) else keys = keys + 1 end
if keys > tonumber(ARGV[8]) or size > tonumber(ARGV[9]) then return {'full', string.format('%.0f', keys), string.format('%.0f', size)} end
redis.call('HSET', KEYS[6], ARGV[2], ARGV[3])
redis.call('HSET', KEYS[7], ARGV[2], ARGV[4] .. ' ' .. ARGV[5] .. ' ' .. ARGV[6])
redis.call('ZADD', KEYS[8], ARGV[6], ARGV[2])
redis.call('HSET', KEYS[1], 'w', string.format('%.0f', size))
local left = redis.call('PTTL', KEYS[1])
if left > 0 then
  for i = 6, 8 do redis.call('PEXPIRE', KEYS[i], left) end
end
return {'ok'}`)

	// delWorkScript takes an entry away: 1 key, 2 now.
	delWorkScript = rueidis.NewLuaScript(`
if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
local meta = redis.call('HGET', KEYS[7], ARGV[1])
if not meta or tonumber(redis.call('ZSCORE', KEYS[8], ARGV[1])) <= tonumber(ARGV[2]) then return 0 end
redis.call('HDEL', KEYS[6], ARGV[1])
redis.call('HDEL', KEYS[7], ARGV[1])
redis.call('ZREM', KEYS[8], ARGV[1])
redis.call('HINCRBY', KEYS[1], 'w', '-' .. string.match(meta, '^%d+'))
return 1`)

	// clearWorkScript takes all entries away: 1 now.
	clearWorkScript = rueidis.NewLuaScript(`
if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
local n = redis.call('ZCOUNT', KEYS[8], '(' .. ARGV[1], '+inf')
redis.call('UNLINK', KEYS[6], KEYS[7], KEYS[8])
redis.call('HDEL', KEYS[1], 'w')
return n`)

	// sweepWorkScript takes entries away whose end has come: 1 now, 2 at most so many. It gives how many, and when the next ends.
	sweepWorkScript = rueidis.NewLuaScript(luaOver + `
if redis.call('EXISTS', KEYS[1]) == 0 then return {'0', ''} end
local n = over(ARGV[1], ARGV[2])
local next = redis.call('ZRANGE', KEYS[8], 0, 0, 'WITHSCORES')
return {string.format('%.0f', n), next[2] or ''}`)
)

// sweepSlice is how many entries of one agent are erased in one go.
const sweepSlice = 500

// PutWorking stores an entry.
func (s *Store) PutWorking(ctx context.Context, project, id string, e memory.WorkingEntry, limit memory.WorkingLimit, nowMS int64) error {
	k := key{project, id}
	return s.call(ctx, "put working memory", func(ctx context.Context) error {
		value := string(s.sealer.Seal(e.Value, workingOwner(project, id, e.Key)))
		for range maxTries {
			v, err := s.current(ctx, k)
			if err != nil {
				return err
			}
			if err := v.head.Agent.MustBeActive(fault.Stopped); err != nil {
				return err
			}
			answer, err := s.eval(ctx, putWorkScript, s.agentKeys(k), v.claim+".", e.Key, value, itoa(e.Size()), itoa(e.UpdatedMS), itoa(e.ExpiresMS), itoa(nowMS),
				strconv.Itoa(limit.Keys), itoa(limit.Bytes)).AsStrSlice()
			if err != nil {
				return err
			}
			if len(answer) == 0 {
				return errBadRow
			}
			switch answer[0] {
			case "ok":
				// Behind the entry, so that a sweep cannot pass it over; a crash in between leaves it to the agent's end, and nobody sees it after its own.
				due := s.client.B().Zadd().Key(s.projectKey(project, kWorkDue)).Lt().ScoreMember().ScoreMember(float64(e.ExpiresMS), id).Build()
				return s.client.Do(ctx, due).Error()
			case "full":
				keys, err := strconv.ParseInt(answer[1], 10, 64)
				size, err2 := strconv.ParseInt(answer[2], 10, 64)
				if err != nil || err2 != nil {
					return errBadRow
				}
				return limit.Check(keys, size)
			}
			s.cache.Drop(k) // it has ended, or is another
		}
		return fault.New(fault.Unavailable, "agent %s is made and erased all the time", id)
	})
}

// meta reads what is kept of an entry beside its value.
func parseMeta(key, text string) (memory.WorkingKey, error) {
	k := memory.WorkingKey{Key: key}
	words := strings.Split(text, " ")
	if len(words) != 3 {
		return k, errBadRow
	}
	for i, into := range []*int64{&k.Bytes, &k.UpdatedMS, &k.ExpiresMS} {
		n, err := strconv.ParseInt(words[i], 10, 64)
		if err != nil {
			return k, fmt.Errorf("an entry of working memory: %w: %w", err, errBadRow)
		}
		*into = n
	}
	return k, nil
}

// Working gives an entry.
func (s *Store) Working(ctx context.Context, project, id, name string, nowMS int64) (e memory.WorkingEntry, err error) {
	k := key{project, id}
	err = s.read(ctx, "read working memory", func(ctx context.Context) error {
		b := s.client.B()
		answers := s.client.DoMulti(ctx, b.Hget().Key(s.agentKey(k, kHead)).Field("v").Build(),
			s.client.B().Hget().Key(s.agentKey(k, kWorkMeta)).Field(name).Build(), s.client.B().Hget().Key(s.agentKey(k, kWork)).Field(name).Build())
		if err := answers[0].Error(); err != nil {
			if rueidis.IsRedisNil(err) {
				return noAgent(id)
			}
			return err
		}
		text, err := answers[1].ToString()
		var sealed []byte
		if err == nil {
			sealed, err = answers[2].AsBytes()
		}
		if rueidis.IsRedisNil(err) {
			return memory.ErrNoWorking(name)
		}
		if err != nil {
			return err
		}
		meta, err := parseMeta(name, text)
		if err != nil {
			return err
		}
		if meta.ExpiresMS <= nowMS {
			return memory.ErrNoWorking(name)
		}
		e = memory.WorkingEntry{Key: name, UpdatedMS: meta.UpdatedMS, ExpiresMS: meta.ExpiresMS}
		e.Value, err = s.sealer.Open(sealed, workingOwner(project, id, name))
		return err
	})
	return e, err
}

// DeleteWorking takes an entry away.
func (s *Store) DeleteWorking(ctx context.Context, project, id, name string, nowMS int64) (found bool, err error) {
	err = s.call(ctx, "delete working memory", func(ctx context.Context) error {
		n, err := s.eval(ctx, delWorkScript, s.agentKeys(key{project, id}), name, itoa(nowMS)).AsInt64()
		if err == nil && n < 0 {
			err = noAgent(id)
		}
		found = n == 1
		return err
	})
	return found, err
}

// WorkingKeys lists an agent's keys.
func (s *Store) WorkingKeys(ctx context.Context, project, id, after string, limit int, nowMS int64) (page memory.WorkingPage, err error) {
	k := key{project, id}
	err = s.read(ctx, "list working memory", func(ctx context.Context) error {
		page = memory.WorkingPage{}
		answers := s.client.DoMulti(ctx, s.client.B().Hget().Key(s.agentKey(k, kHead)).Field("v").Build(), s.client.B().Hgetall().Key(s.agentKey(k, kWorkMeta)).Build())
		if err := answers[0].Error(); err != nil {
			if rueidis.IsRedisNil(err) {
				return noAgent(id)
			}
			return err
		}
		all, err := answers[1].AsStrMap()
		if err != nil {
			return err
		}
		var list []memory.WorkingKey
		for name, text := range all {
			w, err := parseMeta(name, text)
			if err != nil {
				return err
			}
			if w.ExpiresMS > nowMS {
				page.Total++
				page.Bytes += w.Bytes
				if name > after {
					list = append(list, w)
				}
			}
		}
		slices.SortFunc(list, func(a, b memory.WorkingKey) int { return strings.Compare(a.Key, b.Key) }) // by bytes, which in UTF-8 is by code point
		page.Keys = slices.Clip(list[:min(len(list), max(limit, 1))])
		return nil
	})
	return page, err
}

// ClearWorking takes all of an agent's entries away.
func (s *Store) ClearWorking(ctx context.Context, project, id string, nowMS int64) (n int, err error) {
	err = s.call(ctx, "clear working memory", func(ctx context.Context) error {
		gone, err := s.eval(ctx, clearWorkScript, s.agentKeys(key{project, id}), itoa(nowMS)).AsInt64()
		if err == nil && gone < 0 {
			err = noAgent(id)
		}
		n = int(gone)
		return err
	})
	return n, err
}

// SweepWorking erases what has expired.
func (s *Store) SweepWorking(ctx context.Context, nowMS int64) (n int, err error) {
	var projects []string
	err = s.read(ctx, "read projects", func(ctx context.Context) (err error) {
		projects, err = s.projectList(ctx)
		return err
	})
	for _, project := range projects {
		for more := true; more && err == nil; {
			err = s.call(ctx, "sweep working memory", func(ctx context.Context) error {
				swept := 0
				swept, more, err = s.sweepWorking(ctx, project, nowMS)
				n += swept
				return err
			})
		}
	}
	return n, err
}

// sweepWorking erases what has expired of one agent; more tells that there may be others.
func (s *Store) sweepWorking(ctx context.Context, project string, nowMS int64) (swept int, more bool, err error) {
	due := s.projectKey(project, kWorkDue)
	ids, err := s.client.Do(ctx, s.client.B().Zrangebyscore().Key(due).Min("-inf").Max(itoa(nowMS)).Limit(0, 1).Build()).AsStrSlice()
	if err != nil || len(ids) == 0 {
		return 0, false, err
	}
	// First off the list, then the entries, then back on it with the next end: one that is put meanwhile sets its own.
	if err := s.client.Do(ctx, s.client.B().Zrem().Key(due).Member(ids[0]).Build()).Error(); err != nil {
		return 0, false, err
	}
	for {
		answer, err := s.eval(ctx, sweepWorkScript, s.agentKeys(key{project, ids[0]}), itoa(nowMS), strconv.Itoa(sweepSlice)).AsStrSlice()
		if err != nil {
			return swept, false, err
		}
		if len(answer) != 2 {
			return swept, false, errBadRow
		}
		n, err := strconv.Atoi(answer[0])
		if err != nil {
			return swept, false, errBadRow
		}
		swept += n
		if n == sweepSlice {
			continue
		}
		if answer[1] == "" {
			return swept, true, nil
		}
		next, err := strconv.ParseFloat(answer[1], 64)
		if err != nil {
			return swept, false, errBadRow
		}
		return swept, true, s.client.Do(ctx, s.client.B().Zadd().Key(due).Lt().ScoreMember().ScoreMember(next, ids[0]).Build()).Error()
	}
}
