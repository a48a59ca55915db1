package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// What servers tell each other stands in the slot of the whole, and is published as well: see listen.go. The clock is Redis'.

var _ memory.Peers = (*Store)(nil)

const (
	// presence is how long a server counts that is not heard of, questionAge how long a question may wait for somebody who looks.
	presence    = 5 * time.Second
	questionAge = 3 * time.Second
	// takenUp is how long whoever asks waits for somebody to take a question up, askEvery how often he looks, and askSafe how often where he is told.
	takenUp  = 250 * time.Millisecond
	askEvery = 8 * time.Millisecond
	askSafe  = 50 * time.Millisecond
	// newKept is how many new agents are remembered for servers that look for them; whoever missed more reads all.
	newKept = 10_000
)

// peerKeys are the keys of what servers tell each other: 1 servers by when they were heard of, 2 questions by number, 3 the counter of questions, 4 replies by question, 5 new agents by number, 6 their counter.
func (s *Store) peerKeys() []string {
	return []string{s.rootKey("servers"), s.rootKey("questions"), s.rootKey("asked"), s.rootKey("replies"), s.rootKey("new"), s.rootKey("newno")}
}

var (
	// beatScript tells that a server lives, and whether others do: 1 its name, 2 how long one counts, 3 where it hears what is for it.
	beatScript = rueidis.NewLuaScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - 10 * ARGV[2]))
redis.pcall('PUBLISH', ARGV[3], '0 ')
return redis.call('ZCOUNT', KEYS[1], string.format('(%.0f', now - ARGV[2]), '+inf') > 1 and 1 or 0`)

	// seenScript keeps the latest of what servers have seen of an agent, while that is there.
	seenScript = newManyScript(`
local left = redis.call('PTTL', KEYS[1])
if left == -2 then return 0 end
for i, field in ipairs({'asked', 'spoken'}) do
  if tonumber(redis.call('HGET', KEYS[9], field) or '0') < tonumber(ARGV[i]) then redis.call('HSET', KEYS[9], field, ARGV[i]) end
end
if left > 0 then redis.call('PEXPIRE', KEYS[9], left) end
return 1`)

	// askScript puts a question where others look, if there are others: 1 our name, 2 the question, 3 how long a server counts, 4 how long a question does, 5 where others hear. It gives its number, or 0.
	askScript = rueidis.NewLuaScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local alive = redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.0f', now - ARGV[3]), '+inf')
local others = false
for _, name in ipairs(alive) do
  if name ~= ARGV[1] then others = true end
end
if not others then return 0 end
local no = redis.call('INCR', KEYS[3])
local text = string.format('%.0f %.0f ', no, now) .. ARGV[1] .. ' ' .. ARGV[2]
redis.call('ZADD', KEYS[2], no, text)
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -1001)
redis.call('PEXPIRE', KEYS[2], 20 * ARGV[4])
redis.pcall('PUBLISH', ARGV[5], text)
return no`)

	// askedScript gives the questions of others that are young enough and not answered: 1 our name, 2 how long a question counts.
	askedScript = rueidis.NewLuaScript(`
local t = redis.call('TIME')
local old = t[1] * 1000 + math.floor(t[2] / 1000) - ARGV[2]
local out = {}
for _, q in ipairs(redis.call('ZREVRANGE', KEYS[2], 0, 999)) do
  local no, at, from = string.match(q, '^(%d+) (%d+) (%S+) ')
  if tonumber(at) < old then break end
  local reply = from ~= ARGV[1] and redis.call('HGET', KEYS[4], no)
  if from ~= ARGV[1] and (not reply or reply == '') then out[#out + 1] = q end
end
return out`)

	// replyScript keeps a reply, or with none that somebody has taken the question up: 1 number, 2 reply, 3 how long, 4 where whoever asked hears.
	replyScript = rueidis.NewLuaScript(`
if ARGV[2] ~= '' then redis.call('HSET', KEYS[4], ARGV[1], ARGV[2]) else redis.call('HSETNX', KEYS[4], ARGV[1], '') end
redis.call('PEXPIRE', KEYS[4], ARGV[3])
redis.pcall('PUBLISH', ARGV[4], ARGV[1] .. ' ' .. ARGV[2])
return 1`)

	// newScript notes a new agent: 1 its project and id, 2 how many are kept.
	newScript = rueidis.NewLuaScript(`
local no = redis.call('INCR', KEYS[6])
redis.call('ZADD', KEYS[5], no, ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[5], 0, -1 - ARGV[2])
return no`)

	// giveScript takes a lease back that is still ours.
	giveScript = rueidis.NewLuaScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`)
)

func (s *Store) peer(ctx context.Context, script *rueidis.Lua, args ...string) rueidis.RedisResult {
	return s.eval(ctx, script, s.peerKeys(), args...)
}

func ms(d time.Duration) string { return itoa(d.Milliseconds()) }

// Beat implements memory.Peers.
func (s *Store) Beat(ctx context.Context, seen []memory.Seen) (others bool, err error) {
	err = s.call(ctx, "tell other servers", func(ctx context.Context) error {
		n, err := s.peer(ctx, beatScript, s.replica, ms(presence), s.channel(s.replica)).AsInt64()
		if others = n == 1; err != nil || len(seen) == 0 {
			return err
		}
		keys, args := make([][]string, len(seen)), make([][]string, len(seen))
		for i, v := range seen {
			keys[i], args[i] = s.agentKeys(key{v.Project, v.ID}), []string{itoa(v.AskedMS), itoa(v.SpokenMS)}
		}
		for _, answer := range s.evalMany(ctx, seenScript, keys, args) {
			if err := answer.Error(); err != nil {
				return err
			}
		}
		return nil
	})
	return others, err
}

// leave tells the others that we are gone.
func (s *Store) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.client.Do(ctx, s.client.B().Zrem().Key(s.rootKey("servers")).Member(s.replica).Build()).Error() // else it is found out within presence
}

// Seen implements memory.Peers.
func (s *Store) Seen(ctx context.Context, project, id string) (seen memory.Seen, err error) {
	seen.Project, seen.ID = project, id
	err = s.read(ctx, "read what other servers have seen", func(ctx context.Context) error {
		m, err := s.client.Do(ctx, s.client.B().Hgetall().Key(s.agentKey(key{project, id}, kSeen)).Build()).AsIntMap()
		seen.AskedMS, seen.SpokenMS = m["asked"], m["spoken"]
		return err
	})
	return seen, err
}

// NewLive implements memory.Peers. A place is the number of the newest agent that was looked at, counted from 1.
func (s *Store) NewLive(ctx context.Context, after int64, each func(memory.Head) error) (next int64, err error) {
	var list []string
	all := after == 0
	err = s.read(ctx, "look for new agents", func(ctx context.Context) error {
		c := s.client
		last, err := c.Do(ctx, c.B().Get().Key(s.rootKey("newno")).Build()).AsInt64()
		if err != nil && !rueidis.IsRedisNil(err) {
			return err
		}
		next = last + 1
		switch {
		case last < after-1 || last-after >= newKept: // the server has lost its data, or we were away for long
			all = true
		case !all:
			list, err = c.Do(ctx, c.B().Zrangebyscore().Key(s.rootKey("new")).Min(itoa(after)).Max("+inf").Build()).AsStrSlice()
			return err
		}
		return nil
	})
	if err != nil {
		return after, err
	}
	if all {
		return next, s.Live(ctx, each)
	}
	for len(list) > 0 { // in the order in which they were made, and those of one project that stand together in one go
		first, _, _ := strings.Cut(list[0], " ")
		var ids []string
		for len(list) > 0 && len(ids) < livePage {
			project, id, _ := strings.Cut(list[0], " ")
			if project != first {
				break
			}
			ids, list = append(ids, id), list[1:]
		}
		var heads []memory.Head
		err := s.read(ctx, "look for new agents", func(ctx context.Context) (err error) {
			heads, err = s.heads(ctx, dec(first), ids)
			return err
		})
		for i := range heads {
			if err == nil && !heads[i].Agent.Status.Ended() {
				err = each(heads[i])
			}
		}
		if err != nil {
			return after, err
		}
	}
	return next, nil
}

// announce notes a new agent for the other servers. Where that fails they learn of it when they are asked about it; only what is due by time waits for us then.
func (s *Store) announce(ctx context.Context, k key) error {
	return s.peer(ctx, newScript, enc(k.project)+" "+k.id, strconv.Itoa(newKept)).Error()
}

// Lease implements memory.Peers.
func (s *Store) Lease(ctx context.Context, project, id string, what memory.Work, lease time.Duration) (giveBack func(), ok bool, err error) {
	at, name := s.leaseKey(key{project, id}, what), token()
	err = s.call(ctx, "lease an agent", func(ctx context.Context) error {
		err := s.client.Do(ctx, s.client.B().Set().Key(at).Value(name).Nx().PxMilliseconds(max(lease.Milliseconds(), 1)).Build()).Error()
		if rueidis.IsRedisNil(err) {
			return nil
		}
		ok = err == nil
		return err
	})
	if err != nil || !ok {
		return nil, false, err
	}
	return func() {
		// Where this fails the lease ends by itself. One that others have taken since has another name.
		_ = s.call(context.WithoutCancel(ctx), "give a lease back", func(ctx context.Context) error { return s.eval(ctx, giveScript, []string{at}, name).Error() })
	}, true, nil
}

// Ask implements memory.Peers.
func (s *Store) Ask(ctx context.Context, q memory.Question) (r memory.Reply, err error) {
	text, err := json.Marshal(q)
	if err != nil {
		return r, fault.Wrap(fault.Internal, err, "the store failed")
	}
	var no int64
	err = s.call(ctx, "ask other servers", func(ctx context.Context) (err error) {
		no, err = s.peer(ctx, askScript, s.replica, string(text), ms(presence), ms(questionAge), s.channel(toAll)).AsInt64()
		return err
	})
	if err != nil || no == 0 || q.Tell {
		return r, err
	}
	told, leave := s.ears.wait(no)
	defer leave()
	began := time.Now()
	for up := false; ; {
		look := askEvery
		if s.ears.hears() {
			look = askSafe
		}
		text, seen := "", false
		select {
		case <-ctx.Done():
			return r, ended(ctx)
		case text = <-told:
			seen = true
		case <-time.After(look):
			err = s.read(ctx, "wait for other servers", func(ctx context.Context) (err error) {
				text, err = s.client.Do(ctx, s.client.B().Hget().Key(s.rootKey("replies")).Field(itoa(no)).Build()).ToString()
				if seen = err == nil; rueidis.IsRedisNil(err) {
					return nil
				}
				return err
			})
		}
		up = up || seen
		if err == nil && text != "" {
			if err := json.Unmarshal([]byte(text), &r); err != nil {
				return r, s.failed(ctx, fmt.Errorf("a reply: %w: %w", err, errBadRow), "wait for other servers")
			}
			return r, nil
		}
		if err != nil || !up && time.Since(began) > takenUp {
			return r, err
		}
	}
}

// Asked implements memory.Peers.
func (s *Store) Asked(ctx context.Context) (list []memory.Question, err error) {
	err = s.read(ctx, "look for questions", func(ctx context.Context) error {
		list = nil
		rows, err := s.peer(ctx, askedScript, s.replica, ms(questionAge)).AsStrSlice()
		for _, text := range rows {
			q, err := parseQuestion(text)
			if err != nil {
				return err
			}
			list = append(list, q)
		}
		return err
	})
	return list, err
}

// parseQuestion reads what askScript keeps and tells.
func parseQuestion(text string) (q memory.Question, err error) {
	words := strings.SplitN(text, " ", 4)
	if len(words) != 4 || json.Unmarshal([]byte(words[3]), &q) != nil {
		return q, fmt.Errorf("a question: %w", errBadRow)
	}
	var atErr error
	q.No, err = strconv.ParseInt(words[0], 10, 64)
	q.AtMS, atErr = strconv.ParseInt(words[1], 10, 64)
	if err != nil || atErr != nil {
		return q, fmt.Errorf("a question: %w", errBadRow)
	}
	q.From = words[2]
	return q, nil
}

// Take implements memory.Peers.
func (s *Store) Take(ctx context.Context, q memory.Question) error {
	return s.call(ctx, "take a question up", func(ctx context.Context) error {
		return s.peer(ctx, replyScript, itoa(q.No), "", ms(20*questionAge), s.channel(q.From)).Error()
	})
}

// Reply implements memory.Peers.
func (s *Store) Reply(ctx context.Context, q memory.Question, r memory.Reply) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the store failed")
	}
	return s.call(ctx, "answer a question", func(ctx context.Context) error {
		return s.peer(ctx, replyScript, itoa(q.No), string(text), ms(20*questionAge), s.channel(q.From)).Error()
	})
}

// Revisions implements memory.Peers.
func (s *Store) Revisions(ctx context.Context, projects, ids []string) (revs []int64, err error) {
	err = s.read(ctx, "read revisions", func(ctx context.Context) error {
		revs = make([]int64, len(ids))
		cmds := make(rueidis.Commands, len(ids))
		for i := range ids {
			cmds[i] = s.client.B().Hget().Key(s.agentKey(key{projects[i], ids[i]}, kHead)).Field("r").Build()
		}
		for i, answer := range s.client.DoMulti(ctx, cmds...) {
			n, err := answer.AsInt64()
			if rueidis.IsRedisNil(err) {
				n, err = -1, nil
			}
			if err != nil {
				return err
			}
			revs[i] = n
		}
		return nil
	})
	return revs, err
}
