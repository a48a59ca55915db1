// Package recall finds what was said in any call of one caller. An Index holds a caller's turns in
// the wording that was heard and ranks them for a query; it is pure. A Service keeps the indexes of
// recent callers in memory, built from the ledger and brought up to date before every search, so
// that a search finds what any server has stored before it.
package recall

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/breaker"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/longterm/resident"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
)

const (
	page  = 500 // how many messages are read at a time
	batch = 8   // how many are put into an index while searches wait
	// turnTime is about how long a search takes for each turn of the caller.
	turnTime = 50 * time.Nanosecond
)

// The values of Result.Degraded.
const (
	Cold   = "cold"   // the caller's calls are still being read; what has been read was searched
	Behind = "behind" // calls that have changed could not be read in time and were not searched
	// Partial means that the oldest calls were left out, since the index would take too much
	// memory, or that some turns were not searched before the deadline.
	Partial = "partial"
)

// Config is what a Service needs. All fields but Who and those of embeddings are
// required.
type Config struct {
	Ledger memory.Ledger
	Items  memories.Store // of Ledger
	MaxMB  int            // memory for all indexes; one takes at most half of it
	// Who returns the user of a name or alias, and all names under which its calls are stored; none
	// if they must not be recalled. nil = each name is a user of its own.
	Who func(ctx context.Context, project, name string) (user string, names []string, err error)
	// OnError is called when calls could not be read ahead of a search.
	OnError func(what string, err error)
	// Embedder, if not nil, makes embeddings of turns. See Service.Embed.
	Embedder Embedder
	Now      func() time.Time
}

// Service searches callers' calls. Its methods are safe for concurrent use. Indexes are built only
// while Run runs.
type Service struct {
	cfg     Config
	callers *resident.Cache[callerKey, *caller]
	embeds  *job.Queue       // of callers with turns without an embedding; nil = none are made
	breaker *breaker.Breaker // of embeddings of queries
	// unembedded has the users of the jobs of embeds, by job.Key.
	unembedded sync.Map
}

type callerKey struct{ project, user string }

// caller is the index of one caller with what is known of its calls.
type caller struct {
	project string
	user    string
	names   []string // under which its calls are stored

	mu     lock // guards the rest, which is changed within the entry alone
	index  *Index
	agents map[string]agentState
	// wordsOnly is set once embeddings had to make room for turns.
	wordsOnly bool
}

// agentState is up to where an agent's messages are in the index.
type agentState struct {
	memory.Version
	base    int64 // start of its memory
	leftOut bool  // the index was full: its oldest messages or all are missing
	unread  bool  // all messages must be read again; until then it is not searched
}

// NewService returns a Service.
func NewService(cfg Config) *Service {
	return &Service{
		cfg: cfg, callers: resident.New[callerKey, *caller](int64(cfg.MaxMB) << 20), breaker: breaker.New(embedBreaker),
	}
}

// Run builds indexes until ctx is done.
func (s *Service) Run(ctx context.Context) error { return s.callers.Run(ctx, s.build) }

// Warm starts to bring the index of a caller up to date who is about to be asked for. It does not
// wait for that. Without a user it does nothing.
func (s *Service) Warm(ctx context.Context, project, user string) {
	if user == "" {
		return
	}
	user, names, err := s.who(ctx, project, user)
	if err == nil && len(names) > 0 { // else the search tells
		s.caller(project, user, names).Warm(project)
	}
}

// Forget drops the index of a user who was erased.
func (s *Service) Forget(project, user string) { s.callers.Remove(callerKey{project, user}) }

// who returns the user of a name or alias with all names.
func (s *Service) who(ctx context.Context, project, name string) (string, []string, error) {
	if s.cfg.Who == nil {
		return name, []string{name}, nil
	}
	return s.cfg.Who(ctx, project, name)
}

// caller returns the entry of the index of a user. It replaces an index with other names.
func (s *Service) caller(project, user string, names []string) *resident.Entry[callerKey, *caller] {
	k := callerKey{project, user}
	for {
		e := s.callers.Get(k, func() *caller {
			return &caller{project: project, user: user, names: names, mu: make(lock, 1), index: NewIndex(), agents: map[string]agentState{}}
		})
		if slices.Equal(e.Value.names, names) {
			return e
		}
		s.callers.Remove(k)
	}
}

// lock is a mutex for which a caller with a deadline does not wait any longer. It has a value while
// it is locked.
type lock chan struct{}

func (l lock) Lock()   { l <- struct{}{} }
func (l lock) Unlock() { <-l }

// in locks, unless ctx ends first.
func (l lock) in(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	default:
	}
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fault.Ended(ctx)
	}
}

// Bytes returns about how much memory the index takes.
func (c *caller) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.index.Bytes()
}

// build reads what is missing of the calls of a caller.
func (s *Service) build(ctx context.Context, c *caller) error {
	now, err := memories.AgentsOf(ctx, s.cfg.Items, c.project, c.names)
	if err == nil {
		err = s.load(ctx, c, now, "")
	}
	if err != nil && ctx.Err() == nil {
		s.cfg.OnError("build the index of a caller", err)
	}
	s.embedTurns(c)
	return err
}

// Result is what a search found.
type Result struct {
	Hits     []Hit
	Strength string
	Degraded []string
	Calls    int // that the user has
	// Forbidden is set if Config.Who allows no recall of the user.
	Forbidden bool
}

// Search searches the calls of the user of a project with a name or alias, and returns at the
// deadline at the latest: calls that could not be read until then are left out, and Degraded says
// so. It fails as the store does, unless the deadline has passed.
func (s *Service) Search(ctx context.Context, project, user string, q Query, deadline time.Duration) (Result, error) {
	within, stop := context.WithTimeout(ctx, deadline)
	defer stop()
	late := func(err error) bool { return err != nil && within.Err() != nil && ctx.Err() == nil }
	user, names, err := s.who(within, project, user)
	var now []memories.AgentVersion
	if err == nil {
		now, err = memories.AgentsOf(within, s.cfg.Items, project, names)
	}
	switch {
	case late(err):
		return Result{Strength: None, Degraded: []string{Behind}}, nil
	case err != nil:
		return Result{}, err
	case len(now) == 0: // what was erased does not stay in memory
		s.callers.Remove(callerKey{project, user})
		return Result{Strength: None, Forbidden: len(names) == 0}, nil
	}
	e := s.caller(project, user, names)
	c, out := e.Value, Result{Strength: None, Calls: len(now)}
	end, _ := within.Deadline()
	if c.mu.in(within) != nil {
		out.Degraded = []string{Partial}
		return out, nil
	}
	reading, stop := context.WithDeadline(within, end.Add(-time.Duration(c.index.live)*turnTime))
	c.mu.Unlock()
	defer stop()
	embedding := s.embedQuery(reading, c, q.Text, deadline)
	defer embedding()
	if e.Cold() {
		select {
		case <-e.Warm(project):
		case <-reading.Done():
			out.Degraded = append(out.Degraded, Cold)
		}
	}
	if !e.Cold() {
		current, err := c.current(reading, now, q.NotCall)
		if err == nil && !current {
			if err = e.Enter(reading, func() error { return s.load(reading, c, now, q.NotCall) }); err == nil {
				e.Leave()
			}
		}
		if err != nil && reading.Err() != nil && ctx.Err() == nil {
			out.Degraded = append(out.Degraded, Behind)
			e.Warm(project) // Run has no deadline
		} else if err != nil {
			return Result{}, err
		}
	}
	if ctx.Err() != nil { // the client has gone
		return Result{}, fault.Wrap(fault.Canceled, context.Cause(ctx), "the call was given up")
	}
	s.embedTurns(c)
	q.Embedding, q.Model = embedding()
	partial := c.mu.in(within) != nil
	if !partial {
		defer c.mu.Unlock()
		q.Searched, partial = c.searched(now)
		q.Late = func() bool {
			over := time.Until(end) <= 0
			partial = partial || over
			return over
		}
		out.Hits, out.Strength = c.index.Search(q)
	}
	if partial {
		out.Degraded = append(out.Degraded, Partial)
	}
	return out, nil
}

// searched returns which calls may be searched, nil for all, and whether some of their turns were
// left out. The caller holds c.mu.
func (c *caller) searched(now []memories.AgentVersion) (only func(call string) bool, partial bool) {
	held := 0
	for _, a := range now {
		state := c.agents[a.ID]
		held += b2i(state.holds(a.Version))
		partial = partial || state.leftOut
	}
	if held == len(now) && held == len(c.agents) {
		return nil, partial
	}
	calls := map[string]bool{}
	for _, a := range now { // without those that were erased in the meantime
		calls[a.ID] = c.agents[a.ID].holds(a.Version)
	}
	return func(call string) bool { return calls[call] }, partial
}

// holds reports whether the agent's messages are in the index as of a version.
func (a agentState) holds(v memory.Version) bool {
	return !a.unread && a.No == v.No && a.Rev >= v.Rev && a.Ver >= v.Ver
}

// current reports whether the index holds all agents as they are now, and no other. One whose call
// is not asked for may be there in any state.
func (c *caller) current(ctx context.Context, now []memories.AgentVersion, notAsked string) (bool, error) {
	if err := c.mu.in(ctx); err != nil {
		return false, err
	}
	defer c.mu.Unlock()
	there := 0
	for _, a := range now {
		state, ok := c.agents[a.ID]
		if a.ID != notAsked && !state.holds(a.Version) {
			return false, nil
		}
		there += b2i(ok)
	}
	return len(c.agents) == there, nil
}

// load brings the index up to date with the agents as they are now, newest first, but for one whose
// call is not asked for. It runs within the entry, where no other changes c.agents.
func (s *Service) load(ctx context.Context, c *caller, now []memories.AgentVersion, notAsked string) error {
	slices.SortFunc(now, func(a, b memories.AgentVersion) int { return cmp.Compare(b.No, a.No) })
	there := 0
	for _, a := range now {
		_, ok := c.agents[a.ID]
		there += b2i(ok)
	}
	if there < len(c.agents) {
		gone := maps.Clone(c.agents)
		for _, a := range now {
			delete(gone, a.ID)
		}
		if err := c.mu.in(ctx); err != nil {
			return err
		}
		for id := range gone {
			c.forget(id)
		}
		c.mu.Unlock()
	}
	full := false
	for _, a := range now {
		known := c.agents[a.ID]
		switch {
		case a.ID == notAsked:
			continue
		case full && (known.unread || known.No != a.No): // a newer one did not fit
			if err := c.mu.in(ctx); err != nil {
				return err
			}
			c.index.RemoveCall(a.ID)
			c.agents[a.ID] = agentState{Version: a.Version, leftOut: true}
			c.mu.Unlock()
		case !known.holds(a.Version):
			if err := s.loadAgent(ctx, c, a, known); err != nil {
				return err
			}
		}
		full = full || c.agents[a.ID].leftOut
	}
	return nil
}

// forget removes an agent from the index. Those that were left out may fit now and are read again.
// The caller holds c.mu.
func (c *caller) forget(id string) {
	c.index.RemoveCall(id)
	delete(c.agents, id)
	for id, a := range c.agents {
		if a.leftOut {
			a.unread = true
			c.agents[id] = a
		}
	}
}

// fit leaves out embeddings and then the oldest calls until the index is within a limit. Of a call
// that is the only one it leaves out the older half of the turns. It reports whether a given
// agent's call was left out as a whole. The caller holds c.mu.
func (c *caller) fit(limit int64, id string) (out bool) {
	if c.index.Bytes() > limit && c.index.embedded > 0 {
		c.index.use("")
		c.wordsOnly = true
	}
	for c.index.Bytes() > limit {
		oldest := ""
		for call := range c.index.calls {
			if oldest == "" || c.agents[call].No < c.agents[oldest].No {
				oldest = call
			}
		}
		docs := c.index.calls[oldest].docs
		if len(c.index.calls) > 1 || len(docs) == 1 {
			c.index.RemoveCall(oldest)
			out = out || oldest == id
		} else {
			c.index.RemoveBefore(oldest, c.index.docs[docs[len(docs)/2]].Seq)
		}
		a := c.agents[oldest]
		a.leftOut = true
		c.agents[oldest] = a
	}
	return out
}

// loadAgent brings one agent's messages in the index up to date.
func (s *Service) loadAgent(ctx context.Context, c *caller, now memories.AgentVersion, known agentState) error {
	h, err := s.cfg.Ledger.Head(ctx, c.project, now.ID)
	if fault.Is(err, fault.NotFound) { // erased in the meantime
		if err = c.mu.in(ctx); err == nil {
			c.forget(now.ID)
			c.mu.Unlock()
		}
		return err
	}
	if err != nil {
		return err
	}
	mem := &h.Agent.Settings.Memory
	// What is read below is at least as new as the head.
	next := agentState{Version: memory.Version{No: now.No, Rev: h.Rev}, base: mem.BaseSeq}
	grown := h.Rev - known.Rev
	if now.Ver > 0 {
		next.Ver = now.Ver + h.Rev - now.Rev
	}
	q := memory.MessageQuery{AfterRev: known.Rev, Limit: page}
	// Changes that revisions do not show, such as an import, raise Ver alone.
	whole := known.No != now.No || known.unread || known.base > mem.BaseSeq || now.Ver > 0 && next.Ver-known.Ver != grown
	if whole {
		q.AfterRev = 0
	}
	first := int64(1)
	if mem.Inherited != nil {
		first = mem.Inherited.UpToSeq + 1
	}
	first = max(first, mem.BaseSeq)
	q.AfterSeq = first - 1
	for begun := false; ; begun = true {
		msgs, err := s.cfg.Ledger.Messages(ctx, c.project, now.ID, q)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		if late := c.mu.in(ctx); late != nil {
			return late
		}
		if err != nil { // erased in the meantime
			c.forget(now.ID)
			c.mu.Unlock()
			return nil
		}
		done := len(msgs) < page
		if !begun {
			c.agents[now.ID] = agentState{Version: memory.Version{No: now.No}, leftOut: known.leftOut && !whole, unread: true}
			if whole {
				c.index.RemoveCall(now.ID)
			}
			c.index.RemoveBefore(now.ID, first)
		}
		for i := range msgs {
			if i%batch == 0 && i > 0 { // lets searches in between
				c.mu.Unlock()
				if err := c.mu.in(ctx); err != nil {
					return err
				}
			}
			c.put(now.ID, &msgs[i])
			q.AfterSeq = msgs[i].Seq
		}
		if c.fit(int64(s.cfg.MaxMB)<<19, now.ID) {
			done = true
		}
		if done {
			next.leftOut = c.agents[now.ID].leftOut
			c.agents[now.ID] = next
		}
		c.mu.Unlock()
		if done {
			return nil
		}
	}
}

// put puts a message into the index, or removes it from there if it is not to be found. The caller
// holds c.mu.
func (c *caller) put(agentID string, m *memory.Message) {
	injected := m.Role == memory.User && (m.Source == memory.SourceCommand || m.Source == memory.SourceSilence)
	if !m.InHistory() || !slices.Contains(c.names, m.Filed().Scope.UserID) || m.Content == "" || injected {
		c.index.Remove(agentID, m.Seq)
		return
	}
	c.index.Put(Turn{
		Call: agentID, Seq: m.Seq, TurnID: m.TurnID, ID: m.ID, Role: string(m.Role), At: m.Timestamp, Text: m.Content,
		Session: m.Filed().Scope.SessionID, Method: string(m.Method), Complete: !m.Interrupted,
	})
}
