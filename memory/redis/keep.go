package redis

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// What runs behind: the clock, the look for entries of agents that have expired, and the look whether the server has lost what it held.

const (
	keepEvery  = 5 * time.Second
	checkSlice = 200 // entries that are read in one go
)

// keep does what is to be done now and then, until ctx is done.
func (s *Store) keep(ctx context.Context) {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_ = s.call(ctx, "look after the store", func(ctx context.Context) error {
			lost, err := s.checkMark(ctx)
			if err != nil {
				return err // the server is away, or starting: looked at again at the next tick
			}
			if lost {
				s.cache.Clear()
				s.projects.Clear()
				s.notice("the Redis server has lost what it held: agents from before are gone, and their calls are answered with 404. " + s.durability(ctx))
			}
			if s.startedAnew(ctx) && !lost {
				s.cache.Clear()
				if worst := s.durability(ctx); worst != "" {
					s.notice("the Redis server was started anew, or another has taken its place: what was acknowledged last may be gone. " + worst)
				}
			}
			if n%6 == 0 {
				if err := s.syncClock(ctx); err != nil {
					return err
				}
				return s.settleDue(ctx)
			}
			return nil
		})
		if n%6 == 0 {
			s.keepFound(ctx)
		}
	}
}

// keepFound looks in each project whether its agents are found. What fails is looked at again at the next tick.
func (s *Store) keepFound(ctx context.Context) {
	var projects []string
	_ = s.read(ctx, "read projects", func(ctx context.Context) (err error) {
		projects, err = s.projectList(ctx)
		return err
	})
	for _, project := range projects {
		if s.rebuild(ctx, project) != nil {
			return
		}
	}
}

// checkMark looks whether the mark is there that the server was given, and gives it one where there is none. It tells whether what we have seen before is lost.
func (s *Store) checkMark(ctx context.Context) (lost bool, err error) {
	at := s.rootKey("mark")
	now, err := s.client.Do(ctx, s.client.B().Get().Key(at).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		now = token()
		err = s.client.Do(ctx, s.client.B().Set().Key(at).Value(now).Nx().Build()).Error()
		if rueidis.IsRedisNil(err) { // another server was quicker
			return s.checkMark(ctx)
		}
	}
	if err == nil {
		err = s.keepCheck(ctx)
	}
	if err != nil {
		return false, err
	}
	lost = s.mark != "" && s.mark != now
	s.mark = now
	return lost, nil
}

// startedAnew tells whether a server that we knew was started again since the last look, or another took its place. Servers that hide it (INFO without the right to) are taken to be as they were.
func (s *Store) startedAnew(ctx context.Context) (anew bool) {
	now, nodes := map[string]string{}, s.client.Nodes()
	for at, node := range nodes {
		text, err := node.Do(ctx, node.B().Info().Build()).ToString()
		if err != nil {
			if was := s.runs[at]; was != "" {
				now[at] = was // looked at again when it answers
			}
			continue
		}
		run, role := "", ""
		for line := range strings.Lines(text) {
			if v, ok := strings.CutPrefix(line, "run_id:"); ok {
				run = strings.TrimSpace(v)
			}
			if v, ok := strings.CutPrefix(line, "role:"); ok {
				role = strings.TrimSpace(v)
			}
		}
		if run != "" {
			now[at] = role + " " + run
		}
	}
	for at, run := range now {
		was := s.runs[at]
		if was == "" && len(nodes) == 1 { // the primary that Sentinel names now; a new node of a cluster has taken nobody's place
			for _, was = range s.runs {
				break
			}
		}
		if was != "" && was != run && strings.HasPrefix(run, "master ") { // a replica's own start loses nothing; its taking over may
			anew = true
		}
	}
	s.runs = now
	return anew
}

// settleDue puts entries right whose agents may have expired, and claims whose makers may have died.
func (s *Store) settleDue(ctx context.Context) error {
	projects, err := s.projectList(ctx)
	if err != nil {
		return err
	}
	s.owed.Range(func(k, _ any) bool {
		if _, settleErr := s.settle(ctx, k.(key)); settleErr != nil {
			err = settleErr
			return false
		}
		s.owed.Delete(k)
		return true
	})
	if err != nil {
		return err
	}
	now := s.Now().UnixMilli()
	// What the call's time does not suffice for comes first at the next look.
	at, _ := slices.BinarySearch(projects, s.settled)
	for _, project := range slices.Concat(projects[at:], projects[:at]) {
		s.settled = project
		for n := checkSlice; n == checkSlice; {
			if n, err = s.sweepExpired(ctx, project, now); err != nil {
				return err
			}
		}
		ids, err := s.claims(ctx, project)
		if err != nil {
			return err
		}
		if _, err := s.settleAll(ctx, project, ids); err != nil {
			return err
		}
	}
	s.settled = ""
	return nil
}

// sweepExpired settles entries of agents whose keys may have expired by now.
func (s *Store) sweepExpired(ctx context.Context, project string, nowMS int64) (int, error) {
	at := s.projectKey(project, kCheck)
	ids, err := s.client.Do(ctx, s.client.B().Zrangebyscore().Key(at).Min("-inf").Max(itoa(nowMS)).Limit(0, checkSlice).Build()).AsStrSlice()
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		k := key{project, id}
		stamp, err := s.stamp(ctx, k)
		if err != nil {
			return 0, err
		}
		if stamp == "" {
			s.cache.Drop(k)
		}
		wrong, err := s.settle(ctx, k)
		if err != nil {
			return 0, err
		}
		text, err := s.entry(ctx, k)
		if err != nil {
			return 0, err
		}
		if text == "" {
			if err := s.outOf(ctx, k); err != nil {
				return 0, err
			}
			continue
		}
		i, err := decodeInfo(text)
		if err != nil {
			return 0, err
		}
		if later := max(i.CheckMS, nowMS+claimAge); i.Pending != 0 || wrong && i.CheckMS > nowMS { // the entry is right, and does not say that it is due
			if err := s.client.Do(ctx, s.client.B().Zadd().Key(at).Xx().ScoreMember().ScoreMember(float64(later), id).Build()).Error(); err != nil {
				return 0, err
			}
			continue
		}
		if s.ttl == 0 { // nothing of it expires
			if err := s.client.Do(ctx, s.client.B().Zrem().Key(at).Member(id).Build()).Error(); err != nil {
				return 0, err
			}
			continue
		}
		// It has written since, or what was to happen did not: look again in a while.
		i.CheckMS = nowMS + time.Hour.Milliseconds()
		if _, err := s.index(ctx, k, text, &i); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

// Sweep erases at most limit agents that ended before the time.
func (s *Store) Sweep(ctx context.Context, beforeMS int64, limit int) (n int, err error) {
	var projects []string
	err = s.read(ctx, "read projects", func(ctx context.Context) (err error) {
		projects, err = s.projectList(ctx)
		return err
	})
	for _, project := range projects {
		for err == nil && n < limit {
			done := false
			err = s.call(ctx, "sweep agents", func(ctx context.Context) error {
				at := s.projectKey(project, kEnded)
				ids, err := s.client.Do(ctx, s.client.B().Zrangebyscore().Key(at).Min("-inf").Max("("+itoa(beforeMS)).Limit(0, int64(min(limit-n, checkSlice))).Build()).AsStrSlice()
				if err != nil {
					return err
				}
				for _, id := range ids {
					k := key{project, id}
					erased, err := s.erase(ctx, k, beforeMS)
					switch {
					case err == nil && erased:
						n++
						done = true
					case err == nil: // the entry says another end than the agent does
						wrong, err := s.settle(ctx, k)
						if done = done || wrong; err != nil {
							return err
						}
					case isNoAgent(err):
						done = true
					default:
						return err
					}
				}
				return nil
			})
			if !done {
				break
			}
		}
	}
	return n, err
}

// durability says in plain words what may be lost; "" where nothing is that was acknowledged.
func (s *Store) durability(ctx context.Context) string {
	var worst string
	rank := -1
	for _, node := range s.client.Nodes() {
		text, n := nodeDurability(ctx, node)
		if n > rank {
			rank, worst = n, text
		}
	}
	return worst
}

// nodeDurability looks at one server. The settings may be hidden from us, as hosted servers do.
func nodeDurability(ctx context.Context, c rueidis.Client) (text string, rank int) {
	get := func(name string) string {
		m, err := c.Do(ctx, c.B().ConfigGet().Parameter(name).Build()).AsStrMap()
		if err != nil {
			return ""
		}
		return m[name]
	}
	aof, fsync, policy := get("appendonly"), get("appendfsync"), get("maxmemory-policy")
	if aof == "" {
		info, _ := c.Do(ctx, c.B().Info().Section("persistence").Build()).ToString()
		if strings.Contains(info, "aof_enabled:0") {
			aof = "no"
		}
	}
	evicts := ""
	if memory := get("maxmemory"); policy != "" && policy != "noeviction" {
		evicts = " Its maxmemory-policy is " + policy + ": when its memory is full"
		if memory == "0" {
			evicts += " (it has no limit now)"
		}
		evicts += " it drops memory of agents without telling; noeviction refuses writes instead."
	}
	switch {
	case aof == "no" && get("save") != "":
		text, rank = "The Redis server writes only snapshots to its disk: when it restarts, all that was said since the last one is gone. appendonly yes with appendfsync always keeps everything.", 4
	case aof == "no":
		text, rank = "The Redis server keeps nothing on disk: all memory is gone when it restarts. appendonly yes with appendfsync always keeps everything.", 5
	case aof == "":
		text, rank = "Whether the Redis server keeps anything on disk cannot be known, since it does not show its settings: what was acknowledged may be gone when it restarts.", 3
	case fsync == "everysec":
		text, rank = "The Redis server writes to its disk once a second: when its machine stops, a second or two of what was acknowledged is gone. appendfsync always keeps everything.", 1
	case fsync == "no":
		text, rank = "The Redis server leaves it to the system when to write to its disk: when its machine stops, half a minute of what was acknowledged, or more, is gone. appendfsync always keeps everything.", 2
	case fsync == "always" && get("no-appendfsync-on-rewrite") == "yes":
		text, rank = "The Redis server writes each command to its disk, but not while it rewrites its file (no-appendfsync-on-rewrite yes): when its machine stops then, what was acknowledged meanwhile is gone.", 1
	case fsync == "":
		text, rank = "How soon the Redis server writes to its disk cannot be known, since it does not show its settings: what was acknowledged last may be gone when it restarts.", 2
	}
	if evicts != "" {
		text, rank = strings.TrimSpace(text+evicts), rank+10
	}
	return text, rank
}

// timeScript has a key, so that in a cluster it is one node's time that is given and not that of any.
var timeScript = rueidis.NewLuaScript(`return redis.call('TIME')`)

// syncClock measures how far the server's clock is from ours, to within half of the quickest of a few round trips.
func (s *Store) syncClock(ctx context.Context) error {
	best := time.Duration(1 << 62)
	for range 3 {
		began := time.Now()
		row, err := s.eval(ctx, timeScript, []string{s.rootKey("mark")}).AsStrSlice()
		if err != nil {
			return err
		}
		if len(row) != 2 {
			return errBadRow
		}
		sec, err := strconv.ParseInt(row[0], 10, 64)
		usec, err2 := strconv.ParseInt(row[1], 10, 64)
		if err != nil || err2 != nil {
			return errBadRow
		}
		if took := time.Since(began); took < best {
			best = took
			s.offset.Store(sec*1e9 + usec*1e3 - began.Add(took/2).UnixNano())
		}
	}
	return nil
}

// Now gives the server's time, which is the same for all servers of ours however their own clocks differ. In a cluster it is that of the node which holds what belongs to the whole.
func (s *Store) Now() time.Time { return time.Now().Add(time.Duration(s.offset.Load())) }
