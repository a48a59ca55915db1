// Package away lets conversations go on while the store is away. A Keeper takes the changes that a
// turn makes, decides them on what this process last knew of the agent, keeps them in a local file,
// and stores them when the store is back. It never acknowledges them as stored.
//
// A kept message is stored at its place, with its number and turn, unless something newer was
// stored meanwhile; then it is appended late, with its time. A message that is stored already is
// recognized, so a change whose commit had an unknown outcome is not doubled, nor one that was
// stored just before the process was killed.
package away

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Config configures a Keeper. All fields but File are required.
type Config struct {
	// Ledger is the store.
	Ledger memory.Ledger
	// Known returns what this process last knew of an agent, without asking the store.
	Known func(project, id string) (memory.Head, []memory.Message, bool)
	// Store applies a decision with all that goes with a change; see Keeper.Flush.
	Store func(ctx context.Context, project, id string, decide memory.Decision) error
	// Join creates an agent that was expected; see Keeper.Expect.
	Join func(ctx context.Context, project, id string, labels map[string]string) error
	// File keeps what is not stored yet; nil keeps it in memory only.
	File *File
	// Report is called at the beginning of an outage with its cause, and at its end with nil.
	Report func(cause error)
	// OnError is called with errors about one agent.
	OnError func(what, project, id string, err error)
	// Count is called for each turn with one of the events below.
	Count func(event string)
}

// The events of turns.
const (
	Passed  = "passed"   // went on without the store
	Kept    = "kept"     // is in the local file
	NotKept = "not_kept" // is in memory only, since the file could not be written
	Stored  = "stored"   // is in the store, at its place
	Late    = "late"     // is in the store, after something newer
	Dropped = "dropped"  // will not be stored: the agent was erased or may have no more messages
)

// Limits.
const (
	// decideWithin is how long a turn waits for a store that is not known to be away.
	decideWithin = 2 * time.Second
	// readWithin limits a read of an agent that this process does not know.
	readWithin = 500 * time.Millisecond
	// tryEvery is how often a store that is away is asked whether it is back, and pingWithin how
	// long it may take to answer.
	tryEvery   = time.Second
	pingWithin = 2 * time.Second
	// tail is how many messages are read of an agent.
	tail = 48
)

// errSlow is the cause of an outage of a store that does not answer.
var errSlow = fault.New(fault.Unavailable, "the store did not answer in time")

// Keeper keeps turns. Its methods are safe for concurrent use.
type Keeper struct {
	cfg  Config
	wake chan struct{}

	away   atomic.Bool  // the store did not answer when it was last asked
	outage atomic.Bool  // Report was called with a cause
	kept   atomic.Int64 // len(agents)

	mu     sync.Mutex
	agents map[memory.Ref]*agent
}

// New returns a Keeper with what the file holds. Store is not called before Run or another method.
func New(cfg Config) *Keeper {
	k := &Keeper{cfg: cfg, wake: make(chan struct{}, 1), agents: map[memory.Ref]*agent{}}
	if cfg.File != nil {
		for _, r := range cfg.File.records {
			if ref := (memory.Ref{Project: r.Project, ID: r.ID}); r.Done {
				delete(k.agents, ref)
			} else {
				a := k.agent(ref)
				a.expected, a.labels = r.Expected, r.Labels
				a.take(r.NextSeq, r.change(), r.Was, r.Settled)
			}
		}
		cfg.File.records = nil
	}
	k.kept.Store(int64(len(k.agents)))
	return k
}

// agent returns the kept changes of an agent, an empty value if there are none. The caller holds
// mu, or is New.
func (k *Keeper) agent(ref memory.Ref) *agent {
	a := k.agents[ref]
	if a == nil {
		a = &agent{ref: ref}
		k.agents[ref] = a
		k.kept.Store(int64(len(k.agents)))
	}
	return a
}

// lock returns an agent's kept changes, locked, nil if there are none and create is not set.
func (k *Keeper) lock(ref memory.Ref, create bool) *agent {
	if !create && k.kept.Load() == 0 {
		return nil
	}
	for {
		k.mu.Lock()
		a := k.agents[ref]
		if a == nil && create {
			a = k.agent(ref)
		}
		k.mu.Unlock()
		if a == nil {
			return nil
		}
		if a.mu.Lock(); !a.gone {
			return a
		}
		a.mu.Unlock()
	}
}

// remove ends an agent's entry, which the caller has locked.
func (k *Keeper) remove(a *agent) {
	a.gone = true
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.agents, a.ref)
	k.kept.Store(int64(len(k.agents)))
	if k.cfg.File == nil || a.empty() {
		return
	}
	if len(k.agents) == 0 {
		k.cfg.File.reset()
	} else {
		// Without the record, what is stored is recognized.
		_ = k.cfg.File.append(record{Project: a.ref.Project, ID: a.ref.ID, Done: true})
	}
}

// Update applies a decision as Ledger.UpdateEarly does, or as Ledger.Update if kept is nil. If the
// store is away, or does not answer within two seconds, it keeps the change and returns passed, or
// calls kept with it. With hold the agent's changes are not stored before Release.
func (k *Keeper) Update(ctx context.Context, project, id string, decide memory.Decision, hold bool, kept func(passed bool, err error)) (early, passed bool, err error) {
	ref := memory.Ref{Project: project, ID: id}
	if a := k.lock(ref, false); a != nil {
		ready := k.store(ctx, a)
		if ready == nil {
			a.mu.Unlock()
		} else {
			defer a.mu.Unlock()
			return false, true, k.pass(ctx, a, decide, hold, ready)
		}
	}
	if k.away.Load() {
		a := k.lock(ref, true)
		defer a.mu.Unlock()
		return false, true, k.pass(ctx, a, decide, hold, errSlow)
	}
	t := &try{k: k, ref: ref, decide: decide, hold: hold}
	type result struct {
		early bool
		err   error
	}
	ended := make(chan result, 1)
	go func() { // a commit that has begun ends with the store's own limits
		within, stop := context.WithTimeout(ctx, decideWithin) // of what the decision reads
		defer stop()
		var r result
		if kept == nil {
			r.err = k.cfg.Ledger.Update(within, project, id, t.run)
		} else {
			r.early, r.err = k.cfg.Ledger.UpdateEarly(within, project, id, t.run, func(err error) {
				if passed, err, first := t.end(ctx, err); first {
					kept(passed, err)
				}
			})
		}
		ended <- r
	}()
	limit := time.NewTimer(decideWithin)
	defer limit.Stop()
	var r result
	select {
	case r = <-ended:
		if r.early {
			t.limit(func() {
				if passed, err, first := t.end(ctx, errSlow); first {
					kept(passed, err)
				}
			})
			return true, false, nil
		}
	case <-limit.C:
		r.err = errSlow
	}
	passed, err, _ = t.end(ctx, r.err)
	return false, passed, err
}

// try is a decision that is given to the store.
type try struct {
	k      *Keeper
	ref    memory.Ref
	decide memory.Decision
	hold   bool

	mu      sync.Mutex
	timer   *time.Timer // of an early decision
	over    bool        // the caller has gone on
	decided bool
	head    memory.Head // what was decided on
	change  memory.Change
}

// errOver ends a decision whose caller has gone on without the store.
var errOver = fault.New(fault.Canceled, "the turn went on without the store")

func (t *try) run(view memory.AgentView) (memory.Change, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return memory.Change{}, errOver
	}
	c, err := t.decide(view)
	t.decided, t.head, t.change = err == nil, view.Head(), c
	return c, err
}

// limit has late called unless the try ends before.
func (t *try) limit(late func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.timer = time.AfterFunc(decideWithin, late)
	}
}

// end ends the try with the store's error, and keeps the change if the store is away. Only the
// first call does.
func (t *try) end(ctx context.Context, err error) (passed bool, _ error, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false, nil, false
	}
	t.over = true
	if t.timer != nil {
		t.timer.Stop()
	}
	if !fault.Is(err, fault.Unavailable) {
		return false, err, true
	}
	t.k.noteAway(err)
	a := t.k.lock(t.ref, true)
	defer a.mu.Unlock()
	if t.decided && a.fits(t.change) {
		if len(a.tail) == 0 {
			_, a.tail, _ = t.k.cfg.Known(t.ref.Project, t.ref.ID)
		}
		if a.head.Agent == nil || t.head.Rev > a.head.Rev {
			a.head = t.head
		}
		t.k.keep(a, t.change, t.hold)
		return true, nil, true
	}
	err = t.k.pass(context.WithoutCancel(ctx), a, t.decide, t.hold, err)
	return err == nil, err, true
}

// pass decides on what is known of an agent and keeps the change. cause is why it is not stored.
// The caller has locked a.
func (k *Keeper) pass(ctx context.Context, a *agent, decide memory.Decision, hold bool, cause error) error {
	err := k.know(ctx, a, cause)
	if err == nil {
		var c memory.Change
		if c, err = decide(overlay{a}); err == nil {
			k.keep(a, c, hold)
			return nil
		}
	}
	if a.empty() && !a.expected { // the decision may come again
		k.remove(a)
	}
	return err
}

// Expect has turns go on of an agent that this process does not know, if the store is away, as err
// shows. The agent is created when the store is back, unless it exists.
func (k *Keeper) Expect(agent memory.Agent, err error) bool {
	if _, _, known := k.cfg.Known(agent.Project, agent.ID); known || !k.Failed(err) {
		return false
	}
	a := k.lock(memory.Ref{Project: agent.Project, ID: agent.ID}, true)
	defer a.mu.Unlock()
	if a.head.Agent != nil || len(a.added) > 0 && !a.expected {
		return false
	}
	a.expected, a.labels = true, agent.Settings.Labels
	a.know(memory.NewHead(agent, nil, 0), nil)
	return true
}

// know sets what is known of an agent.
func (k *Keeper) know(ctx context.Context, a *agent, cause error) error {
	if a.head.Agent != nil {
		return nil
	}
	head, list, ok := k.cfg.Known(a.ref.Project, a.ref.ID)
	if !ok {
		ctx, stop := context.WithTimeout(ctx, readWithin)
		defer stop()
		var err error
		if head, list, err = k.cfg.Ledger.Recent(ctx, a.ref.Project, a.ref.ID, tail, false); fault.Is(err, fault.Unavailable) {
			return fault.Wrap(fault.Unavailable, errors.Join(cause, err), "the store is away, and this server does not know the agent")
		} else if err != nil {
			return err
		}
	}
	a.know(head, list)
	return nil
}

// keep adds a change to those of an agent and to the file. A turn ends with a change that is not to
// be held.
func (k *Keeper) keep(a *agent, c memory.Change, hold bool) {
	base, was := a.head.NextSeq, a.revs(c.Replace)
	c.Agent = nil // settings may hold secrets
	a.take(base, c, was, !hold)
	if hold {
		a.open++
		k.cfg.Count(Passed)
	}
	err := errors.New("there is no file")
	if k.cfg.File != nil {
		err = k.cfg.File.append(a.record(base, c, was, !hold))
	}
	event := Kept
	if err != nil {
		event = NotKept
		k.cfg.OnError("a turn could not be kept on disk and is lost if the server stops before the store is back", a.ref.Project, a.ref.ID, err)
	}
	if !hold {
		k.cfg.Count(event)
	}
}

// Release ends a turn that was held.
func (k *Keeper) Release(project, id string) {
	if a := k.lock(memory.Ref{Project: project, ID: id}, false); a != nil {
		a.open--
		a.mu.Unlock()
		k.poke()
	}
}

func (k *Keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default: // asked for already
	}
}

// joining marks the contexts of calls that create an expected agent, by its memory.Ref: they may
// change it.
type joining struct{}

// errWaits refuses changes of an agent whose turns wait to be stored.
var errWaits = fault.New(fault.Unavailable, "turns of this agent wait for the store; try again")

// Ready stores what is kept of an agent. It fails with fault.Unavailable if that is not possible
// now. A change of the agent must not be stored before.
func (k *Keeper) Ready(ctx context.Context, project, id string) error {
	if ctx.Value(joining{}) == (memory.Ref{Project: project, ID: id}) {
		return nil
	}
	a := k.lock(memory.Ref{Project: project, ID: id}, false)
	if a == nil {
		return nil
	}
	defer a.mu.Unlock()
	return k.store(ctx, a)
}

// Head implements agents.Away.
func (k *Keeper) Head(ctx context.Context, project, id string) (h memory.Head, stored bool, err error) {
	if !k.away.Load() {
		within, stop := context.WithTimeout(ctx, decideWithin)
		defer stop()
		if h, err = k.cfg.Ledger.Head(within, project, id); !fault.Is(err, fault.Unavailable) {
			return h, true, err
		}
		k.noteAway(err)
	}
	if a := k.lock(memory.Ref{Project: project, ID: id}, false); a != nil {
		defer a.mu.Unlock()
		if a.head.Agent != nil {
			return a.head, false, nil
		}
	}
	h, _, ok := k.cfg.Known(project, id)
	if !ok {
		return h, false, fault.Wrap(fault.Unavailable, err, "the store is away, and this server does not know the agent")
	}
	return h, false, nil
}

// Failed reports whether the store is known to be away. err, which may be nil, is what another call
// of it has failed with.
func (k *Keeper) Failed(err error) bool {
	if fault.Is(err, fault.Unavailable) {
		k.noteAway(err)
	}
	return k.away.Load()
}

// Away reports whether the store is known to be away.
func (k *Keeper) Away() bool { return k.away.Load() }

func (k *Keeper) noteAway(cause error) {
	k.away.Store(true)
	if !k.outage.Swap(true) {
		k.cfg.Report(cause)
	}
}

// store stores what is kept of an agent, which the caller has locked.
func (k *Keeper) store(ctx context.Context, a *agent) error {
	if a.open > 0 || k.away.Load() {
		return errWaits
	}
	if a.empty() { // it was expected, and nothing came
		k.remove(a)
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, decideWithin)
	defer stop()
	late := false
	decide := func(view memory.AgentView) (c memory.Change, err error) {
		c, late, err = a.stored(view)
		return c, err
	}
	err := k.cfg.Store(ctx, a.ref.Project, a.ref.ID, decide)
	if a.expected && fault.Is(err, fault.NotFound) {
		if err = k.cfg.Join(context.WithValue(ctx, joining{}, a.ref), a.ref.Project, a.ref.ID, a.labels); err == nil {
			err = k.cfg.Store(ctx, a.ref.Project, a.ref.ID, decide)
		}
	}
	event := Stored
	switch {
	case err == nil && late:
		event = Late
	case err == nil:
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Quota):
		event = Dropped
		k.cfg.OnError("turns that were kept cannot be stored", a.ref.Project, a.ref.ID, err)
	default:
		if fault.Is(err, fault.Unavailable) {
			k.noteAway(err)
		} else if !a.failed && !fault.Is(err, fault.Canceled) {
			a.failed = true // it is tried again each second
			k.cfg.OnError("turns that were kept cannot be stored now", a.ref.Project, a.ref.ID, err)
		}
		return fault.Wrap(fault.Unavailable, err, "turns of this agent wait for the store; try again")
	}
	for range a.settled {
		k.cfg.Count(event)
	}
	k.remove(a)
	return nil
}

// Run stores what is kept as soon as the store is back, until ctx is done.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(tryEvery)
	defer tick.Stop()
	for {
		k.try(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-k.wake:
			if !k.away.Load() {
				continue
			}
			select { // a store that is away is not asked for each turn
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	}
}

// try asks a store that is away whether it is back, and stores what is kept.
func (k *Keeper) try(ctx context.Context) {
	if k.away.Load() {
		within, stop := context.WithTimeout(ctx, pingWithin)
		err := k.cfg.Ledger.Ping(within)
		stop()
		if err != nil {
			return
		}
		k.away.Store(false)
	}
	k.mu.Lock()
	refs := make([]memory.Ref, 0, len(k.agents))
	for ref := range k.agents {
		refs = append(refs, ref)
	}
	k.mu.Unlock()
	for _, ref := range refs {
		if ctx.Err() != nil {
			return
		}
		if k.Ready(ctx, ref.Project, ref.ID) != nil && k.away.Load() {
			return
		}
	}
	if ctx.Err() == nil && !k.away.Load() && k.outage.Swap(false) {
		k.cfg.Report(nil)
	}
}
