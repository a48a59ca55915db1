package postgres

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory"
)

// Who follows agents tells the other replicas which, and they tell him of changes, in transactions of their own that come after the message's: no write waits for
// it, and nothing is told where nobody follows. What is not told is found by looking, a little later.

const (
	// noteFollow is the kind of notification that says what is followed, noteChanged the one that says what was changed.
	noteFollow, noteChanged = "follow", "changed"
	// followAgain is how often is told what is followed; it holds for deafAfter.
	followAgain = time.Second
	// tellPause is the least time between two notifications of changes: what changes meanwhile shares one.
	tellPause = 5 * time.Millisecond
)

var _ memory.Followed = (*Store)(nil)

// follows is what is followed here and elsewhere, agents by a hash.
type follows struct {
	elsewhere atomic.Bool // somebody follows something: a quick look for each commit
	changed   chan struct{}

	mu      sync.Mutex
	ours    map[uint32]bool
	told    time.Time // when ours was told
	theirs  map[string]following
	pending map[uint32]bool // changed, and not told yet
	telling bool
}

// following is what a replica follows, and when it said so; no agents are all: there were too many to be told.
type following struct {
	agents map[uint32]bool
	at     time.Time
}

func agentHash(k key) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(k.project + "\x00" + k.id))
	return h.Sum32()
}

// Follow implements memory.Followed.
func (s *Store) Follow(ctx context.Context, projects, ids []string) error {
	set := make(map[uint32]bool, len(ids))
	for i, id := range ids {
		set[agentHash(key{projects[i], id})] = true
	}
	f := &s.follows
	f.mu.Lock()
	same := len(set) == len(f.ours)
	for h := range set {
		same = same && f.ours[h]
	}
	f.ours = set
	due := !same || len(set) > 0 && time.Since(f.told) >= followAgain
	if due = due && s.ears.hears() && !s.ears.muted(); due {
		f.told = time.Now()
	}
	f.mu.Unlock()
	if !due {
		return nil
	}
	return s.tell(ctx, noteFollow, set)
}

// Changed implements memory.Followed.
func (s *Store) Changed() <-chan struct{} { return s.follows.changed }

// tell notifies the other replicas of agents.
func (s *Store) tell(ctx context.Context, kind string, agents map[uint32]bool) error {
	list := make([]uint32, 0, len(agents))
	for h := range agents {
		list = append(list, h)
	}
	err := s.loose(ctx, func(b *pgx.Batch) {
		b.Queue("SELECT pg_notify($1, $2)", s.ears.channel, note(kind, s.replica, 0, list))
	})
	if refused(err) {
		s.ears.mute.Store(time.Now().Add(listenLater).UnixNano())
		return nil
	}
	return err
}

// heardAgents reads what tell has written; nil where there were too many.
func heardAgents(body string) map[uint32]bool {
	var list []uint32
	if json.Unmarshal([]byte(body), &list) != nil {
		return nil
	}
	set := make(map[uint32]bool, len(list))
	for _, h := range list {
		set[h] = true
	}
	return set
}

// hear takes up what another replica told of following and changes.
func (f *follows) hear(kind, who, body string) {
	set := heardAgents(body)
	f.mu.Lock()
	defer f.mu.Unlock()
	if kind == noteFollow {
		if f.theirs[who] = (following{set, time.Now()}); set != nil && len(set) == 0 {
			delete(f.theirs, who)
		}
		f.elsewhere.Store(len(f.theirs) > 0)
		return
	}
	touched := set == nil && len(f.ours) > 0
	for h := range set {
		touched = touched || f.ours[h]
	}
	if touched {
		select {
		case f.changed <- struct{}{}:
		default: // one is waiting already
		}
	}
}

// tellChange has the other replicas told that an agent has changed, where one of them follows it. It does not wait.
func (s *Store) tellChange(k key) {
	f := &s.follows
	if !f.elsewhere.Load() {
		return
	}
	h := agentHash(k)
	f.mu.Lock()
	defer f.mu.Unlock()
	wanted := false
	for who, t := range f.theirs {
		if time.Since(t.at) > deafAfter {
			delete(f.theirs, who)
			f.elsewhere.Store(len(f.theirs) > 0)
			continue
		}
		wanted = wanted || t.agents == nil || t.agents[h]
	}
	if !wanted || s.ears.muted() {
		return
	}
	f.pending[h] = true
	if !f.telling {
		f.telling = true
		s.work.Go(s.tellChanges)
	}
}

// tellChanges tells of what has changed until there is nothing more.
func (s *Store) tellChanges() {
	f := &s.follows
	for {
		f.mu.Lock()
		list := f.pending
		f.pending = map[uint32]bool{}
		f.telling = len(list) > 0 && s.behind.Err() == nil
		on := f.telling
		f.mu.Unlock()
		if !on {
			return
		}
		ctx, cancel := context.WithTimeout(s.behind, deafAfter)
		_ = s.tell(ctx, noteChanged, list) // whoever follows looks, too
		cancel()
		select {
		case <-s.behind.Done():
		case <-time.After(tellPause):
		}
	}
}
