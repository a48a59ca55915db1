package agents

import (
	"context"
	"crypto/sha256"
	"math"

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
	// found is what the detector has found in texts of projects; see foundKey.
	found *cache.Cache[[sha256.Size]byte, *findings]
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
	if err := s.room(ctx, project, id, ask); err != nil {
		return memory.Head{}, nil, err
	}
	h, msgs, err := s.cfg.Ledger.Recent(ctx, project, id, ask, true)
	if err != nil {
		return memory.Head{}, nil, err
	}
	if n == 0 {
		own := h.Agent.Settings.LLM.MaxHistory
		if own > ask && len(msgs) == ask {
			if err := s.room(ctx, project, id, own); err != nil {
				return memory.Head{}, nil, err
			}
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
	if err := s.room(ctx, project, id, n); err != nil {
		return memory.Head{}, nil, err
	}
	return s.cfg.Ledger.Recent(ctx, project, id, n, false)
}

// Room waits until a reader may keep so many bytes for each message of an agent from a Seq on,
// beside what Each needs; see Config.Reads.
func (s *Messages) Room(ctx context.Context, h *memory.Head, from int64, each int64) error {
	if size := (h.NextSeq - from) * each; size >= 1<<20 {
		return s.cfg.Reads.Take(ctx, h.Agent.Project, 4<<20+size)
	}
	return nil
}

// room waits until the newest n messages of an agent may be read at once; see Config.Reads.
func (s *Messages) room(ctx context.Context, project, id string, n int) error {
	if n <= maxQuick || s.cfg.Reads == nil {
		return nil
	}
	h, err := s.cfg.Ledger.Head(ctx, project, id)
	if err != nil {
		return err
	}
	return s.roomFor(ctx, &h, int64(n))
}

// maxQuick is how many messages are read without room for them: as many as one page of an answer.
const maxQuick = 64

func (s *Messages) roomFor(ctx context.Context, h *memory.Head, n int64) error {
	all := h.NextSeq - 1
	if n = min(n, all); n <= maxQuick {
		return nil
	}
	size := all * 1000 // of a ledger that an earlier version has written
	if h.Tally != nil {
		size = max(size, h.Tally.Bytes)
	}
	if size = size / all * n; size < 1<<20 {
		return nil
	}
	return s.cfg.Reads.Take(ctx, h.Agent.Project, 2*size) // once as messages, once as an answer
}

// Head returns an agent's head.
func (s *Messages) Head(ctx context.Context, project, id string) (memory.Head, error) {
	return s.cfg.Ledger.Head(ctx, project, id)
}

// Page returns a part of an agent's ledger in order of Seq.
func (s *Messages) Page(ctx context.Context, project, id string, q memory.MessageQuery) ([]memory.Message, error) {
	if q.Bytes > 0 {
		if err := s.room(ctx, project, id, q.Limit); err != nil {
			return nil, err
		}
	}
	return s.cfg.Ledger.Messages(ctx, project, id, q)
}

// Each calls fn with the messages of an agent that have a higher Seq than after, in order, as many
// at a time as take about a megabyte. A message that changes meanwhile is as it was before or as it
// is then. An error of fn ends it.
func (s *Messages) Each(ctx context.Context, project, id string, after int64, fn func([]memory.Message) error) error {
	q := memory.MessageQuery{AfterSeq: after, Limit: 1000, Bytes: 1 << 20}
	return memory.EachPage(q, func(q memory.MessageQuery) ([]memory.Message, error) {
		if q.AfterSeq > after { // more follow, and may be sent while they are read
			if err := s.cfg.Reads.Take(ctx, project, 4<<20); err != nil {
				return nil, err
			}
		}
		return s.cfg.Ledger.Messages(ctx, project, id, q)
	}, fn)
}

// All reads every message of an agent.
func (s *Messages) All(ctx context.Context, project, id string) (out []memory.Message, err error) {
	if err := s.room(ctx, project, id, math.MaxInt); err != nil {
		return nil, err
	}
	err = s.Each(ctx, project, id, 0, func(msgs []memory.Message) error {
		out = append(out, msgs...)
		return nil
	})
	return out, err
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
		if err := s.roomFor(ctx, &h, n); err != nil {
			return memory.Head{}, nil, err
		}
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
