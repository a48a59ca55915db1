package context

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/window"
)

// Leaving is what a summary is due for.
type Leaving struct {
	Agent memory.Agent
	// Messages are about to leave the memory, oldest first: all but the newest keep_recent, without
	// system messages. Empty if no summary is due.
	Messages []memory.Message
	Earlier  string // the summary so far, which goes into the next; "" without one
	Model    string // the model to use instead of the agent's; "" is the agent's
	// Chars and Count are how many code points and messages must be added, if no summary is due,
	// before one can be; at least 1.
	Chars, Count int64

	rev      int64            // of the agent when this was read
	ancestor *memory.Ancestor // the agent before this one whose messages they are; nil for its own
}

// ErrSummaryStale is returned if the summarized messages changed in the meantime: some words were
// not heard after all, or are no longer in
var ErrSummaryStale = fault.New(fault.Conflict, "what was summarised has changed meanwhile")

// Leaving returns what must be summarized of an agent's memory: if its policy's strategy is
// summarize, and its estimated size has reached the share summarize_at of the limit. It returns
// fault.NotFound, or fault.Stopped for an agent that has ended.
func (s *Service) Leaving(ctx context.Context, project, id string) (Leaving, error) {
	h, err := s.messages.Head(ctx, project, id)
	if err == nil {
		err = h.Agent.MustBeActive(fault.Stopped)
	}
	if err != nil {
		return Leaving{}, err
	}
	if l, ok, err := s.ancestry(ctx, &h); ok || err != nil {
		l.Model = *s.policies.Of(h.Agent, nil).SummaryModel
		return l, err
	}
	// Most agents: their memories are not read.
	if !s.policies.Of(h.Agent, nil).Summarizes() {
		return Leaving{Agent: *h.Agent, Chars: math.MaxInt64, Count: math.MaxInt64, rev: h.Rev}, nil
	}
	busy := s.turns.Answering(project, id)
	h, msgs, err := s.messages.Remembered(ctx, project, id)
	if err == nil {
		err = h.Agent.MustBeActive(fault.Stopped)
	}
	if err != nil {
		return Leaving{}, err
	}
	l := Leaving{Agent: *h.Agent, Earlier: h.Agent.Settings.Memory.Summary, Chars: math.MaxInt64, Count: math.MaxInt64, rev: h.Rev}
	p := s.policies.Of(h.Agent, nil)
	if !p.Summarizes() {
		return l, nil
	}
	l.Model = *p.SummaryModel
	list := windowMessages(msgs)
	c, err := s.policies.Counter(&p)
	if err != nil {
		return Leaving{}, err
	}
	if !p.SummaryDue(list, c) {
		l.Chars, l.Count = slack(p, list, c)
		return l, nil
	}
	places := window.Summarizable(list, *p.KeepRecent)
	l.Messages = make([]memory.Message, 0, len(places))
	for _, i := range places {
		l.Messages = append(l.Messages, msgs[i])
	}
	if _, now := s.turns.Busy(ctx, project, id); busy || now {
		l.Messages = l.Messages[:settledUpTo(l.Messages)]
	}
	if len(l.Messages) == 0 {
		l.Count = 1 // what is kept fills the window; the next message sends one away
	}
	return l, nil
}

// settledUpTo returns how many of the messages, from the first on, have no pending answer among
// them.
func settledUpTo(msgs []memory.Message) int {
	for i := range msgs {
		gap := msgs[i].AnswerSeq
		if gap > 0 && !slices.ContainsFunc(msgs, func(m memory.Message) bool { return m.Seq == gap }) {
			return i
		}
	}
	return len(msgs)
}

// slack returns how much can be added before a summary can be due. With an exact count a code point
// may cost a token or more.
func slack(p window.Policy, list []window.Message, c window.Counter) (chars, count int64) {
	chars, count = math.MaxInt64, math.MaxInt64
	tokens, messages := atShare(p.SummarizeAt, p.MaxTokens), atShare(p.SummarizeAt, p.MaxMessages)
	if tokens+messages == 0 {
		tokens, messages = window.UnboundedTokens+1, window.UnboundedMessages+1
	}
	if tokens > 0 {
		left := tokens - int64(window.EstimateTokens(list, c))
		chars = max(left/window.CharsPerToken, 1)
		if p.Tokens == window.Estimate {
			chars = max((left-1)*window.CharsPerToken, 1)
		}
	}
	if messages > 0 {
		n := int64(0)
		for i := range list {
			if !list[i].IsSystem() {
				n++
			}
		}
		count = max(messages-n, 1)
	}
	return chars, count
}

// atShare returns the share at of a limit; 0 means no limit.
func atShare(at *float64, limit *int) int64 { return int64(math.Ceil(*at * float64(*limit))) }

// Summarised is a finished summary.
type Summarised struct {
	Of       Leaving
	Messages int    // how many of Of.Messages it covers, from the first on
	Text     string // all of it, Of.Earlier included
}

// summaryTries is how often a summary is written again because the agent changed in between.
const summaryTries = 8

// Summarised stores a summary and removes the messages that it covers from the memory, in one
// change. Newer messages stay. It returns ErrSummaryStale if the summary was replaced or one of the
// messages changed in the meantime, and fault.Stopped if the agent has ended.
func (s *Service) Summarised(ctx context.Context, r Summarised) error {
	ref := r.Of.Agent.Ref()
	text, err := text.Clean("summary", r.Text, maxSummary)
	if err != nil {
		return err
	}
	gone := r.Of.Messages[:r.Messages]
	if len(gone) == 0 {
		return nil
	}
	if r.Of.ancestor != nil {
		// It was erased while the model worked
		if _, err := s.messages.Head(ctx, ref.Project, r.Of.ancestor.ID); fault.Is(err, fault.NotFound) {
			return ErrSummaryStale
		} else if err != nil {
			return err
		}
		return s.ancestorDone(ctx, r.Of, r.Messages, text)
	}
	upTo, rev := gone[len(gone)-1].Seq, r.Of.rev
	seqs, _, err := s.goneBefore(ctx, ref, upTo)
	if err != nil {
		return err
	}
	for range summaryTries {
		// Changes are searched for outside the write; inside, there must be no further ones.
		changed, next, err := s.changedUpTo(ctx, ref, rev, upTo)
		if err != nil {
			return err
		}
		if changed {
			return ErrSummaryStale
		}
		rev = next
		_, err = s.edit(ctx, ref, func(view memory.AgentView, h *memory.Head, m *memory.Memory) (memory.Change, error) {
			if m.Summary != r.Of.Earlier || m.BaseSeq != r.Of.Agent.Settings.Memory.BaseSeq {
				return memory.Change{}, ErrSummaryStale
			}
			if h.Rev != rev {
				return memory.Change{}, errMoved
			}
			m.Summary, m.SummaryMS, m.SummaryUpTo = text, s.messages.NowMS(), upTo
			if seqs == nil {
				m.BaseSeq = upTo + 1
				return memory.Change{}, nil
			}
			m.SetConversationStart(upTo + 1)
			return dropped(view, h.Rev+1, seqs)
		})
		if !errors.Is(err, errMoved) {
			return err
		}
	}
	return ErrSummaryStale
}

// errMoved is returned if the agent changed between reading and writing.
var errMoved = errors.New("changed meanwhile")

// changedUpTo reports whether a message up to a Seq was changed or added since a revision, and
// returns the revision that this is based on.
func (s *Service) changedUpTo(ctx context.Context, ref memory.Ref, since, upTo int64) (changed bool, rev int64, err error) {
	h, err := s.messages.Head(ctx, ref.Project, ref.ID)
	if err != nil || h.Rev == since {
		return false, since, err
	}
	// In order of Seq.
	msgs, err := s.messages.Page(ctx, ref.Project, ref.ID, memory.MessageQuery{AfterRev: since, Limit: 1})
	return len(msgs) > 0 && msgs[0].Seq <= upTo, h.Rev, err
}

// ancestry returns what to add to the summary of a new agent from the first ancestor that is left.
// ok is false if there is none.
func (s *Service) ancestry(ctx context.Context, h *memory.Head) (l Leaving, ok bool, err error) {
	in := h.Agent.Settings.Memory.Inherited
	if in == nil || len(in.Ancestors) == 0 {
		return Leaving{}, false, nil
	}
	first := in.Ancestors[0]
	_, msgs, err := s.messages.Remembered(ctx, h.Agent.Project, first.ID)
	if err != nil && !fault.Is(err, fault.NotFound) { // what was erased is not summarised
		return Leaving{}, false, err
	}
	l = Leaving{Agent: *h.Agent, Earlier: h.Agent.Settings.Memory.Summary, ancestor: &first, rev: h.Rev}
	for _, m := range msgs {
		if m.Seq > first.After && !m.Role.Instructs() {
			l.Messages = append(l.Messages, m)
		}
	}
	if len(l.Messages) > 0 {
		return l, true, nil
	}
	err = s.ancestorDone(ctx, l, 0, l.Earlier) // nothing is left of it
	return Leaving{}, false, err
}

// ancestorDone stores a summary that covers the first n messages of an earlier agent.
func (s *Service) ancestorDone(ctx context.Context, l Leaving, n int, text string) error {
	_, err := s.edit(ctx, l.Agent.Ref(), func(_ memory.AgentView, _ *memory.Head, m *memory.Memory) (memory.Change, error) {
		if m.Summary != l.Earlier || m.Inherited == nil || len(m.Inherited.Ancestors) == 0 || m.Inherited.Ancestors[0] != *l.ancestor {
			return memory.Change{}, ErrSummaryStale
		}
		in := *m.Inherited
		in.Ancestors = slices.Clone(in.Ancestors)
		if n < len(l.Messages) {
			in.Ancestors[0].After = l.Messages[n-1].Seq
		} else {
			in.Ancestors = in.Ancestors[1:]
		}
		m.Inherited = &in
		if text != m.Summary {
			m.Summary, m.SummaryMS = text, s.messages.NowMS()
		}
		return memory.Change{}, nil
	})
	return err
}
