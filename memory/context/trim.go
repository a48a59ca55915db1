package context

import (
	"context"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/window"
)

// Summarizable calls each with the oldest messages of a memory, some at a time, which a summary
// should cover before they leave it: all but the newest keepRecent, without system messages. It
// does not separate tool calls from their results. It returns the head as of the beginning.
func (s *Service) Summarizable(ctx context.Context, project, id string, keepRecent int, each func([]memory.Message) error) (memory.Head, error) {
	h, err := s.messages.Head(ctx, project, id)
	if err != nil {
		return h, err
	}
	// First without the texts, which may be too long to be held as a whole.
	var views []window.Message
	var seqs []int64
	after := max(h.Agent.Settings.Memory.BaseSeq, 1) - 1
	const view = 640
	if err := s.messages.Room(ctx, &h, after, view); err != nil {
		return h, err
	}
	err = s.messages.Each(ctx, project, id, after, func(msgs []memory.Message) error {
		for i := range msgs {
			v := msgs[i].ForWindow()
			v.Text, v.Parts, v.ToolCalls = "", nil, nil // Links has their calls
			views, seqs = append(views, v), append(seqs, msgs[i].Seq)
		}
		return nil
	})
	if err != nil {
		return h, err
	}
	oldest := window.Summarizable(views, keepRecent)
	return h, s.messages.Each(ctx, project, id, after, func(msgs []memory.Message) error {
		out := make([]memory.Message, 0, len(msgs))
		for i := range msgs {
			if len(oldest) > 0 && seqs[oldest[0]] == msgs[i].Seq {
				out, oldest = append(out, msgs[i]), oldest[1:]
			}
		}
		return each(out)
	})
}

// TrimRequest is how far a memory is trimmed. Exactly one field is set.
type TrimRequest struct {
	MaxTokens  *int // a token budget, instead of the policy's
	KeepRecent *int // the newest messages, and all system messages at the front
}

// Trimmed is the result of Trim and Repair.
type Trimmed struct {
	Dropped  int      // messages that left the memory
	Kept     int      // messages that are in it now
	Tokens   int      // their cost
	Healed   []string // IDs of tool calls that got a stand-in for their result
	Problems []RepairProblem
}

// RepairProblem is a problem with the tool calls of a memory.
type RepairProblem struct {
	Code       window.Code
	Seq        int64
	IDs        []string
	Repairable bool
}

// Trim cuts a memory for good; the ledger keeps the messages. Repeating it changes nothing. It
// returns fault.Missing unless the request has exactly one field, fault.Stopped if the agent has
// ended, and fault.Conflict if an answer is being generated and messages would have to be inserted
// or reordered.
func (s *Service) Trim(ctx context.Context, project, id string, r TrimRequest) (Trimmed, error) {
	if (r.MaxTokens == nil) == (r.KeepRecent == nil) {
		return Trimmed{}, fault.At(fault.Missing, "max_tokens", "or keep_recent is required, and not both")
	}
	return s.rewrite(ctx, memory.Ref{Project: project, ID: id}, func(views []window.Message, c window.Counter) rewriting {
		if r.KeepRecent != nil {
			keep := window.TrimToRecent(views, *r.KeepRecent)
			keep = slices.DeleteFunc(keep, func(i int) bool { return views[i].Status != "" })
			return rewriting{keep: keep}
		}
		t := window.TrimToTokens(views, *r.MaxTokens, c)
		return rewriting{keep: t.Keep, insert: t.Insert}
	})
}

// Repair checks the tool calls of a memory and inserts stand-ins for missing results; it only
// reports other problems. Repeating it changes nothing. It returns fault.Stopped if the agent has
// ended, and fault.Conflict if a stand-in is needed while an answer is being generated.
func (s *Service) Repair(ctx context.Context, project, id string) (Trimmed, error) {
	return s.rewrite(ctx, memory.Ref{Project: project, ID: id}, func(views []window.Message, _ window.Counter) rewriting {
		found := window.Repair(views)
		out := rewriting{insert: found.Insert, problems: found.Problems}
		for i := range views {
			if views[i].Status == "" {
				out.keep = append(out.keep, i)
			}
		}
		return out
	})
}

// rewriting is what a memory is to become.
type rewriting struct {
	keep     []int // indices of the messages that stay, in the new order
	insert   []window.Insertion
	problems []window.Problem
}

// copies reports whether the memory has to start again with copies of its messages. An answer that
// is being generated goes where its question is, and would not be among them.
func (d *rewriting) copies() bool { return len(d.insert) > 0 || !slices.IsSorted(d.keep) }

// rewrite makes of a memory what decide returns for it. decide runs outside the write, and again if
// something was stored in between.
func (s *Service) rewrite(ctx context.Context, ref memory.Ref, decide func([]window.Message, window.Counter) rewriting) (Trimmed, error) {
	const tries = 8
	for try := 1; ; try++ {
		h, stored, err := s.messages.SinceBase(ctx, ref.Project, ref.ID)
		if err != nil {
			return Trimmed{}, err
		}
		r := newContents(ref, &h, stored)
		var d rewriting
		var out Trimmed
		var list []memory.Message
		run := func(a *memory.Agent) error {
			p := s.policies.Of(a, nil)
			c, err := s.policies.Counter(&p)
			if err != nil {
				return err
			}
			r = r.byTurn()
			d = decide(r.views, c)
			out, list = r.rewritten(d, c)
			return nil
		}
		if err := run(h.Agent); err != nil {
			return Trimmed{}, err
		}
		_, busy := s.turns.Busy(ctx, ref.Project, ref.ID)
		stale := false
		err = s.messages.Change(ctx, ref.Project, ref.ID, func(view memory.AgentView) (memory.Change, error) {
			h := view.Head()
			if err := h.Agent.MustBeActive(fault.Stopped); err != nil {
				return memory.Change{}, err
			}
			if stale = h.Rev != r.rev; stale && try < tries {
				return memory.Change{}, nil
			}
			// The agent changes all the time, so decide here, where nothing can come between.
			if stale {
				stale = false
				m := &h.Agent.Settings.Memory
				msgs, err := view.Last(int(max(h.NextSeq-m.BaseSeq, 0)))
				if err != nil {
					return memory.Change{}, err
				}
				r = newContents(r.key, &h, m.Since(msgs))
				if err := run(h.Agent); err != nil {
					return memory.Change{}, err
				}
			}
			if busy && d.copies() {
				return memory.Change{}, fault.New(fault.Conflict, "an answer is being generated and would be left out; try again when it is stored")
			}
			return s.change(&h, r, d, list)
		})
		if err != nil {
			return Trimmed{}, err
		}
		if !stale {
			return out, nil
		}
	}
}

// rewritten returns the result of a rewriting, and the messages of the memory after it.
func (r *contents) rewritten(d rewriting, counter window.Counter) (Trimmed, []memory.Message) {
	var out Trimmed
	var list []memory.Message
	after := map[int][]window.Message{}
	for _, in := range d.insert {
		after[in.After] = append(after[in.After], in.Messages...)
	}
	units, copies := 0, d.copies()
	for _, i := range d.keep {
		m := r.stored[i]
		if copies {
			m.Amend(func(d *memory.Details) { d.CopyOf, d.Request, d.Was = m.Seq, nil, nil })
		}
		list = append(list, m)
		units += counter.Size(&r.views[i])
		for _, w := range after[i] {
			list = append(list, standIn(&w, &r.stored[i]))
			links := w.ReadLinks()
			out.Healed = append(out.Healed, links.Results...)
			units += counter.Size(&w)
		}
	}
	inMemory := 0
	for i := range r.views {
		if r.views[i].Status == "" {
			inMemory++
		}
	}
	out.Dropped, out.Kept, out.Tokens = inMemory-len(d.keep), len(list), units/counter.PerToken()
	for _, p := range d.problems {
		out.Problems = append(out.Problems, RepairProblem{p.Code, r.stored[p.Index].Seq, p.IDs, p.Repairable})
	}
	return out, list
}

// standIn returns the message that stands in for a lost result of the tool calls of another one.
func standIn(w *window.Message, call *memory.Message) memory.Message {
	m := memory.Message{
		Role: w.Role, Content: w.Text, Parts: w.Parts, ToolCallID: w.ToolCallID, TurnID: call.TurnID, Timestamp: call.Timestamp,
	}
	if w.Role == window.User { // results as content blocks
		m.Role = memory.Tool
	}
	m.Amend(func(r *memory.Details) { r.Scope, r.CopyOf = call.Filed().Scope, call.Seq })
	return m
}

// change returns the change that makes a memory of these messages. If only the oldest messages
// leave, the start of the memory moves; if others do, they are marked as dropped; and if messages
// are inserted or reordered, the memory starts again with copies.
func (s *Service) change(h *memory.Head, r *contents, d rewriting, list []memory.Message) (memory.Change, error) {
	a, rev := *h.Agent, h.Rev+1
	a.Rev = rev
	if d.copies() {
		c, err := h.Refill(&a.Settings.Memory, list, s.messages.NowMS(), true)
		c.Agent = &a
		return c, err
	}
	kept := make(map[int]bool, len(d.keep))
	for _, i := range d.keep {
		kept[i] = true
	}
	var c memory.Change
	oldest := true // only the oldest messages leave
	for i := len(r.stored) - 1; i >= 0; i-- {
		if r.views[i].Status != "" || kept[i] {
			continue
		}
		m := r.stored[i]
		m.State, m.Rev = memory.Dropped, rev
		c.Replace = append(c.Replace, m)
		oldest = oldest && (len(d.keep) == 0 || i < d.keep[0])
	}
	if len(c.Replace) == 0 {
		return memory.Change{}, nil
	}
	if oldest && !r.unordered {
		c.Replace = nil
		a.Settings.Memory.BaseSeq = h.NextSeq
		if len(d.keep) > 0 {
			a.Settings.Memory.BaseSeq = r.stored[d.keep[0]].Seq
		}
		c.Agent = &a
	} else if !r.unordered {
		start := h.NextSeq
		if first := slices.IndexFunc(d.keep, func(i int) bool { return !r.views[i].IsSystem() }); first >= 0 {
			start = r.stored[d.keep[first]].Seq
		}
		a.Settings.Memory.SetConversationStart(start)
		a.Rev = h.Agent.Rev // nothing that a live tail shows
		c.Agent = &a
	}
	return c, nil
}
