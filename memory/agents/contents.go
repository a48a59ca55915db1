package agents

import (
	"context"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/window"
)

// SinceBase returns the messages since the start of the memory, of every role and state, with the
// head as of the same moment.
func (s *Service) SinceBase(ctx context.Context, project, id string) (memory.Head, []memory.Message, error) {
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
func (s *Service) Remembered(ctx context.Context, project, id string) (memory.Head, []memory.Message, error) {
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

// windowMessages returns messages in the form that package window uses.
func windowMessages(msgs []memory.Message) []window.Message {
	out := make([]window.Message, len(msgs))
	for i := range msgs {
		out[i] = msgs[i].ForWindow()
		out[i].Ref = i
	}
	return out
}
