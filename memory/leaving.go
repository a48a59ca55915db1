package memory

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	windows "github.com/heardlog/heardlog/memory/window"
)

// Summaries has memories summarised in the background. Its methods are called after a change is stored, and must not block.
type Summaries interface {
	// Grew tells that by so many code points and messages, at most, an agent's memory is larger than before.
	Grew(project, id string, chars, messages int64)
	// Changed tells that an agent began, or was changed in another way than by growing.
	Changed(project, id string)
	// Ended tells that an agent takes nothing more, or is no more.
	Ended(project, id string)
}

// Leaving is what a summary is due for.
type Leaving struct {
	Agent Agent
	// Messages are about to leave, oldest first: those of the memory but the newest keep_recent, without system messages. Empty where nothing is due.
	Messages []Message
	Earlier  string // the summary so far, which goes into the next; "" without one
	Model    string // that is to be asked in place of the agent's; "" for that
	// Chars and Count are, where nothing is due, how much may come before something can be, in code points and messages; at least 1.
	Chars, Count int64

	rev      int64     // of the agent when this was read
	ancestor *Ancestor // the agent before this one whose messages they are; nil for its own
}

// ErrSummaryStale tells that what a summary was made of has changed while it was made: it tells of words that were not heard after all, or that are no longer in memory.
var ErrSummaryStale = fault.New(fault.Conflict, "what was summarised has changed meanwhile")

// Leaving gives what is due to be summarised of an agent's memory: where its policy's strategy is summarize, and its estimate has reached summarize_at of its window
// (reference/memory-semantics.md 001-29). It fails with fault.NotFound, and with fault.Stopped for an agent that takes nothing more.
func (s *Service) Leaving(ctx context.Context, project, id string) (Leaving, error) {
	h, err := s.cfg.Store.Head(ctx, project, id)
	if err == nil {
		err = h.Agent.MustBeActive(fault.Stopped)
	}
	if err != nil {
		return Leaving{}, err
	}
	if l, ok, err := s.ancestry(ctx, &h); ok || err != nil {
		l.Model = *s.PolicyOf(&h.Agent, nil).SummaryModel
		return l, err
	}
	if !summarises(s.PolicyOf(&h.Agent, nil)) { // most agents: their memories are not read, of all of them when the server starts
		return Leaving{Agent: h.Agent, Chars: math.MaxInt64, Count: math.MaxInt64, rev: h.Rev}, nil
	}
	busy := len(s.live.flying(agentKey{project, id})) > 0
	h, msgs, err := s.Remembered(ctx, project, id)
	if err == nil {
		err = h.Agent.MustBeActive(fault.Stopped)
	}
	if err != nil {
		return Leaving{}, err
	}
	l := Leaving{Agent: h.Agent, Earlier: h.Agent.Settings.Memory.Summary, Chars: math.MaxInt64, Count: math.MaxInt64, rev: h.Rev}
	p := s.PolicyOf(&h.Agent, nil)
	if !summarises(p) {
		return l, nil
	}
	l.Model = *p.SummaryModel
	list := windowMessages(msgs)
	c, err := s.Counter(&p)
	if err != nil {
		return Leaving{}, err
	}
	if !p.SummaryDue(list, c) {
		l.Chars, l.Count = slack(p, list, c)
		return l, nil
	}
	places := windows.Summarizable(list, *p.KeepRecent)
	l.Messages = make([]Message, 0, len(places))
	for _, i := range places {
		l.Messages = append(l.Messages, msgs[i])
	}
	if _, now := s.Busy(ctx, project, id); busy || now {
		l.Messages = l.Messages[:settledUpTo(l.Messages)]
	}
	if len(l.Messages) == 0 {
		l.Count = 1 // what is kept fills the window; the next message sends one away
	}
	return l, nil
}

// summarises tells whether a full policy asks for summaries.
func summarises(p windows.Policy) bool {
	return p.Strategy == windows.Summarize && *p.Enabled && *p.SummarizeAt > 0
}

// settledUpTo gives how many of the messages, from the first on, have no answer to come that would stand among them.
func settledUpTo(msgs []Message) int {
	for i := range msgs {
		gap := msgs[i].AnswerSeq
		if gap > 0 && !slices.ContainsFunc(msgs, func(m Message) bool { return m.Seq == gap }) {
			return i
		}
	}
	return len(msgs)
}

// slack gives how much may come before a summary can be due: a code point may be a token of an exact count, and more.
func slack(p windows.Policy, list []windows.Message, c windows.Counter) (chars, count int64) {
	chars, count = math.MaxInt64, math.MaxInt64
	tokens, messages := atShare(p.SummarizeAt, p.MaxTokens), atShare(p.SummarizeAt, p.MaxMessages)
	if tokens+messages == 0 {
		tokens, messages = windows.UnboundedTokens+1, windows.UnboundedMessages+1
	}
	if tokens > 0 {
		left := tokens - int64(windows.EstimateTokens(list, c))
		chars = max(left/windows.CharsPerToken, 1)
		if p.Tokens == windows.Estimate {
			chars = max((left-1)*windows.CharsPerToken, 1)
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

// atShare gives how much of a limit is the share at; 0 for no limit.
func atShare(at *float64, limit *int) int64 { return int64(math.Ceil(*at * float64(*limit))) }

// Summarised is a summary that was made.
type Summarised struct {
	Of       Leaving
	Messages int    // how many of Of.Messages it tells of, from the first on
	Text     string // all of it, Of.Earlier included
}

// summaryTries is how often a change of the agent may come between the look and the writing of a summary.
const summaryTries = 8

// Summarised stores a summary and takes what it tells of out of the memory, in one change. What came meanwhile stays. It fails with ErrSummaryStale where the summary so far was
// replaced, or one of the messages changed: better evidence of what was heard has come, or it left the memory in another way; with fault.Stopped if the agent takes nothing more.
func (s *Service) Summarised(ctx context.Context, r Summarised) error {
	project, id := r.Of.Agent.Project, r.Of.Agent.ID
	text, err := CleanText("summary", r.Text, MaxSummary)
	if err != nil {
		return err
	}
	gone := r.Of.Messages[:r.Messages]
	if len(gone) == 0 {
		return nil
	}
	if r.Of.ancestor != nil {
		if _, err := s.cfg.Store.Head(ctx, project, r.Of.ancestor.ID); fault.Is(err, fault.NotFound) { // it was erased while the model thought, and its words with it
			return ErrSummaryStale
		} else if err != nil {
			return err
		}
		return s.ancestorDone(ctx, r.Of, r.Messages, text)
	}
	upTo, rev := gone[len(gone)-1].Seq, r.Of.rev
	seqs, _, err := s.goneBefore(ctx, project, id, upTo)
	if err != nil {
		return err
	}
	for range summaryTries {
		// What has changed is looked for outside the transaction, which holds up all other writes of the server; within, it must still be all.
		changed, next, err := s.changedUpTo(ctx, project, id, rev, upTo)
		if err != nil {
			return err
		}
		if changed {
			return ErrSummaryStale
		}
		rev = next
		_, err = s.rememberTx(ctx, project, id, func(view AgentView, h *Head, m *Memory) (Change, error) {
			if m.Summary != r.Of.Earlier || m.BaseSeq != r.Of.Agent.Settings.Memory.BaseSeq {
				return Change{}, ErrSummaryStale
			}
			if h.Rev != rev {
				return Change{}, errMoved
			}
			m.Summary, m.SummaryMS, m.SummaryUpTo = text, s.NowMS(), upTo
			if seqs == nil {
				m.BaseSeq = upTo + 1
				return Change{}, nil
			}
			return dropped(view, h.Rev+1, seqs)
		})
		if !errors.Is(err, errMoved) {
			return err
		}
	}
	return ErrSummaryStale
}

// errMoved tells that the agent was changed between a look and a decision.
var errMoved = errors.New("changed meanwhile")

// changedUpTo tells whether a message up to a Seq was changed or came since a revision, and gives the revision of which that is known.
func (s *Service) changedUpTo(ctx context.Context, project, id string, since, upTo int64) (changed bool, rev int64, err error) {
	h, err := s.cfg.Store.Head(ctx, project, id)
	if err != nil || h.Rev == since {
		return false, since, err
	}
	msgs, err := s.cfg.Store.Messages(ctx, project, id, MessageQuery{AfterRev: since, Limit: 1}) // in order of Seq
	return len(msgs) > 0 && msgs[0].Seq <= upTo, h.Rev, err
}

// tellSummaries has a stored change told to who summarises. ended is the agent's status behind it.
func (s *Service) tellSummaries(project, id string, c *Change, ended bool) {
	switch {
	case ended && c.Agent != nil:
		s.cfg.Summaries.Ended(project, id)
	case ended:
	case c.Agent != nil:
		s.cfg.Summaries.Changed(project, id)
	default:
		chars := int64(0)
		for _, list := range [][]Message{c.Append, c.Replace} {
			for i := range list {
				chars += list[i].Size()
			}
		}
		s.cfg.Summaries.Grew(project, id, chars, int64(len(c.Append)))
	}
}

// mayMakeSummaries tells, at no cost, whether an agent's policy may ask for summaries.
func (s *Service) mayMakeSummaries(a *Agent) bool {
	m := &a.Settings.Memory
	return s.cfg.Summaries != nil && (s.special(a, nil) || m.Inherited != nil && len(m.Inherited.Ancestors) > 0)
}
