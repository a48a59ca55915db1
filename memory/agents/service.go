package agents

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/heardlog/heardlog/internal/budget"
	"github.com/heardlog/heardlog/internal/cache"
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
	// Held returns fault.Held for an agent under hold, which is not erased; nil holds none.
	Held func(ctx context.Context, h *memory.Head) error
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
	// Reads limits the memory of reads of long ledgers, for contexts with budget.Hold; nil means no
	// limit.
	Reads *budget.Budget
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
	// Reworded returns the stored events of an agent that hold messages whose texts are replaced
	// after they were stored, with bodies that hold them as they are now. was are the messages
	// before, and more; nil returns none.
	Reworded func(ctx context.Context, project, agentID string, was, is []memory.Message) ([]memory.Event, error)
	// Detector finds names in the texts of projects; nil finds none.
	Detector Detector
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

// Service holds the nouns of this package, as they work together on one ledger: Agents stands on
// Turns, and both on Messages. Their methods are safe for concurrent use.
type Service struct {
	Agents   *Agents
	Turns    *Turns
	Messages *Messages
	Policies *Policies
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
	live := newRegistry()
	var others *peers
	if cfg.Peers != nil {
		others, live.shared = &peers{Peers: cfg.Peers, cfg: &cfg, live: live}, true
	}
	due := newTimers(&cfg, live, others)
	policies := &Policies{server: cfg.Policy, counter: cfg.Counter}
	messages := &Messages{
		cfg: &cfg, live: live, timers: due, policies: policies,
		redactors: cache.New[string, *redact.Redactor](maxRedactors, nil),
		found:     cache.New[[sha256.Size]byte](maxFound, func(f *findings) int64 { return int64(128 + 40*len(f.found)) }),
	}
	turns := &Turns{cfg: &cfg, live: live, timers: due, policies: policies, messages: messages, peers: others}
	return &Service{
		Policies: policies, Messages: messages, Turns: turns,
		Agents: &Agents{
			cfg: &cfg, live: live, timers: due, policies: policies, messages: messages, turns: turns, peers: others,
			keys: cache.New[[2]string, string](maxKnownKeys, nil),
		},
	}
}

type noObserver struct{}

func (noObserver) Appended(int) {}

func (noObserver) Interrupted(string) {}

func (noObserver) Ghost() {}

func (noObserver) Unheard(int64) {}
