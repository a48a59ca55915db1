package agents

import (
	"context"

	"github.com/heardlog/heardlog/internal/cache"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
)

// Messages keeps what is said in calls. Every write goes through it, whatever it is about: it
// replaces personal data, leaves out what is said in a pause, checks the limits, adds the events
// that follow, stores all that in one commit, and then informs the followers of the agent. Reads
// return the ledger, which has everything, or the memory, which is the part that is remembered.
type Messages struct {
	cfg      *Config
	live     *registry
	timers   *timers
	policies *Policies
	// redactors are those of sets of rules, by their JSON.
	redactors *cache.Cache[string, *redact.Redactor]
}

// NowMS returns the current time, Unix ms.
func (s *Messages) NowMS() int64 { return s.cfg.Now().UnixMilli() }

// History returns an agent's history: the newest n messages that are in history, oldest turn first.
// n = 0 is the agent's MaxHistory. It reads the store once, unless MaxHistory is above the default.
func (s *Messages) History(ctx context.Context, project, id string, n int) (memory.Head, []memory.Message, error) {
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
func (s *Messages) Recent(ctx context.Context, project, id string, n int) (memory.Head, []memory.Message, error) {
	return s.cfg.Ledger.Recent(ctx, project, id, n, false)
}

// Head returns an agent's head.
func (s *Messages) Head(ctx context.Context, project, id string) (memory.Head, error) {
	return s.cfg.Ledger.Head(ctx, project, id)
}

// Page returns a part of an agent's ledger in order of Seq.
func (s *Messages) Page(ctx context.Context, project, id string, q memory.MessageQuery) ([]memory.Message, error) {
	return s.cfg.Ledger.Messages(ctx, project, id, q)
}

// All reads every message of an agent, page by page.
func (s *Messages) All(ctx context.Context, project, id string) ([]memory.Message, error) {
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
// Change returns, events are sent and followers are notified. It is for packages that build on
// this one.
func (s *Messages) Change(ctx context.Context, project, id string, decide memory.Decision) error {
	return s.update(ctx, memory.Ref{Project: project, ID: id}, decide)
}

// SinceBase returns the messages since the start of the memory, of every role and state, with the
// head as of the same moment.
func (s *Messages) SinceBase(ctx context.Context, project, id string) (memory.Head, []memory.Message, error) {
	h, err := s.cfg.Ledger.Head(ctx, project, id)
	if err != nil {
		return memory.Head{}, nil, err
	}
	for {
		const spare = 16 // for messages that arrive meanwhile
		n := max(h.NextSeq-max(h.Agent.Settings.Memory.BaseSeq, 1), 0) + spare
		var msgs []memory.Message
		if h, msgs, err = s.cfg.Ledger.Recent(ctx, project, id, int(n), false); err != nil {
			return memory.Head{}, nil, err
		}
		if int64(len(msgs)) < n || msgs[0].Seq <= max(h.Agent.Settings.Memory.BaseSeq, 1) {
			return h, h.Agent.Settings.Memory.Since(msgs), nil
		}
	}
}

// Remembered returns the messages in an agent's memory, in order of Seq, with the head as of the
// same moment or earlier.
func (s *Messages) Remembered(ctx context.Context, project, id string) (memory.Head, []memory.Message, error) {
	h, stored, err := s.SinceBase(ctx, project, id)
	if err != nil {
		return memory.Head{}, nil, err
	}
	out := make([]memory.Message, 0, len(stored))
	for i := range stored {
		if stored[i].InMemory() {
			out = append(out, stored[i])
		}
	}
	return h, out, nil
}
