package agents

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heardlog/heardlog/memory"
)

// peers is this process among several on one store. It exchanges with the others which agents are
// active and which have changed; what they ask about open answers goes to Turns.
type peers struct {
	memory.Peers
	cfg    *Config
	live   *registry
	others atomic.Bool
	told   map[memory.Ref]memory.Seen // what was recorded last; of the loop alone
}

// Times of the work with peers.
const (
	// Interval for questions while an answer is being generated and the store cannot notify; an
	// interrupt at another process waits this long
	askedEvery = 15 * time.Millisecond
	askedSafe  = 100 * time.Millisecond // interval if the store notifies
	// How long a cut may take to be stored before the asking process is informed that it is under
	// way
	takeAfter = 100 * time.Millisecond
	tailEvery = 100 * time.Millisecond // revisions of agents that are followed here
	beatEvery = time.Second
	seenGrain = 2 * time.Second // activity is recorded again when it is this much later
	// seenGrace is added to idle timeouts while there are other processes: their activity is known
	// at most this much later.
	seenGrace = 5 * time.Second
	lookLease = 15 * time.Second
	lookAgain = time.Second
	// Numbers of new agents are not given out in the order of their commits.
	relive      = 10 * beatEvery
	peerTimeout = 5 * time.Second
)

// cutBy returns the Err value with this text, or nil.
func cutBy(cause string) error {
	for _, err := range []error{ErrInterrupted, ErrBargeIn, ErrSpeak, ErrThink, ErrLeave, ErrOvertaken, ErrSuperseded} {
		if err.Error() == cause {
			return err
		}
	}
	return nil
}

// run works with the other processes until ctx is done. answer answers their questions, and takeUp
// takes up the agents that they create.
func (s *peers) run(ctx context.Context, answer func(context.Context, memory.Question), takeUp func(*memory.Head, time.Time)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.every(ctx, beatEvery, nil, s.beat(takeUp)) })
	var changed <-chan struct{}
	if f, ok := s.Peers.(memory.Followed); ok {
		changed = f.Changed()
	}
	wg.Go(func() { s.every(ctx, tailEvery, changed, s.watch()) })
	seen := asked{at: map[int64]time.Time{}}
	take := func(q memory.Question) {
		if seen.first(q.No) {
			wg.Go(func() { answer(context.WithoutCancel(ctx), q) })
		}
	}
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case q := <-s.Calls():
				take(q)
			}
		}
	})
	var looked time.Time
	s.every(ctx, askedEvery, nil, func(ctx context.Context) error {
		if s.live.openCount.Load() == 0 || s.Notified() && time.Since(looked) < askedSafe {
			return nil
		}
		looked = time.Now()
		list, err := s.Asked(ctx)
		for _, q := range list {
			take(q)
		}
		return err
	})
}

// asked is the set of questions that were seen.
type asked struct {
	mu sync.Mutex
	at map[int64]time.Time
}

// first reports whether a question is seen for the first time.
func (a *asked) first(no int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if len(a.at) >= maxAsked {
		for no, at := range a.at {
			if now.Sub(at) > time.Minute { // the store returns those of the last seconds
				delete(a.at, no)
			}
		}
	}
	_, again := a.at[no]
	a.at[no] = now
	return !again
}

// maxAsked is how many seen questions are kept before the old ones are forgotten.
const maxAsked = 1024

// every calls do repeatedly, and when it is woken, until ctx is done. It reports the first of
// several failures in a row.
func (s *peers) every(ctx context.Context, pause time.Duration, wake <-chan struct{}, do func(context.Context) error) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	failing := false
	for {
		call, cancel := context.WithTimeout(ctx, peerTimeout)
		err := do(call)
		cancel()
		if err != nil && !failing && ctx.Err() == nil {
			s.cfg.OnError("work with other servers on the store", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-wake:
		}
	}
}

// beat returns the function that records activity here and loads agents created elsewhere.
func (s *peers) beat(takeUp func(*memory.Head, time.Time)) func(context.Context) error {
	var places []int64 // of the last calls of NewLive
	return func(ctx context.Context) error {
		others, err := s.Beat(ctx, s.newActivity())
		if err != nil {
			return err
		}
		s.others.Store(others)
		if !others {
			return nil
		}
		from := int64(0)
		if len(places) > 0 {
			from = places[0]
		}
		now := s.cfg.Now()
		at, err := s.NewLive(ctx, from, func(h memory.Head) error {
			if s.live.get(h.Agent.Ref()) == nil {
				takeUp(&h, now)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if places = append(places, at); len(places) > int(relive/beatEvery) {
			places = places[1:]
		}
		return nil
	}
}

// newActivity returns the activity since it was last recorded.
func (s *peers) newActivity() []memory.Seen {
	now := s.cfg.Now().UnixMilli()
	fresh := make(map[memory.Ref]memory.Seen, len(s.told))
	var out []memory.Seen
	s.live.mu.RLock()
	defer s.live.mu.RUnlock()
	for ref, a := range s.live.agents {
		n := memory.Seen{Project: ref.Project, ID: ref.ID, AskedMS: a.asked.Load() / 1e6, SpokenMS: a.spoken.Load() / 1e6}
		a.mu.Lock()
		if len(a.answers) > 0 {
			n.AskedMS, n.SpokenMS = now, now
		} else if len(a.feeds) > 0 {
			n.AskedMS = now
		}
		learnt := a.learnt
		a.mu.Unlock()
		was, ok := s.told[ref]
		own := n.AskedMS > learnt.AskedMS || n.SpokenMS > learnt.SpokenMS
		if own && (!ok || n.AskedMS-was.AskedMS >= seenGrain.Milliseconds() || n.SpokenMS-was.SpokenMS >= seenGrain.Milliseconds()) {
			out, was = append(out, n), n
		}
		fresh[ref] = was
	}
	s.told = fresh
	return out
}

// learn takes over what other processes have seen of an agent.
func (s *peers) learn(ctx context.Context, ref memory.Ref) error {
	seen, err := s.Seen(ctx, ref.Project, ref.ID)
	if err != nil {
		return err
	}
	a := s.live.get(ref)
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.learnt.AskedMS, a.learnt.SpokenMS = max(a.learnt.AskedMS, seen.AskedMS), max(a.learnt.SpokenMS, seen.SpokenMS)
	for at, ms := range map[*atomic.Int64]int64{&a.asked: seen.AskedMS, &a.spoken: seen.SpokenMS} {
		if ns := ms * 1e6; ns > at.Load() {
			at.Store(ns)
		}
	}
	return nil
}

// watch returns the function that notifies followers of changes by other processes.
func (s *peers) watch() func(context.Context) error {
	known := map[memory.Ref]int64{}
	follow := func(context.Context, []string, []string) error { return nil }
	if f, ok := s.Peers.(memory.Followed); ok {
		follow = f.Follow
	}
	return func(ctx context.Context) error {
		keys := s.live.followed()
		if !s.others.Load() {
			keys = nil
		}
		projects, ids := make([]string, len(keys)), make([]string, len(keys))
		for i, ref := range keys {
			projects[i], ids[i] = ref.Project, ref.ID
		}
		told := follow(ctx, projects, ids)
		if len(keys) == 0 {
			clear(known)
			return told
		}
		revs, err := s.Revisions(ctx, projects, ids)
		if err != nil {
			return err
		}
		fresh := make(map[memory.Ref]int64, len(keys))
		for i, ref := range keys {
			// What is followed since the last look may have changed in between.
			if was, ok := known[ref]; (!ok || revs[i] != was) && !s.live.knows(ref, revs[i]) {
				s.live.changed(ref)
			}
			fresh[ref] = revs[i]
		}
		known = fresh
		return told
	}
}

// answerPeer handles a question of another process, if it is about an answer that is being
// generated here.
func (s *Turns) answerPeer(ctx context.Context, q memory.Question) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.SettleWait+peerTimeout)
	defer cancel()
	var r memory.Reply
	var meant []*openAnswer
	for _, o := range s.live.placedBefore(ctx, memory.Ref{Project: q.Project, ID: q.ID}, q.Before) {
		if q.TurnID != nil && *q.TurnID != o.turn.Load() {
			continue
		}
		said := o.says(q.Heard)
		r.Foreign = r.Foreign || !said && q.TurnID != nil
		if said {
			meant = append(meant, o)
		}
	}
	var err error
	if q.Cause == "" {
		for _, o := range meant {
			r.Turns, r.Phase = append(r.Turns, o.turn.Load()), max(r.Phase, memory.Phase(o.phase.Load()))
		}
	} else if cause := cutBy(q.Cause); cause != nil {
		for _, o := range meant { // first, because the other process waits for it
			o.stop(cause)
		}
		if !q.Tell && !storedWithin(ctx, meant, takeAfter) {
			err = s.peers.Take(ctx, q)
		}
		r.Turns = s.waitStored(ctx, meant)
	}
	if err == nil && !q.Tell && (len(r.Turns) > 0 || r.Foreign) {
		err = s.peers.Reply(ctx, q, r)
	}
	if err != nil {
		s.cfg.OnError("answer another server on the store", err)
	}
}

// storedWithin reports whether all answers are stored within the time.
func storedWithin(ctx context.Context, cut []*openAnswer, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for _, o := range cut {
		select {
		case <-o.settled:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// askIfPending asks the other processes to cut their answers, if the ledger shows that one may be
// under way; a nil cause only asks. On failure it returns an empty reply, and the caller goes on
// with what is stored.
func (s *Turns) askIfPending(ctx context.Context, ref memory.Ref, cause error, turn *int64, heard *string) memory.Reply {
	if s.peers == nil {
		return memory.Reply{}
	}
	h, list, err := s.cfg.Ledger.Recent(ctx, ref.Project, ref.ID, pendingLook, false)
	if err != nil || !pending(list) {
		return memory.Reply{}
	}
	return s.ask(ctx, ref, cause, h.NextSeq, turn, heard)
}

// ask is askIfPending for a caller that has already checked the ledger. before is the ledger's
// next Seq then.
func (s *Turns) ask(ctx context.Context, ref memory.Ref, cause error, before int64, turn *int64, heard *string) memory.Reply {
	q := memory.Question{Project: ref.Project, ID: ref.ID, Before: before, TurnID: turn, Heard: heard}
	if cause != nil {
		q.Cause = cause.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.SettleWait)
	defer cancel()
	r, err := s.peers.Ask(ctx, q)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		s.cfg.OnError("ask the other servers on the store", err)
	}
	return r
}

// pendingLook is how many messages are searched for one whose answer is not stored.
const pendingLook = 16

// pending reports whether the newest messages of a ledger have one whose answer is under way, or
// was when a process died.
func pending(list []memory.Message) bool {
	for i := range list {
		if at := list[i].AnswerSeq; at != 0 && !slices.ContainsFunc(list, func(m memory.Message) bool { return m.Seq == at }) {
			return true
		}
	}
	return false
}

// supersedeElsewhere has other processes give up earlier answers to the turn of a repeated call. It
// does not wait for them.
func (s *Turns) supersedeElsewhere(ctx context.Context, ref memory.Ref, t *Turn) {
	if s.peers == nil {
		return
	}
	q := memory.Question{Project: ref.Project, ID: ref.ID, Cause: ErrSuperseded.Error(), Before: t.answer.place.Load(), TurnID: &t.TurnID, Tell: true}
	if _, err := s.peers.Ask(ctx, q); err != nil {
		s.cfg.OnError("ask the other servers on the store", err)
	}
}
