package agents

import (
	"container/heap"
	"sync"
	"time"

	"github.com/heardlog/heardlog/memory"
)

// timers holds when each live agent is due next. An entry may be too early, never too late:
// activity postpones a due time without touching the heap, and the check finds that out.
type timers struct {
	cfg   *Config
	live  *registry
	peers *peers // nil without others

	mu   sync.Mutex
	due  dueHeap
	at   map[memory.Ref]int64 // the earliest entry of each agent
	wake chan struct{}
}

type dueEntry struct {
	at int64 // Unix ns; 0 is now. There is one for each live agent, and a time.Time is larger.
	memory.Ref
}

type dueHeap []dueEntry

func (h dueHeap) Len() int { return len(h) }

func (h dueHeap) Less(i, j int) bool { return h[i].at < h[j].at }

func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *dueHeap) Push(x any) { *h = append(*h, x.(dueEntry)) }

func (h *dueHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func newTimers(cfg *Config, live *registry, others *peers) *timers {
	return &timers{cfg: cfg, live: live, peers: others, at: map[memory.Ref]int64{}, wake: make(chan struct{}, 1)}
}

// poke schedules a check of the agent, if it is earlier than the one planned.
func (t *timers) poke(when time.Time, ref memory.Ref) {
	at := int64(0)
	if !when.IsZero() {
		at = when.UnixNano()
	}
	t.mu.Lock()
	if old, ok := t.at[ref]; ok && at >= old {
		t.mu.Unlock()
		return
	}
	t.at[ref] = at
	heap.Push(&t.due, dueEntry{at, ref})
	first := t.due[0].at == at
	t.mu.Unlock()
	if first {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

func (t *timers) now(ref memory.Ref) { t.poke(time.Time{}, ref) }

// next removes and returns the entries that are due, and returns when the first of the others is,
// or the zero time.
func (t *timers) next(now time.Time) ([]dueEntry, time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []dueEntry
	for len(t.due) > 0 && t.due[0].at <= now.UnixNano() {
		e := heap.Pop(&t.due).(dueEntry)
		if at, ok := t.at[e.Ref]; ok && at == e.at { // otherwise an earlier entry was checked
			delete(t.at, e.Ref)
			out = append(out, e)
		}
	}
	if len(t.due) == 0 {
		return out, time.Time{}
	}
	return out, time.Unix(0, t.due[0].at)
}

func (s *timers) idleSince(a *memory.Agent, now time.Time) bool {
	limit := s.idleLimit(a)
	return limit > 0 && now.Sub(s.live.activity(a.Ref(), now)) >= limit
}

// idleLimit returns how long the agent may be idle, 0 for ever. Activity in other processes is
// known a little later.
func (s *timers) idleLimit(a *memory.Agent) time.Duration {
	limit := time.Duration(a.Settings.IdleTimeoutS) * time.Second
	if limit > 0 && s.peers != nil && s.peers.others.Load() {
		limit += seenGrace
	}
	return limit
}

// warningDue returns when to announce the agent's expiry, or the zero time if that is done or not
// needed.
func (s *timers) warningDue(a *memory.Agent) time.Time {
	again, done := s.live.warned(a.Ref())
	if done || a.Settings.WarnedMS != 0 || a.Archived() {
		return time.Time{}
	}
	at := time.UnixMilli(a.StartMS).Add(memory.Lifetime - memory.ExpiringLead)
	if again.After(at) {
		return again
	}
	return at
}

// greetingDue returns when a delayed greeting is due, or the zero time.
func greetingDue(h *memory.Head) time.Time {
	l := &h.Agent.Settings.LLM
	if l.Greeting == "" || l.GreetingDelay == 0 || h.NextSeq > h.Agent.Settings.Memory.OwnSince()+1 {
		return time.Time{} // greeted, or the conversation has begun without a greeting
	}
	return time.UnixMilli(h.Agent.StartMS + int64(l.GreetingDelay))
}

// silenceDue returns when the silence has lasted long enough, or the zero time if that is off or
// the server has broken it already. The words that break a silence do not start a new one; only
// another message does.
func (s *timers) silenceDue(h *memory.Head) time.Time {
	set := &h.Agent.Settings.Silence
	if set.TimeoutMS <= 0 || set.Content == "" || h.Last.Source == memory.SourceSilence || s.live.silenced(h.Agent.Ref()) {
		return time.Time{}
	}
	since := time.UnixMilli(h.Agent.StartMS)
	if h.Last.Seq > 0 {
		since = time.UnixMilli(h.Last.Timestamp)
	}
	if act := s.live.conversation(h.Agent.Ref(), s.cfg.Now()); act.After(since) {
		since = act
	}
	return since.Add(time.Duration(set.TimeoutMS) * time.Millisecond)
}

// dueOf returns when the agent is due next.
func (s *timers) dueOf(h *memory.Head) time.Time {
	a := h.Agent
	switch a.Status {
	case memory.Stopping:
		return time.Time{}
	case memory.Idle:
		return s.live.farewell(a.Ref())
	}
	now := s.cfg.Now()
	due := time.UnixMilli(a.StartMS).Add(memory.Lifetime)
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(due) {
			due = t
		}
	}
	if limit := s.idleLimit(a); limit > 0 {
		earlier(s.live.activity(a.Ref(), now).Add(limit))
	}
	earlier(s.warningDue(a))
	earlier(greetingDue(h))
	earlier(s.silenceDue(h))
	return due
}
