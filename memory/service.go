package memory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/window"
)

// Config is what a Service is made of. Store, Now and NewID are required.
type Config struct {
	Store Ledger
	// Items finds messages by whose they are: the same driver. Without it the calls about items do not work.
	Items ItemStore
	// Working keeps working memories: the same driver. Without it the calls about them do not work.
	Working WorkingStore
	Now     func() time.Time
	NewID   func() string // a new agent id: sortable by time and not to be guessed (UUIDv7)
	// Events says which events are wanted and builds their bodies; nil sends none.
	Events Events
	// Think runs a turn without a client, for silence_config's action think; nil makes that action do nothing.
	Think func(ctx context.Context, project, agentID, text string) error
	// OnError is told what went wrong in work that nobody waits for: timers, the end of a leave. nil drops it.
	OnError func(what string, err error)
	// Peers joins the processes that serve one store; nil: this one has it for itself.
	Peers Peers
	// Summaries has memories summarised; nil keeps no summaries but those that clients set.
	Summaries Summaries
	// Observe is told what happened, for metrics; nil drops it.
	Observe Observer
	// MaxAgents is how many agents one project may have live; 0 = no limit.
	MaxAgents int
	// DropIdle ends a project's longest idle agent where a new one would be over MaxAgents; else the new one is refused.
	DropIdle bool
	// MaxItems is how many items a project may hold that stand in no agent's ledger; 0 = no limit.
	MaxItems int
	// MaxMessages is how many messages of every role and state one agent's ledger may hold; 0 = no limit. Answers to what was taken are always stored.
	MaxMessages int
	// Policy is the server's level of the window policy; the zero value is the default preset.
	Policy window.Policy
	// Counter gives the counter of tokens that a policy names; nil counts by the estimate, whatever it names.
	Counter func(tokens string) (window.Counter, error)
	// MaxWorkingMB is how much an agent's working memory may hold whatever the agent says; 0 = MaxWorkingMB.
	MaxWorkingMB int
	// IdleTimeout ends agents that gave no idle_timeout of their own; 0 = never.
	IdleTimeout time.Duration
	// Retention is how long an ended agent is kept; 0 = for ever.
	Retention time.Duration
	// SettleWait is how long a call that cuts an answer waits for it to be stored; 0 = 2 s.
	SettleWait time.Duration
}

// Observer is told what happened. Its methods must not block.
type Observer interface {
	Appended(messages int)
	Interrupted(by string)
	Ghost()
	Unheard(tokens int64)
}

// Service owns every rule that does not depend on the store. Its methods are safe for concurrent use.
type Service struct {
	cfg    Config
	live   *registry
	keys   keyCache
	erased []func(project, id string) // see OnErase
	timers *timers
	peers  *peers // nil without others
	// dropping are the joins that want a place which another agent has to give.
	dropping turnstiles
}

// NewService makes a Service. Run must be running for timers to fire.
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
	s := &Service{cfg: cfg, live: newRegistry(), timers: newTimers()}
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
	// Inherit is what is taken over of the last agent of the name, or of one of the keys, that has ended. Agents of other projects, and erased ones, are never found.
	Inherit Inherit
}

// Join starts an agent. It fails with *NameTakenError while a live agent of the project has the name, with fault.Quota at
// the project's limit (see Config.DropIdle), and with fault.Conflict when Key was used for another body. The same Key and body again give the
// agent of the first time.
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
	if err := s.tell(&a, 1, &c, nil); err != nil { // it replaces nothing
		return Agent{}, err
	}
	c.Append = append(taken, c.Append...) // they are nothing new to tell of
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
	for _, k := range a.Settings.Call.Shared { // it finds this agent from now on, whichever had it before
		s.keys.drop(agentKey{a.Project, k})
	}
	s.cfg.Observe.Appended(len(c.Append))
	s.timers.poke(s.dueOf(h.Apply(c)), stored.Project, stored.ID)
	if s.mayMakeSummaries(&stored) {
		s.cfg.Summaries.Changed(stored.Project, stored.ID)
	}
	return stored, nil
}

// Agent gives an agent, ended ones included; fault.NotFound if the project has none of that id.
func (s *Service) Agent(ctx context.Context, project, id string) (Agent, error) {
	h, err := s.cfg.Store.Head(ctx, project, id)
	return h.Agent, err
}

// Agents lists a project's agents, newest first.
func (s *Service) Agents(ctx context.Context, q AgentQuery) (AgentPage, error) {
	return s.cfg.Store.Agents(ctx, q)
}

// UpdateRequest is what may change in a live agent (reference/agora-api.md 1.5); nil leaves a field as it is.
type UpdateRequest struct {
	Token          *string
	SystemMessages *[]json.RawMessage // replaces
	Params         json.RawMessage    // replaces llm.params
	MLLMParams     json.RawMessage    // replaces mllm.params
	// Policy replaces the agent's own policy where PolicySet says so; nil then leaves it to the server.
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

// properties gives the join's properties with the update in them.
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

// History gives an agent's history: the newest n messages that Message.InHistory shows, oldest turn first; with n = 0 as many as the agent's MaxHistory. That is
// one read of the store unless the agent shows more than most do: where several servers share a store each read has to ask it.
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

// Recent gives an agent's head and its newest n messages of every role and state.
func (s *Service) Recent(ctx context.Context, project, id string, n int) (Head, []Message, error) {
	return s.cfg.Store.Recent(ctx, project, id, n, false)
}

// Head gives an agent's head.
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

// Change applies a decision to an agent, as every other method does: the change is on disk when Change
// returns, events are sent and followers are notified. It is for packages that build on the Service.
func (s *Service) Change(ctx context.Context, project, id string, decide Decision) error {
	return s.update(ctx, project, id, decide)
}

// update runs decide and, once it is stored, tells those who watch the agent.
func (s *Service) update(ctx context.Context, project, id string, decide Decision) error {
	var w written
	err := s.cfg.Store.Update(ctx, project, id, s.writing(&w, decide))
	if err == nil {
		s.wrote(project, id, &w)
	}
	return err
}

// updateEarly is update for a call that has something else to do than to wait for the disk; see Ledger.UpdateEarly. kept gives, once the change is on disk and told of,
// what update would have given; nil where it is already. lost is called at once where that is an error.
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

// writing gives decide with what goes with every change; w is what it came to.
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
		if err := s.tell(agent, head.Rev+1, &c, view); err != nil {
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

// wrote tells those who watch the agent of what is stored.
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

// checkRoom refuses what would make a ledger longer than it may be. A Seq that was kept free has its room. A memory that begins anew with copies of its own messages
// has more, so that a full ledger's memory can be trimmed and mended.
func (s *Service) checkRoom(h *Head, c *Change) error {
	most, added := int64(s.cfg.MaxMessages), c.Append
	if most > 0 && c.copies {
		most += MaxSnapshot
	}
	if n := len(added); most == 0 || n == 0 || strings.HasPrefix(h.Agent.Project, ownProject) || // which lives as long as the project
		added[n-1].Seq <= max(most, h.NextSeq-1) {
		return nil
	}
	return fault.New(fault.Quota, "agent %s has as many messages as it may, %d; let it leave and join another", h.Agent.ID, most)
}

// Touch notes that somebody asked for the agent, which keeps it from being idle.
func (s *Service) Touch(project, id string) { s.live.touch(agentKey{project, id}, s.cfg.Now()) }

// MustBeActive refuses an agent that takes nothing more, with the code that the call documents; the text says when and why it stopped.
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
