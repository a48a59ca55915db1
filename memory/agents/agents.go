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
)

// Agents starts, changes, finds and ends agents. An agent is one call, from join to leave: while it
// lives it holds its name, is found by the keys of its platform, and has timers: they greet, break
// silences, and end an agent that has been idle. With the end its memory is complete and goes to
// the webhooks. Ended agents stay until the retention is over. Several servers on one store share
// this work.
type Agents struct {
	cfg      *Config
	live     *registry
	timers   *timers
	policies *Policies
	messages *Messages
	turns    *Turns
	peers    *peers                          // nil without others
	keys     *cache.Cache[[2]string, string] // IDs of agents by project and call key
	erased   []func(project, id string)      // see OnErase
	// evicting serializes joins that must end another agent to get a place.
	evicting evictionLocks
}

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
func (s *Agents) Join(ctx context.Context, r JoinRequest) (memory.Agent, error) {
	if err := r.Settings.CheckTemplates(); err != nil {
		return memory.Agent{}, err
	}
	now := s.messages.NowMS()
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
	taken, err := s.inherit(ctx, &a, r.Inherit)
	if err != nil {
		return memory.Agent{}, err
	}
	var c memory.Change
	err = s.messages.checked(ctx, a.Project, func(l *redact.Lookup) (err error) {
		joined := a
		if c, err = s.first(&joined, taken, l); err == nil {
			a = joined
		}
		return err
	})
	if err != nil {
		return memory.Agent{}, err
	}
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
		s.keys.Remove([2]string{a.Project, k})
	}
	s.cfg.Observe.Appended(len(c.Append))
	s.cfg.Quota.Stored(a.Project, len(c.Append), bytesOf(c.Append))
	h := memory.NewHead(a, nil, 0).Apply(c)
	s.timers.poke(s.timers.dueOf(&h), stored.Ref())
	if s.messages.mayMakeSummaries(&stored) {
		s.cfg.Summaries.Changed(stored.Project, stored.ID)
	}
	if n := stored.Settings.Memory.Checkpoints.EverySeconds; n > 0 {
		s.cfg.Changed(stored.Project, stored.ID, n)
	}
	return stored, nil
}

// first returns the first change of a new agent, with the messages that it takes over, and redacts
// the agent. l is as for withEffects.
func (s *Agents) first(a *memory.Agent, taken []memory.Message, l *redact.Lookup) (c memory.Change, err error) {
	if l != nil {
		a.Settings.Names = l.Begin(a.Settings.Names)
	}
	redactor := s.messages.Redactor(a)
	inherited := memory.Change{Append: taken, Copies: true}
	if err := inherited.Known(redactor, nil); err != nil {
		return c, err
	}
	if a.Settings.Memory.Inherited != nil {
		redactor.Again().Text(a.Settings.Memory.Summary)
	}
	redactChange(&inherited, redactor)
	*a = a.Redacted(redactor)
	h := memory.NewHead(*a, nil, 0).Apply(memory.Change{Append: taken})
	if g := a.Settings.LLM.Greeting; g != "" && a.Settings.LLM.GreetingDelay == 0 {
		c.Append = append(c.Append, s.messages.ownMessage(&h, memory.SourceGreeting, a.Settings.LLM.Fill(g), 1, a.StartMS))
	}
	if c.Events, err = s.messages.event(a, event.Joined, 1, 0, a.StartMS, EventFacts{}); err != nil {
		return c, err
	}
	redactChange(&c, redactor)
	c.Measure()
	if err := s.messages.addEvents(a, 1, &c, nil); err != nil { // it replaces nothing
		return c, err
	}
	c.Append = append(inherited.Append, c.Append...) // events are not sent about inherited messages
	a.Settings.Memory.NoteInstructions(&c)
	if l != nil {
		a.Settings.Names, _ = l.End()
		err = unchecked(l)
	}
	return c, err
}

// Agent returns an agent, live or ended, or fault.NotFound.
func (s *Agents) Agent(ctx context.Context, project, id string) (memory.Agent, error) {
	h, err := s.cfg.Ledger.Head(ctx, project, id)
	if err != nil {
		return memory.Agent{}, err
	}
	return *h.Agent, nil
}

// List lists a project's agents, newest first.
func (s *Agents) List(ctx context.Context, q memory.AgentQuery) (memory.AgentPage, error) {
	return s.cfg.Ledger.Agents(ctx, q)
}

// KeepKnown stores what is known of an agent's caller, unless the agent has something stored
// already, and returns what the agent has then. It fails with fault.NotFound if the agent has
// ended.
func (s *Agents) KeepKnown(ctx context.Context, project, id string, k memory.Known) (memory.Known, error) {
	err := s.messages.update(ctx, memory.Ref{Project: project, ID: id}, func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		if err := h.Agent.MustBeActive(fault.NotFound); err != nil {
			return memory.Change{}, err
		}
		a := *h.Agent
		if there := a.Settings.Memory.Known; there != nil {
			k = *there
			return memory.Change{}, nil
		}
		a.Settings.Memory.Known, a.Rev = &k, h.Rev+1
		return memory.Change{Agent: &a}, nil
	})
	return k, err
}

// Overview counts the calls of a project that started in a time; see memory.ReadOverview.
func (s *Agents) Overview(ctx context.Context, project string, fromMS, toMS int64) (memory.Overview, error) {
	return memory.ReadOverview(ctx, s.cfg.Ledger, project, fromMS, toMS)
}
