package memory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/window"
)

// Config configures a Service. Store, Now and NewID are required.
type Config struct {
	Store Ledger
	// Items finds messages by their scope: the same driver. Without it the methods for items fail.
	Items ItemStore
	Now   func() time.Time
	NewID func() string // a new agent id: sortable by time and not to be guessed (UUIDv7)
	// Events selects events and builds their bodies; nil sends none.
	Events Events
	// Think runs a turn without a client, for silence_config's action think; nil makes that action
	// do nothing.
	Think func(ctx context.Context, project, agentID, text string) error
	// OnError is called with errors of background work, such as timers; nil ignores them.
	OnError func(what string, err error)
	// Peers joins the processes that serve one store; nil: this one has it for itself.
	Peers Peers
	// Summaries has memories summarised; nil keeps no summaries but those that clients set.
	Summaries Summaries
	// Observe is called for metrics; nil ignores them.
	Observe Observer
	// MaxAgents is how many agents one project may have live; 0 = no limit.
	MaxAgents int
	// DropIdle ends the agent of the project that has been idle longest if a new one would exceed
	// MaxAgents. Otherwise the new one is refused.
	DropIdle bool
	// MaxItems limits the items of a project that are in no agent's ledger; 0 is no limit.
	MaxItems int
	// MaxMessages limits the messages in one agent's ledger, of every role and state; 0 is no
	// limit. Answers to accepted messages are always stored.
	MaxMessages int
	// Policy is the server's level of the window policy; the zero value is the default preset.
	Policy window.Policy
	// Counter returns the token counter that a policy names; nil always uses the estimate.
	Counter func(tokens string) (window.Counter, error)
	// IdleTimeout ends agents that gave no idle_timeout of their own; 0 = never.
	IdleTimeout time.Duration
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
	keys   *otter.Cache[agentKey, string] // IDs of agents by call key
	erased []func(project, id string)     // see OnErase
	timers *timers
	peers  *peers // nil without others
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
	if cfg.Observe == nil {
		cfg.Observe = noObserver{}
	}
	if cfg.Events == nil {
		cfg.Events = noEvents{}
	}
	s := &Service{cfg: cfg, live: newRegistry(), timers: newTimers(), keys: newKeyCache()}
	if cfg.Peers != nil {
		s.peers, s.live.shared = &peers{Peers: cfg.Peers}, true
	}
	return s
}

type noObserver struct{}

func (noObserver) Appended(int)       {}
func (noObserver) Interrupted(string) {}
func (noObserver) Ghost()             {}
func (noObserver) Unheard(int64)      {}

// NowMS returns the current time, Unix ms.
func (s *Service) NowMS() int64 { return s.cfg.Now().UnixMilli() }

// JoinRequest is a new agent.
type JoinRequest struct {
	Project    string
	ID         string // the agent's id where the caller chooses it; "" = a new one
	Name       string
	Settings   Settings // IdleTimeoutS below 0 = the server's default
	Properties json.RawMessage
	Key        string // Idempotency-Key; "" = none
	// Inherit is what to take over from the last ended agent with the same name or one of the keys.
	// Agents of other projects, and erased ones, are never found.
	Inherit Inherit
}

// Join starts an agent. It returns *NameTakenError while a live agent of the project has the name,
// fault.Quota at the project's limit (see Config.DropIdle), and fault.Conflict if Key was used with
// another body. With the same Key and body it returns the first agent again.
func (s *Service) Join(ctx context.Context, r JoinRequest) (Agent, error) {
	if err := r.Settings.checkTemplates(); err != nil {
		return Agent{}, err
	}
	now := s.NowMS()
	a := Agent{
		ID: s.cfg.NewID(), Project: r.Project, Name: r.Name, Status: Running, StartMS: now, Rev: 1,
		Settings: r.Settings, Properties: r.Properties, JoinKey: r.Key,
	}
	if a.Settings.IdleTimeoutS < 0 {
		a.Settings.IdleTimeoutS = a.Settings.Memory.sessionTTL(int(s.cfg.IdleTimeout / time.Second))
	}
	if a.Settings.LLM.MaxHistory == 0 {
		a.Settings.LLM.MaxHistory = DefaultMaxHistory
	}
	if r.Key != "" {
		sum := sha256.Sum256(append([]byte(r.Name+"\x00"), r.Properties...))
		a.JoinHash = hex.EncodeToString(sum[:])
	}
	if r.ID != "" {
		a.ID = r.ID
	}
	var c Change
	taken, err := s.inherit(ctx, &a, r.Inherit)
	if err != nil {
		return Agent{}, err
	}
	h := NewHead(a, nil, 0).Apply(Change{Append: taken})
	if g := a.Settings.LLM.Greeting; g != "" && a.Settings.LLM.GreetingDelay == 0 {
		c.Append = append(c.Append, s.own(&h, SourceGreeting, a.Settings.LLM.Fill(g), 1, now))
	}
	ev, err := s.event(&a, event.Joined, 1, 0, now, EventFacts{})
	if err != nil {
		return Agent{}, err
	}
	c.Events = ev
	c.measured()
	if err := s.addEvents(&a, 1, &c, nil); err != nil { // it replaces nothing
		return Agent{}, err
	}
	c.Append = append(taken, c.Append...) // events are not sent about inherited messages
	stored, created, err := s.create(ctx, a, c)
	if err != nil {
		return Agent{}, err
	}
	if !created {
		if stored.JoinHash != a.JoinHash {
			return Agent{}, fault.At(fault.Conflict, "Idempotency-Key", "was used for a join with another body")
		}
		return stored, nil
	}
	// It finds this agent from now on, whichever had it before.
	for _, k := range a.Settings.Call.Shared {
		s.keys.Invalidate(agentKey{a.Project, k})
	}
	s.cfg.Observe.Appended(len(c.Append))
	s.timers.poke(s.dueOf(h.Apply(c)), stored.Project, stored.ID)
	if s.mayMakeSummaries(&stored) {
		s.cfg.Summaries.Changed(stored.Project, stored.ID)
	}
	return stored, nil
}

// Agent returns an agent, live or ended, or fault.NotFound.
func (s *Service) Agent(ctx context.Context, project, id string) (Agent, error) {
	h, err := s.cfg.Store.Head(ctx, project, id)
	return h.Agent, err
}

// Agents lists a project's agents, newest first.
func (s *Service) Agents(ctx context.Context, q AgentQuery) (AgentPage, error) {
	return s.cfg.Store.Agents(ctx, q)
}

// UpdateRequest changes a live agent; a nil field stays as it is.
type UpdateRequest struct {
	Token          *string
	SystemMessages *[]json.RawMessage // replaces
	Params         json.RawMessage    // replaces llm.params
	MLLMParams     json.RawMessage    // replaces mllm.params
	// Policy replaces the agent's own policy if PolicySet is true; nil removes it.
	Policy    *window.Policy
	PolicySet bool
}

// Update changes a live agent. fault.NotFound if there is none or it has ended.
func (s *Service) Update(ctx context.Context, project, id string, r UpdateRequest) (Agent, error) {
	var out Agent
	err := s.update(ctx, project, id, func(view AgentView) (Change, error) {
		h := view.Head()
		if err := h.Agent.MustBeActive(fault.NotFound); err != nil {
			return Change{}, err
		}
		a := h.Agent
		props, err := r.properties(a.Properties)
		if err != nil {
			return Change{}, err
		}
		a.Properties, a.Rev = props, h.Rev+1
		if r.SystemMessages != nil {
			a.Settings.LLM.SystemMessages = *r.SystemMessages
		}
		if r.Params != nil {
			a.Settings.LLM.Params = r.Params
		}
		if r.PolicySet {
			a.Settings.Memory.Policy = r.Policy
		}
		if err := a.Settings.checkTemplates(); err != nil {
			return Change{}, err
		}
		out = a
		return Change{Agent: &a}, nil
	})
	return out, err
}

// properties returns the join's properties with the update applied.
func (r UpdateRequest) properties(old json.RawMessage) (json.RawMessage, error) {
	top, err := object(old)
	if err != nil {
		return nil, err
	}
	set := func(outer, key string, v json.RawMessage) error {
		in, err := object(top[outer])
		if err != nil {
			return err
		}
		in[key] = v
		top[outer], err = json.Marshal(in)
		return err
	}
	var errs []error
	if r.Token != nil {
		b, err := json.Marshal(*r.Token)
		top["token"], errs = b, append(errs, err)
	}
	if r.SystemMessages != nil {
		b, err := json.Marshal(*r.SystemMessages)
		errs = append(errs, err, set("llm", "system_messages", b))
	}
	if r.Params != nil {
		errs = append(errs, set("llm", "params", r.Params))
	}
	if r.PolicySet {
		b, err := json.Marshal(r.Policy)
		errs = append(errs, err, set("heardlog", "policy", b))
	}
	if r.MLLMParams != nil {
		errs = append(errs, set("mllm", "params", r.MLLMParams))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return json.Marshal(top)
}

func object(b json.RawMessage) (map[string]json.RawMessage, error) {
	m := map[string]json.RawMessage{}
	if len(b) == 0 || string(b) == "null" {
		return m, nil
	}
	return m, json.Unmarshal(b, &m)
}

// History returns an agent's history: the newest n messages that are in history, oldest turn first.
// n = 0 is the agent's MaxHistory. It reads the store once, unless MaxHistory is above the default.
func (s *Service) History(ctx context.Context, project, id string, n int) (Head, []Message, error) {
	ask := n
	if n == 0 {
		ask = DefaultMaxHistory
	}
	h, msgs, err := s.cfg.Store.Recent(ctx, project, id, ask, true)
	if n == 0 && err == nil {
		own := h.Agent.Settings.LLM.MaxHistory
		if own > ask && len(msgs) == ask {
			h, msgs, err = s.cfg.Store.Recent(ctx, project, id, own, true)
		}
		msgs = msgs[max(0, len(msgs)-own):]
	}
	return h, ByTurn(h.Agent.Settings.Memory.Since(msgs)), err
}

// Recent returns an agent's head and its newest n messages of every role and state.
func (s *Service) Recent(ctx context.Context, project, id string, n int) (Head, []Message, error) {
	return s.cfg.Store.Recent(ctx, project, id, n, false)
}

// Head returns an agent's head.
func (s *Service) Head(ctx context.Context, project, id string) (Head, error) {
	return s.cfg.Store.Head(ctx, project, id)
}

// Messages pages through an agent's ledger in order of Seq.
func (s *Service) Messages(ctx context.Context, project, id string, q MessageQuery) ([]Message, error) {
	return s.cfg.Store.Messages(ctx, project, id, q)
}

// all reads every message of an agent, page by page.
func (s *Service) all(ctx context.Context, project, id string) ([]Message, error) {
	const page = 1000
	var out []Message
	for after := int64(0); ; {
		msgs, err := s.cfg.Store.Messages(ctx, project, id, MessageQuery{AfterSeq: after, Limit: page})
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
func (s *Service) Change(ctx context.Context, project, id string, decide Decision) error {
	return s.update(ctx, project, id, decide)
}

// update applies a decision and, once it is stored, informs the agent's followers.
func (s *Service) update(ctx context.Context, project, id string, decide Decision) error {
	var w written
	err := s.cfg.Store.Update(ctx, project, id, s.writing(&w, decide))
	if err == nil {
		s.wrote(project, id, &w)
	}
	return err
}

// updateEarly is update for callers that can do other work while the change is written to disk; see
// Ledger.UpdateEarly. kept waits until the change is on disk and returns the error of update; it is
// nil if the change is on disk already. lost is called as soon as that fails.
func (s *Service) updateEarly(ctx context.Context, project, id string, decide Decision, lost func(error)) (kept func() error, err error) {
	w, done := &written{}, make(chan struct{})
	var outcome error
	early, err := s.cfg.Store.UpdateEarly(ctx, project, id, s.writing(w, decide), func(err error) {
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
	change           Change
	rev, unheard     int64
	ended, summaries bool
	timed            *Head // where a timer hangs on it; else the head, a kilobyte, is not kept
}

// writing returns decide with what goes with every change. w receives the result.
func (s *Service) writing(w *written, decide Decision) Decision {
	return func(view AgentView) (Change, error) {
		c, err := decide(view)
		if err != nil {
			return Change{}, err
		}
		w.unheard = c.countUnheard()
		c.measured()
		head := view.Head()
		if err := s.checkRoom(&head, &c); err != nil {
			return Change{}, err
		}
		agent := &head.Agent
		if c.Agent != nil {
			agent = c.Agent
		}
		for i := range c.Append { // what was not given its place here has its scope from here
			c.Append[i].scopeOr(agent.Settings.Scope)
		}
		if err := s.addEvents(agent, head.Rev+1, &c, view); err != nil {
			return Change{}, err
		}
		if err := mark(view, &c); err != nil {
			return Change{}, err
		}
		markMemory(&head, &c)
		if err := keepFront(view, &head, &c); err != nil {
			return Change{}, err
		}
		w.change, w.rev, w.timed = c, head.Rev, nil
		w.ended, w.summaries = agent.Status.Ended(), s.mayMakeSummaries(agent)
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
	if w.unheard > 0 {
		s.cfg.Observe.Unheard(w.unheard)
	}
	for _, list := range [][]Message{done.Append, done.Replace} {
		for i := range list {
			if m := &list[i]; m.Interrupted && m.Rev == w.rev+1 && (m.State == Final || m.State == Unplayed) {
				s.cfg.Observe.Interrupted(m.InterruptBy)
			}
		}
	}
	for i := range done.Append {
		if m := &done.Append[i]; m.Role == User && m.Source != SourceSilence {
			s.live.silence(k, false)
		}
	}
	s.live.wrote(k, w.rev, done)
	if w.summaries {
		s.tellSummaries(project, id, done, w.ended)
	}
	if w.ended {
		s.live.remove(k)
		return
	}
	s.live.touch(k, s.cfg.Now())
	if len(done.Append) > 0 {
		s.live.spoke(k, s.cfg.Now())
	}
	if w.timed != nil {
		s.timers.poke(s.dueOf(*w.timed), project, id)
	}
}

// checkRoom refuses a change that makes a ledger too long. A reserved Seq counts already.
// Rebuilding a memory with copies may exceed the limit, so that the memory of a full ledger can be
// trimmed and repaired.
func (s *Service) checkRoom(h *Head, c *Change) error {
	most, added := int64(s.cfg.MaxMessages), c.Append
	if most > 0 && c.copies {
		most += MaxSnapshot
	}
	// The project's own ledger has a limit of its own
	if n := len(added); most == 0 || n == 0 || strings.HasPrefix(h.Agent.Project, ownProject) ||
		added[n-1].Seq <= max(most, h.NextSeq-1) {
		return nil
	}
	return fault.New(fault.Quota, "agent %s has as many messages as it may, %d; let it leave and join another", h.Agent.ID, most)
}

// Touch records that the agent was asked for, so that it is not idle.
func (s *Service) Touch(project, id string) { s.live.touch(agentKey{project, id}, s.cfg.Now()) }

// MustBeActive returns an error with the code unless the agent accepts messages. The text has when
// and why it ended.
func (a Agent) MustBeActive(code fault.Code) error {
	if a.Archived() {
		return fault.New(code, "agent %s runs at Agora; only its record is here", a.ID)
	}
	if a.Status.Active() {
		return nil
	}
	if !a.Status.Ended() {
		return fault.New(code, "agent %s is stopping", a.ID)
	}
	why := a.Message
	if why == "" {
		why = "no reason recorded"
	}
	return fault.New(code, "agent %s stopped at %s: %s", a.ID, time.UnixMilli(a.StopMS).UTC().Format(time.RFC3339), why)
}
