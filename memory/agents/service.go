package agents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/heardlog/heardlog/internal/cache"
	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
	"github.com/heardlog/heardlog/memory/window"
)

// Config configures a Service. Ledger, Now and NewID are required.
type Config struct {
	Ledger memory.Ledger
	Now    func() time.Time
	NewID  func() string // a new agent id: sortable by time and not to be guessed (UUIDv7)
	// Events selects events and builds their bodies; nil sends none.
	Events Events
	// Think runs a turn without a client, for silence_config's action think; nil makes that action
	// do nothing.
	Think func(ctx context.Context, project, agentID, text string) error
	// OnError is called with errors of background work, such as timers; nil ignores them.
	OnError func(what string, err error)
	// Peers joins the processes that serve one store; nil: this one has it for itself.
	Peers memory.Peers
	// Away takes turns while the store is away; nil refuses them.
	Away Away
	// Summaries has memories summarised; nil keeps no summaries but those that clients set.
	Summaries Summaries
	// Ended is called after an agent has ended whose settings ask for facts or a summary of the
	// call, perhaps more than once. It must not block; nil ignores it.
	Ended func(project, agentID string)
	// Changed is called after a change of a live agent whose memory is saved every so many seconds.
	// It must not block; nil ignores it.
	Changed func(project, agentID string, seconds int)
	// Forget deletes what is kept of an agent outside the ledger, before the agent is erased; nil
	// for nothing.
	Forget func(ctx context.Context, project, agentID string) error
	// Observe is called for metrics; nil ignores them.
	Observe Observer
	// MaxAgents is how many agents one project may have live; 0 = no limit.
	MaxAgents int
	// DropIdle ends the agent of the project that has been idle longest if a new one would exceed
	// MaxAgents. Otherwise the new one is refused.
	DropIdle bool
	// MaxMessages limits the messages in one agent's ledger, of every role and state; 0 means
	// no limit. Answers to accepted messages are always stored.
	MaxMessages int
	// Quota limits what a project may store; nil means no limit.
	Quota Quota
	// Policy is the server's level of the window policy; the zero value is the default preset.
	Policy window.Policy
	// Counter returns the token counter that a policy names; nil always uses the estimate.
	Counter func(tokens string) (window.Counter, error)
	// IdleTimeout ends agents that gave no idle_timeout of their own; 0 = never.
	IdleTimeout time.Duration
	// Redact returns the rules of a project for personal data in texts; nil has none.
	Redact func(project string) redact.Rules
	// Retention is how long an ended agent is kept; 0 = for ever.
	Retention time.Duration
	// SettleWait is how long a call that cuts an answer waits for it to be stored; 0 = 2 s.
	SettleWait time.Duration
}

// Observer receives events for metrics. Its methods must not block.
type Observer interface {
	Appended(messages int)
	Interrupted(by string)
	Ghost()
	Unheard(tokens int64)
}

// Service owns every rule that does not depend on the store. Its methods are safe for concurrent
// use.
type Service struct {
	cfg    Config
	live   *registry
	keys   *cache.Cache[agentKey, string] // IDs of agents by call key
	erased []func(project, id string)     // see OnErase
	timers *timers
	peers  *peers // nil without others
	// redactors are those of sets of rules, by their JSON.
	redactors *cache.Cache[string, *redact.Redactor]
	// evicting serializes joins that must end another agent to get a place.
	evicting evictionLocks
}

// NewService returns a Service. Timers fire only while Run runs.
func NewService(cfg Config) *Service {
	if cfg.SettleWait == 0 {
		cfg.SettleWait = 2 * time.Second
	}
	if cfg.OnError == nil {
		cfg.OnError = func(string, error) {}
	}
	if cfg.Changed == nil {
		cfg.Changed = func(string, string, int) {}
	}
	if cfg.Forget == nil {
		cfg.Forget = func(context.Context, string, string) error { return nil }
	}
	if cfg.Observe == nil {
		cfg.Observe = noObserver{}
	}
	if cfg.Quota == nil {
		cfg.Quota = noQuota{}
	}
	if cfg.Events == nil {
		cfg.Events = noEvents{}
	}
	s := &Service{
		cfg: cfg, live: newRegistry(), timers: newTimers(), keys: cache.New[agentKey, string](maxKnownKeys, nil),
		redactors: cache.New[string, *redact.Redactor](maxRedactors, nil),
	}
	if cfg.Peers != nil {
		s.peers, s.live.shared = &peers{Peers: cfg.Peers}, true
	}
	return s
}

type noObserver struct{}

func (noObserver) Appended(int) {}

func (noObserver) Interrupted(string) {}

func (noObserver) Ghost() {}

func (noObserver) Unheard(int64) {}

// NowMS returns the current time, Unix ms.
func (s *Service) NowMS() int64 { return s.cfg.Now().UnixMilli() }

// JoinRequest is a new agent.
type JoinRequest struct {
	Project    string
	ID         string // the agent's id where the caller chooses it; "" = a new one
	Name       string
	Settings   memory.Settings // IdleTimeoutS below 0 = the server's default
	Properties json.RawMessage
	Key        string // Idempotency-Key; "" = none
	// Inherit is what to take over from the last ended agent with the same name or one of the keys.
	// Agents of other projects, and erased ones, are never found.
	Inherit memory.Inherit
}

// Join starts an agent. It returns *NameTakenError while a live agent of the project has the name,
// fault.Quota at the project's limit (see Config.DropIdle), and fault.Conflict if Key was used with
// another body. With the same Key and body it returns the first agent again.
func (s *Service) Join(ctx context.Context, r JoinRequest) (memory.Agent, error) {
	if err := r.Settings.CheckTemplates(); err != nil {
		return memory.Agent{}, err
	}
	now := s.NowMS()
	a := memory.Agent{
		ID: s.cfg.NewID(), Project: r.Project, Name: r.Name, Status: memory.Running, StartMS: now, Rev: 1,
		Settings: r.Settings, Properties: r.Properties, JoinKey: r.Key,
	}
	if a.Settings.IdleTimeoutS < 0 {
		a.Settings.IdleTimeoutS = sessionTTL(&a.Settings.Memory, int(s.cfg.IdleTimeout/time.Second))
	}
	if a.Settings.LLM.MaxHistory == 0 {
		a.Settings.LLM.MaxHistory = memory.DefaultMaxHistory
	}
	if r.Key != "" {
		sum := sha256.Sum256(append([]byte(r.Name+"\x00"), r.Properties...))
		a.JoinHash = hex.EncodeToString(sum[:])
	}
	if r.ID != "" {
		a.ID = r.ID
	}
	redactor := s.Redactor(&a)
	a = a.Redacted(redactor)
	var c memory.Change
	taken, err := s.inherit(ctx, &a, r.Inherit)
	if err != nil {
		return memory.Agent{}, err
	}
	h := memory.NewHead(a, nil, 0).Apply(memory.Change{Append: taken})
	if g := a.Settings.LLM.Greeting; g != "" && a.Settings.LLM.GreetingDelay == 0 {
		c.Append = append(c.Append, s.ownMessage(&h, memory.SourceGreeting, a.Settings.LLM.Fill(g), 1, now))
	}
	ev, err := s.event(&a, event.Joined, 1, 0, now, EventFacts{})
	if err != nil {
		return memory.Agent{}, err
	}
	c.Events = ev
	redactChange(&c, redactor)
	c.Measure()
	if err := s.addEvents(&a, 1, &c, nil); err != nil { // it replaces nothing
		return memory.Agent{}, err
	}
	inherited := memory.Change{Append: taken}
	redactChange(&inherited, redactor)
	c.Append = append(inherited.Append, c.Append...) // events are not sent about inherited messages
	a.Settings.Memory.Note(&c)
	if err := s.cfg.Quota.Room(a.Project, len(c.Append), bytesOf(c.Append)); err != nil {
		return memory.Agent{}, err
	}
	stored, created, err := s.create(ctx, a, c)
	if err != nil {
		return memory.Agent{}, err
	}
	if !created {
		if stored.JoinHash != a.JoinHash {
			return memory.Agent{}, fault.At(fault.Conflict, "Idempotency-Key", "was used for a join with another body")
		}
		return stored, nil
	}
	// It finds this agent from now on, whichever had it before.
	for _, k := range a.Settings.Call.Shared {
		s.keys.Remove(agentKey{a.Project, k})
	}
	s.cfg.Observe.Appended(len(c.Append))
	s.cfg.Quota.Stored(a.Project, len(c.Append), bytesOf(c.Append))
	h = h.Apply(c)
	s.timers.poke(s.dueOf(&h), stored.Project, stored.ID)
	if s.mayMakeSummaries(&stored) {
		s.cfg.Summaries.Changed(stored.Project, stored.ID)
	}
	if n := stored.Settings.Memory.Checkpoints.EverySeconds; n > 0 {
		s.cfg.Changed(stored.Project, stored.ID, n)
	}
	return stored, nil
}

// Agent returns an agent, live or ended, or fault.NotFound.
func (s *Service) Agent(ctx context.Context, project, id string) (memory.Agent, error) {
	h, err := s.cfg.Ledger.Head(ctx, project, id)
	if err != nil {
		return memory.Agent{}, err
	}
	return *h.Agent, nil
}

// Agents lists a project's agents, newest first.
func (s *Service) Agents(ctx context.Context, q memory.AgentQuery) (memory.AgentPage, error) {
	return s.cfg.Ledger.Agents(ctx, q)
}

// History returns an agent's history: the newest n messages that are in history, oldest turn first.
// n = 0 is the agent's MaxHistory. It reads the store once, unless MaxHistory is above the default.
func (s *Service) History(ctx context.Context, project, id string, n int) (memory.Head, []memory.Message, error) {
	ask := n
	if n == 0 {
		ask = memory.DefaultMaxHistory
	}
	h, msgs, err := s.cfg.Ledger.Recent(ctx, project, id, ask, true)
	if err != nil {
		return memory.Head{}, nil, err
	}
	if n == 0 {
		own := h.Agent.Settings.LLM.MaxHistory
		if own > ask && len(msgs) == ask {
			if h, msgs, err = s.cfg.Ledger.Recent(ctx, project, id, own, true); err != nil {
				return memory.Head{}, nil, err
			}
		}
		msgs = msgs[max(0, len(msgs)-own):]
	}
	return h, memory.ByTurn(h.Agent.Settings.Memory.Since(msgs)), nil
}

// Recent returns an agent's head and its newest n messages of every role and state.
func (s *Service) Recent(ctx context.Context, project, id string, n int) (memory.Head, []memory.Message, error) {
	return s.cfg.Ledger.Recent(ctx, project, id, n, false)
}

// Head returns an agent's head.
func (s *Service) Head(ctx context.Context, project, id string) (memory.Head, error) {
	return s.cfg.Ledger.Head(ctx, project, id)
}

// Messages pages through an agent's ledger in order of Seq.
func (s *Service) Messages(ctx context.Context, project, id string, q memory.MessageQuery) ([]memory.Message, error) {
	return s.cfg.Ledger.Messages(ctx, project, id, q)
}

// All reads every message of an agent, page by page.
func (s *Service) All(ctx context.Context, project, id string) ([]memory.Message, error) {
	const page = 1000
	var out []memory.Message
	for after := int64(0); ; {
		msgs, err := s.cfg.Ledger.Messages(ctx, project, id, memory.MessageQuery{AfterSeq: after, Limit: page})
		if err != nil {
			return nil, err
		}
		out = append(out, msgs...)
		if len(msgs) < page {
			return out, nil
		}
		after = msgs[len(msgs)-1].Seq
	}
}

// Change applies a decision to an agent, as every other method does: the change is on disk when
// Change returns, events are sent and followers are notified. It is for packages that build on the
// Service.
func (s *Service) Change(ctx context.Context, project, id string, decide memory.Decision) error {
	return s.update(ctx, project, id, decide)
}

// update applies a decision and, once it is stored, informs the agent's followers.
func (s *Service) update(ctx context.Context, project, id string, decide memory.Decision) error {
	if s.cfg.Away != nil {
		if err := s.cfg.Away.Ready(ctx, project, id); err != nil {
			return err
		}
	}
	return s.StoreKept(ctx, project, id, decide)
}

// updateEarly is update for callers that can do other work while the change is written to disk; see
// Ledger.UpdateEarly. kept waits until the change is on disk and returns the error of update; it is
// nil if the change is on disk already. lost is called as soon as that fails.
func (s *Service) updateEarly(ctx context.Context, project, id string, decide memory.Decision, lost func(error)) (kept func() error, err error) {
	w, done := &written{}, make(chan struct{})
	var outcome error
	early, err := s.cfg.Ledger.UpdateEarly(ctx, project, id, s.writing(w, decide), func(err error) {
		if outcome = err; err == nil {
			s.wrote(project, id, w)
		}
		close(done)
		if err != nil {
			lost(err)
		}
	})
	switch {
	case err != nil:
		return nil, err
	case !early:
		s.wrote(project, id, w)
		return nil, nil
	}
	return func() error {
		<-done
		return outcome
	}, nil
}

// written is what an update has written.
type written struct {
	change           memory.Change
	rev, unheard     int64
	ended, summaries bool
	saveEvery        int          // seconds; 0 = the memory is not saved by itself
	workOn           bool         // the call, which has ended: Config.Ended
	timed            *memory.Head // where a timer hangs on it; else the head, a kilobyte, is not kept
}

// writing returns decide with what goes with every change. w receives the result.
func (s *Service) writing(w *written, decide memory.Decision) memory.Decision {
	return func(view memory.AgentView) (memory.Change, error) {
		c, err := decide(view)
		if err != nil {
			return memory.Change{}, err
		}
		head := view.Head()
		agent := head.Agent
		if c.Agent != nil {
			agent = c.Agent
		}
		redactChange(&c, s.Redactor(agent))
		if head.Agent.Settings.PausedUntilMS > 0 {
			if err := hidePaused(&c, view, s.paused(head.Agent)); err != nil {
				return memory.Change{}, err
			}
		}
		w.unheard = c.CountUnheard()
		c.Measure()
		if err := s.checkRoom(&head, &c); err != nil {
			return memory.Change{}, err
		}
		for i := range c.Append { // what was not given its place here has its scope from here
			c.Append[i].ScopeOr(agent.Settings.Scope)
		}
		if err := s.addEvents(agent, head.Rev+1, &c, view); err != nil {
			return memory.Change{}, err
		}
		if err := c.Mark(view); err != nil {
			return memory.Change{}, err
		}
		c.MarkMemory(&head)
		w.change, w.rev, w.timed = c, head.Rev, nil
		w.ended, w.summaries = agent.Status.Ended(), s.mayMakeSummaries(agent)
		w.saveEvery = agent.Settings.Memory.Checkpoints.EverySeconds
		m := &agent.Settings.Memory
		w.workOn = w.ended && (m.Remember.Extract || m.Kept.Summarize) && s.cfg.Ended != nil
		if agent.Settings.Silence.TimeoutMS > 0 || c.Agent != nil {
			h := head.Apply(c)
			w.timed = &h
		}
		return c, nil
	}
}

// wrote informs the agent's followers of a stored change.
func (s *Service) wrote(project, id string, w *written) {
	done, k := &w.change, agentKey{project, id}
	if done.Empty() {
		return
	}
	s.cfg.Observe.Appended(len(done.Append))
	s.cfg.Quota.Stored(project, len(done.Append), bytesOf(done.Append)+bytesOf(done.Replace))
	if w.unheard > 0 {
		s.cfg.Observe.Unheard(w.unheard)
	}
	for _, list := range [][]memory.Message{done.Append, done.Replace} {
		for i := range list {
			if m := &list[i]; m.Interrupted && m.Rev == w.rev+1 && (m.State == memory.Final || m.State == memory.Unplayed) {
				s.cfg.Observe.Interrupted(m.InterruptBy)
			}
		}
	}
	for i := range done.Append {
		if m := &done.Append[i]; m.Role == memory.User && m.Source != memory.SourceSilence {
			s.live.silence(k, false)
		}
	}
	s.live.wrote(k, w.rev, done)
	if w.summaries {
		s.notifySummaries(project, id, done, w.ended)
	}
	if w.workOn {
		s.cfg.Ended(project, id)
	}
	if w.ended {
		s.live.remove(k)
		return
	}
	if w.saveEvery > 0 {
		s.cfg.Changed(project, id, w.saveEvery)
	}
	s.live.touch(k, s.cfg.Now())
	if len(done.Append) > 0 {
		s.live.spoke(k, s.cfg.Now())
	}
	if w.timed != nil {
		s.timers.poke(s.dueOf(w.timed), project, id)
	}
}

// checkRoom refuses a change that makes a ledger too long, or exceeds what the project may store. A
// reserved Seq counts already. Rebuilding a memory with copies may exceed the limits, so that the
// memory of a full ledger can be trimmed and repaired.
func (s *Service) checkRoom(h *memory.Head, c *memory.Change) error {
	most, added := int64(s.cfg.MaxMessages), c.Append
	// An ended agent gets late answers, and what a platform's last list adds. The one that keeps a
	// project's items, which has ended too, has a limit of its own.
	if n := len(added); n == 0 || h.Agent.Status.Ended() && !c.Account || added[n-1].Seq < h.NextSeq {
		return nil
	}
	if c.Copies {
		most += memory.MaxSnapshot
	} else if err := s.cfg.Quota.Room(h.Agent.Project, len(added), bytesOf(added)); err != nil {
		return err
	}
	if s.cfg.MaxMessages == 0 || added[len(added)-1].Seq <= most {
		return nil
	}
	return fault.New(fault.Quota, "agent %s has as many messages as it may, %d; let it leave and join another", h.Agent.ID, most)
}

// Touch records that the agent was asked for, so that it is not idle.
func (s *Service) Touch(project, id string) { s.live.touch(agentKey{project, id}, s.cfg.Now()) }
