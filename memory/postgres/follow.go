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

// A replica that follows agents announces them to the other replicas, and they notify it of
// changes. The notifications have transactions of their own after the commit of the change, so that
// no write waits for them. Nothing is sent while no replica follows an agent. A follower also
// polls, so a lost notification only delays it.

const (
	// noteFollow is the kind of a notification that lists followed agents, and noteChanged that of
	// one that lists changed agents.
	noteFollow, noteChanged = "follow", "changed"
	// followAgain is how often a replica announces what it follows. Others forget it after
	// deafAfter.
	followAgain = time.Second
	// tellPause is the minimum time between two notifications of changes. Changes in between share
	// one.
	tellPause = 5 * time.Millisecond
)

var _ memory.Followed = (*Store)(nil)

// follows holds which agents this and other replicas follow, as hashes.
type follows struct {
	// Whether another replica follows agents, for a quick check at each commit.
	elsewhere atomic.Bool
	changed   chan struct{}

	mu      sync.Mutex
	ours    map[uint32]bool
	told    time.Time // when ours was last announced
	theirs  map[string]following
	pending map[uint32]bool // changed, not sent yet
	telling bool
}

// following holds the agents that a replica follows, and when it announced them. If agents is nil,
// there were too many to list, and it stands for all agents.
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

// tell sends the other replicas a notification that lists agents.
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

// heardAgents parses a list that tell has sent. It returns nil if there were too many agents to
// list.
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

// hear handles a notification of another replica about followed or changed agents.
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

// tellChange schedules a notification that an agent has changed, if another replica follows it. It
// does not wait.
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

// tellChanges sends notifications until no change is pending.
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
		_ = s.tell(ctx, noteChanged, list) // a follower polls as well
		cancel()
		select {
		case <-s.behind.Done():
		case <-time.After(tellPause):
		}
	}
}
