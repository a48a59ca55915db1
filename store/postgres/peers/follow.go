package peers

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/heardlog/heardlog/memory"
)

// A replica that follows agents announces them to the other replicas, and they notify it of
// changes. The notifications have transactions of their own after the commit of the change, so that
// no write waits for them. Nothing is sent while no replica follows an agent. A follower also
// polls, so a lost notification only delays it.

const (
	// maxNote bounds the list of agents in a notification, in bytes. PostgreSQL accepts 7,999
	// bytes, including the words before the list.
	maxNote = 7700
	// followAgain is how often a replica announces what it follows. Others forget it after
	// silentAfter.
	followAgain = time.Second
	// announcePause is the minimum time between two notifications of changes. Changes in between
	// share one.
	announcePause = 5 * time.Millisecond
)

var _ memory.Followed = (*Peers)(nil)

// follows holds which agents this and other replicas follow, as hashes.
type follows struct {
	changed chan struct{}

	mu         sync.Mutex
	ours       map[uint32]bool
	announced  time.Time // when ours was last announced
	theirs     map[string]following
	pending    map[uint32]bool // changed, not sent yet
	announcing bool
}

// following holds the agents that a replica follows, and when it announced them. If agents is nil,
// there were too many to list, and it stands for all agents.
type following struct {
	agents map[uint32]bool
	at     time.Time
}

func agentHash(project, id string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(project + "\x00" + id))
	return h.Sum32()
}

// Follow implements memory.Followed.
func (p *Peers) Follow(ctx context.Context, projects, ids []string) error {
	set := make(map[uint32]bool, len(ids))
	for i, id := range ids {
		set[agentHash(projects[i], id)] = true
	}
	f := &p.follows
	f.mu.Lock()
	due := !maps.Equal(set, f.ours) || len(set) > 0 && time.Since(f.announced) >= followAgain
	f.ours = set
	if due = due && p.notices.arrive() && !p.notices.refused(); due {
		f.announced = time.Now()
	}
	f.mu.Unlock()
	if !due {
		return nil
	}
	return p.announce(ctx, noteFollow, set)
}

// Changed implements memory.Followed.
func (p *Peers) Changed() <-chan struct{} { return p.follows.changed }

// announce sends the other replicas a notification that lists agents, or an empty one if they are
// too many.
func (p *Peers) announce(ctx context.Context, kind string, agents map[uint32]bool) error {
	list, err := json.Marshal(slices.Collect(maps.Keys(agents)))
	if err != nil || len(list) > maxNote {
		list = nil
	}
	return p.notify(ctx, kind, string(list))
}

// agentsIn parses a list that announce has sent. It returns nil if there were too many agents to
// list.
func agentsIn(body string) map[uint32]bool {
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

// received handles a notification of another replica about followed or changed agents.
func (f *follows) received(kind, who, body string) {
	set := agentsIn(body)
	f.mu.Lock()
	defer f.mu.Unlock()
	if kind == noteFollow {
		if f.theirs[who] = (following{set, time.Now()}); set != nil && len(set) == 0 {
			delete(f.theirs, who)
		}
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

// AnnounceChange schedules a notification that an agent has changed, if another replica follows it.
// It does not wait.
func (p *Peers) AnnounceChange(project, id string) {
	f := &p.follows
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.theirs) == 0 {
		return
	}
	h, wanted := agentHash(project, id), false
	for who, t := range f.theirs {
		if time.Since(t.at) > silentAfter {
			delete(f.theirs, who)
			continue
		}
		wanted = wanted || t.agents == nil || t.agents[h]
	}
	if !wanted || p.notices.refused() {
		return
	}
	f.pending[h] = true
	if !f.announcing {
		f.announcing = true
		p.work.Go(p.announceChanges)
	}
}

// announceChanges sends notifications until no change is pending.
func (p *Peers) announceChanges() {
	f := &p.follows
	for {
		f.mu.Lock()
		list := f.pending
		f.pending = map[uint32]bool{}
		f.announcing = len(list) > 0 && p.behind.Err() == nil
		on := f.announcing
		f.mu.Unlock()
		if !on {
			return
		}
		ctx, cancel := context.WithTimeout(p.behind, silentAfter)
		_ = p.announce(ctx, noteChanged, list) // a follower polls as well
		cancel()
		select {
		case <-p.behind.Done():
		case <-time.After(announcePause):
		}
	}
}
