package facts

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/longterm/resident"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/memory/redact"
	"github.com/heardlog/heardlog/store/record"
)

// Space is the name of the space of a caller's facts.
const Space = "fact"

const (
	atOnce = 50       // facts changed at a time; 2 more at most, and all below record.MaxBytes
	cached = 64 << 20 // bytes of all facts and indexes in memory
)

// Config is what a Service needs. All fields are required.
type Config struct {
	Store record.Store
	// Upkeep is the same store without the project's limits. Facts whose time is over or whose
	// proof is lost are stored there: a full project must not keep what is not true.
	Upkeep  record.Store
	Ledger  memory.Ledger
	Items   memories.Store
	Callers Callers
	Now     func() time.Time
	NewID   func() string // sortable by time
	Events  Events
	// Redact runs a function with what replaces personal data in texts about a call, perhaps more
	// than once; see agents.Messages.Redact. Of the agent, only Project may be set.
	Redact func(ctx context.Context, a *memory.Agent, fn func(*redact.Redactor)) error
	// HalfLife is the time after which half of a fact's confidence is left if it is not seen again;
	// 0 = it stays.
	HalfLife time.Duration
	// Count is called for metrics with what happened to facts: the name of an event, or "rejected"
	// with a reason.
	Count func(what, reason string)
}

// Callers knows who the callers of a project are and what they allow; see caller.Service.
type Callers interface {
	// Names returns all IDs of a caller, by any of them, the one that its facts are kept under
	// first.
	Names(ctx context.Context, project, user string) ([]string, error)
	// KeepsFacts reports whether new facts of a caller may be kept.
	KeepsFacts(ctx context.Context, project, user string) (bool, error)
	// Guard returns a check that reports whether a caller was erased since Guard was called.
	Guard(ctx context.Context, project, user string) (erased func(context.Context) (bool, error), err error)
}

// Events selects webhook events and writes their bodies.
type Events interface {
	// Wants reports whether an endpoint of the project receives the type. It must not block.
	Wants(project string, eventType int) bool
	// FactBody returns the body of an event, which never changes.
	FactBody(n Notice) ([]byte, error)
}

// Notice is a webhook event about a fact.
type Notice struct {
	ID   string
	Type int
	AtMS int64
	User string
	Fact Fact
}

// Service keeps facts. Its methods are safe for concurrent use.
type Service struct {
	cfg     Config
	callers *resident.Spaces[*caller]
}

func space(project, user string) record.Space {
	return record.Space{Project: project, Name: Space, User: user}
}

// caller has the facts of a caller.
type caller struct {
	project, user string
	place         *resident.Entry[record.Space, *caller] // that the caller of enter is in
	names         []string                               // all IDs of the caller
	bytes         int64                                  // of the facts in the store
	facts         map[string]*entry
	// gone are agents of sources that are no longer stored.
	gone map[string]bool
	// index is for Recall, with the revisions of the facts in it; nil until it is needed. It is
	// stale if facts have changed since.
	index   *recall.Index
	indexed map[string]int64
	stale   bool
}

// entry is a stored fact.
type entry struct {
	*Fact
	rev     int64
	checked memory.Version // of the source's agent, when the proof last stood
	end     int64          // the last message that the proof depends on; 0 = unknown
}

// changes are the messages of a call that have changed since a revision, or the first of them.
type changes struct {
	rev  int64
	msgs []memory.Message
}

// NewService returns a Service.
func NewService(cfg Config) *Service {
	fresh := func(at record.Space) *caller {
		return &caller{project: at.Project, user: at.User, facts: map[string]*entry{}, gone: map[string]bool{}}
	}
	return &Service{cfg: cfg, callers: resident.NewSpaces(cfg.Store, cached, fresh, nil)}
}

// Forget drops the facts of a user who was erased from memory.
func (s *Service) Forget(project, user string) { s.callers.Remove(space(project, user)) }

// enter returns the facts of a caller, by any of its names, as they are now, locked; leave unlocks
// them.
func (s *Service) enter(ctx context.Context, project, user string) (*caller, error) {
	names, err := s.cfg.Callers.Names(ctx, project, user)
	if err != nil {
		return nil, err
	}
	e, err := s.callers.Enter(ctx, space(project, names[0]))
	if err != nil {
		return nil, err
	}
	c := e.Value
	c.place, c.names = e, names
	return c, nil
}

func (c *caller) leave() { c.place.Leave() }

// Bytes estimates what the facts take in memory, with the index.
func (c *caller) Bytes() int64 { return c.bytes * 6 }

// Take takes over records.
func (c *caller) Take(list []record.Record, now record.State) error {
	c.bytes = now.Bytes
	c.stale = c.stale || len(list) > 0
	for _, r := range list {
		if r.Deleted {
			delete(c.facts, r.ID)
			continue
		}
		f := &Fact{ID: r.ID}
		if err := json.Unmarshal(r.Body, f); err != nil {
			return fault.Wrap(fault.Internal, err, "a stored fact cannot be read")
		}
		e := &entry{Fact: f, rev: r.Rev}
		if f.Source != nil {
			e.checked = f.Source.Checked
		}
		c.facts[r.ID] = e
	}
	return nil
}

// list returns facts that fit in the order in which they were added.
func (c *caller) list(fits func(*Fact) bool) []*Fact {
	var out []*Fact
	for _, e := range c.facts {
		if fits == nil || fits(e.Fact) {
			out = append(out, e.Fact)
		}
	}
	slices.SortFunc(out, older)
	return out
}

func older(a, b *Fact) int {
	return cmp.Or(cmp.Compare(a.order(), b.order()), cmp.Compare(a.CreatedUS, b.CreatedUS), cmp.Compare(a.ID, b.ID))
}

// change is what one decision does to the facts of a caller.
type change struct {
	*caller
	now     time.Time
	half    time.Duration // Config.HalfLife
	puts    map[string]*Fact
	drops   []string
	notices []Notice
	counts  []string
	since   map[string]changes // by agent
}

func (s *Service) newChange(c *caller) *change {
	return &change{caller: c, now: s.cfg.Now(), half: s.cfg.HalfLife, puts: map[string]*Fact{}, since: map[string]changes{}}
}

// faded is Fact.faded at the time of the change.
func (t *change) faded(f *Fact) *Fact { return f.faded(t.half, t.now) }

// faded is Fact.faded now; nil stays nil.
func (s *Service) faded(f *Fact) *Fact {
	if f == nil {
		return nil
	}
	return f.faded(s.cfg.HalfLife, s.cfg.Now())
}

// fade replaces each fact of a list by its faded form.
func (s *Service) fade(list []*Fact) []*Fact {
	now := s.cfg.Now()
	for i, f := range list {
		list[i] = f.faded(s.cfg.HalfLife, now)
	}
	return list
}

// get returns a fact as the change leaves it, or fault.NotFound.
func (t *change) get(id string) (*Fact, error) {
	if f := t.puts[id]; f != nil {
		return f, nil
	}
	if e := t.facts[id]; e != nil {
		return e.Fact, nil
	}
	return nil, notFound(id)
}

// put stores a fact with an event of its history. One whose time is over is stored as expired.
func (t *change) put(f *Fact, name, cause string) {
	ms := t.now.UnixMilli()
	f.UpdatedUS = t.now.UnixMicro()
	if f.ended(t.now) {
		if f.State == Active && f.ActiveMS == 0 {
			f.ActiveMS = ms
		}
		if f.State == Active || f.State == Draft {
			f.State = Expired
		}
	}
	switch f.State {
	case Active:
		if f.ActiveMS == 0 {
			f.ActiveMS = ms
		}
		f.EndedMS = 0
	case Draft:
		f.EndedMS = 0
	case Superseded, Withdrawn, Expired:
		if f.EndedMS == 0 {
			f.EndedMS = ms
		}
	}
	f.Confidence = round(f.Confidence)
	f.History = append(slices.Clone(f.History), Event{AtMS: ms, Name: name, Cause: cause, State: f.State, Confidence: t.faded(f).Confidence})
	f.History = f.History[max(0, len(f.History)-maxHistory):]
	var was State
	if old, err := t.get(f.ID); err == nil {
		was = old.State
	}
	t.puts[f.ID] = f
	t.counts = append(t.counts, name)
	if n := noticeOf(was, f.State); n != 0 {
		t.notices = append(t.notices, Notice{Type: n, AtMS: ms, User: t.user, Fact: *f})
	}
}

// edit returns a copy of a fact to change and put.
func edit(f *Fact) *Fact {
	c := *f
	if f.Source != nil {
		s := *f.Source
		c.Source = &s
	}
	return &c
}

func notFound(id string) error { return fault.New(fault.NotFound, "there is no fact %q", clip(id)) }

// update runs a decision on the facts of a caller, after those were withdrawn that have lost their
// proof, and stores what it did.
func (s *Service) update(ctx context.Context, project, user string, decide func(*change) error) error {
	return retry(ctx, func() error {
		c, err := s.current(ctx, project, user)
		if err != nil {
			return err
		}
		defer c.leave()
		t := s.newChange(c)
		if err := decide(t); err != nil {
			return err
		}
		if before, after := t.active(); after > max(before, MaxActive) {
			return fault.New(fault.Quota, "the caller has %d active facts; at most %d are allowed; delete or decay some first", before, MaxActive)
		}
		return s.commit(ctx, s.cfg.Store, t)
	})
}

// retry is record.Retry for facts.
func retry(ctx context.Context, change func() error) error {
	return record.Retry(ctx, "the facts of this caller", change)
}

// room reports whether there may be one more active fact after the change.
func (t *change) room() bool {
	_, after := t.active()
	return after < MaxActive
}

// active returns how many facts are active before and after a change.
func (t *change) active() (before, after int) {
	for id, e := range t.facts {
		if e.State == Active {
			before++
			if t.puts[id] == nil && !slices.Contains(t.drops, id) {
				after++
			}
		}
	}
	for _, f := range t.puts {
		if f.State == Active {
			after++
		}
	}
	return before, after
}

// commit stores what a change did. It fails with record.ErrStale.
func (s *Service) commit(ctx context.Context, store record.Store, t *change) error {
	if len(t.puts)+len(t.drops) == 0 {
		return nil
	}
	var changes []record.Change
	for id, f := range t.puts {
		body, err := json.Marshal(f)
		if err != nil {
			return err
		}
		c := record.Change{ID: id, Body: body, If: record.Absent}
		if e := t.facts[id]; e != nil {
			c.If = e.rev
		}
		changes = append(changes, c)
	}
	for _, id := range t.drops {
		changes = append(changes, record.Change{ID: id, If: t.facts[id].rev})
	}
	slices.SortFunc(changes, func(a, b record.Change) int { return cmp.Compare(a.ID, b.ID) })
	events, err := s.events(t)
	if err != nil {
		return err
	}
	limit := record.Limit{Records: MaxFacts, Of: "facts of this caller, in any state"}
	if _, err := store.ChangeRecords(ctx, space(t.project, t.user), changes, limit, events, t.now.UnixMilli()); err != nil {
		return err
	}
	for _, what := range t.counts {
		s.cfg.Count(what, "")
	}
	return nil
}

// events returns the outbox rows of a change.
func (s *Service) events(t *change) ([]memory.Event, error) {
	var out []memory.Event
	for i := range t.notices {
		n := &t.notices[i]
		if !s.cfg.Events.Wants(t.project, n.Type) {
			continue
		}
		n.ID = s.cfg.NewID()
		body, err := s.cfg.Events.FactBody(*n)
		if err != nil {
			return nil, err
		}
		out = append(out, memory.Event{ID: n.ID, Type: n.Type, CreatedMS: n.AtMS, Body: body})
	}
	return out, nil
}

// allowed fails with fault.Forbidden if no new facts of a caller may be kept.
func (s *Service) allowed(ctx context.Context, project, user string) error {
	ok, err := s.cfg.Callers.KeepsFacts(ctx, project, user)
	if err == nil && !ok {
		err = fault.New(fault.Forbidden, "the caller's consent does not allow to keep facts")
	}
	return err
}
