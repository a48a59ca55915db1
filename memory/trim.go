package memory

import (
	"context"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/window"
)

// Summarizable gives the oldest messages of a memory, those that a summary should tell of before they leave: all but the newest keepRecent, without system
// messages (reference/memory-semantics.md 001-21). A call and its results are not parted.
func (s *Service) Summarizable(ctx context.Context, project, id string, keepRecent int) (Agent, []Message, error) {
	h, r, err := s.remembered(ctx, project, id)
	if err != nil {
		return Agent{}, nil, err
	}
	var out []Message
	for _, i := range window.Summarizable(r.views, keepRecent) {
		out = append(out, r.stored[i])
	}
	return h.Agent, out, nil
}

// TrimRequest says how far a memory is cut: exactly one of the two is set.
type TrimRequest struct {
	MaxTokens  *int // a budget of its own, whatever the policy says (001-11)
	KeepRecent *int // the newest messages, and all of the system's in front (001-22)
}

// Trimmed is what a trim or a repair did.
type Trimmed struct {
	Dropped  int      // messages that left the memory
	Kept     int      // messages that are in it now
	Tokens   int      // what they cost
	Healed   []string // ids of calls that got a stand-in for their result
	Problems []RepairProblem
}

// RepairProblem is one thing that is wrong with the tool calls of a memory.
type RepairProblem struct {
	Code       window.Code
	Seq        int64
	IDs        []string
	Repairable bool
}

// Trim cuts a memory for good; the ledger keeps what left it. Doing it again changes nothing. fault.Invalid for a request without its one field,
// fault.Stopped if the agent takes nothing more, fault.Conflict where something comes between the messages or their order changes while an answer is being made.
func (s *Service) Trim(ctx context.Context, project, id string, r TrimRequest) (Trimmed, error) {
	if (r.MaxTokens == nil) == (r.KeepRecent == nil) {
		return Trimmed{}, fault.At(fault.Missing, "max_tokens", "or keep_recent is required, and not both")
	}
	return s.rework(ctx, project, id, func(a *Agent, views []window.Message) (reworked, error) {
		p := s.PolicyOf(a, nil)
		c, err := s.counter(&p)
		if err != nil {
			return reworked{}, err
		}
		if r.KeepRecent != nil {
			keep := window.TrimToRecent(views, *r.KeepRecent)
			keep = slices.DeleteFunc(keep, func(i int) bool { return views[i].Status != "" })
			return reworked{keep: keep, counter: c}, nil
		}
		t := window.TrimToTokens(views, *r.MaxTokens, c)
		return reworked{keep: t.Keep, insert: t.Insert, counter: c}, nil
	})
}

// Repair looks at the tool calls of a memory and gives results that are missing a stand-in (001-17, 001-18); other faults it only tells of. Doing it again changes
// nothing. fault.Stopped if the agent takes nothing more, fault.Conflict where a stand-in is wanted while an answer is being made.
func (s *Service) Repair(ctx context.Context, project, id string) (Trimmed, error) {
	return s.rework(ctx, project, id, func(a *Agent, views []window.Message) (reworked, error) {
		p := s.PolicyOf(a, nil)
		c, err := s.counter(&p)
		if err != nil {
			return reworked{}, err
		}
		found := window.Repair(views)
		out := reworked{insert: found.Insert, counter: c, problems: found.Problems}
		for i := range views {
			if views[i].Status == "" {
				out.keep = append(out.keep, i)
			}
		}
		return out, nil
	})
}

// reworked says what a memory is to be.
type reworked struct {
	keep     []int // places, in the new order
	insert   []window.Insertion
	counter  window.Counter
	problems []window.Problem
}

// rebuilds tells whether the memory has to begin anew with copies. An answer that is being made stands where its question does, and so would not be among them.
func (d *reworked) rebuilds() bool { return len(d.insert) > 0 || !slices.IsSorted(d.keep) }

// rework makes of a memory what decide says. decide sees it outside of any transaction, and again if something was stored meanwhile.
func (s *Service) rework(ctx context.Context, project, id string, decide func(a *Agent, views []window.Message) (reworked, error)) (Trimmed, error) {
	const tries = 8
	for try := 1; ; try++ {
		h, r, err := s.remembered(ctx, project, id)
		if err != nil {
			return Trimmed{}, err
		}
		var out Trimmed
		var d reworked
		var list []Message
		look := func(a *Agent) (err error) {
			r = r.byTurn()
			if d, err = decide(a, r.views); err == nil {
				out, list = r.told(d)
			}
			return err
		}
		if err := look(&h.Agent); err != nil {
			return Trimmed{}, err
		}
		_, busy := s.Busy(ctx, project, id)
		stale := false
		err = s.update(ctx, project, id, func(view AgentView) (Change, error) {
			h := view.Head()
			if err := h.Agent.MustBeActive(fault.Stopped); err != nil {
				return Change{}, err
			}
			if stale = h.Rev != r.rev; stale && try < tries {
				return Change{}, nil
			}
			if stale { // the agent is never still: what is decided on is looked at where nothing can come between, though that holds up other writes
				stale = false
				m := &h.Agent.Settings.Memory
				msgs, err := view.Last(int(max(h.NextSeq-m.BaseSeq, 0)))
				if err != nil {
					return Change{}, err
				}
				r = newRecalled(r.key, &h, m.since(msgs), recalledPart{})
				r.noteTurns(r.stored)
				if err := look(&h.Agent); err != nil {
					return Change{}, err
				}
			}
			if busy && d.rebuilds() {
				return Change{}, fault.New(fault.Conflict, "an answer is being made, which would be left behind; try again when it has come")
			}
			return s.become(&h, r, d, list)
		})
		if err != nil {
			return Trimmed{}, err
		}
		if !stale {
			return out, nil
		}
	}
}

// told gives what a rework does, and the messages of the memory after it.
func (r *recalled) told(d reworked) (Trimmed, []Message) {
	var out Trimmed
	var list []Message
	behind := map[int][]window.Message{}
	for _, in := range d.insert {
		behind[in.After] = append(behind[in.After], in.Messages...)
	}
	units, again := 0, d.rebuilds()
	for _, i := range d.keep {
		m := r.stored[i]
		if again {
			m = m.copied(m.Seq)
		}
		list = append(list, m)
		units += d.counter.Size(&r.views[i])
		for _, w := range behind[i] {
			m := Message{
				Role: w.Role, Content: w.Text, Parts: w.Parts, ToolCallID: w.ToolCallID, TurnID: r.stored[i].TurnID, Timestamp: r.stored[i].Timestamp,
			}
			m.scopeOr(r.stored[i].Scope())
			if w.Role == User { // results in blocks
				m.Role = Tool
			}
			list = append(list, m.copied(r.stored[i].Seq))
			links := w.ReadLinks()
			out.Healed = append(out.Healed, links.Results...)
			units += d.counter.Size(&w)
		}
	}
	remembered := 0
	for i := range r.views {
		if r.views[i].Status == "" {
			remembered++
		}
	}
	out.Dropped, out.Kept, out.Tokens = remembered-len(d.keep), len(list), units/d.counter.PerToken()
	for _, p := range d.problems {
		out.Problems = append(out.Problems, RepairProblem{p.Code, r.stored[p.Index].Seq, p.IDs, p.Repairable})
	}
	return out, list
}

// copied gives a message as a copy, or a stand-in behind the message of that Seq, where the memory begins anew.
func (m Message) copied(of int64) Message {
	m.Amend(func(r *Rare) { r.CopyOf = of })
	return m
}

// become gives the change that makes a memory of these messages. Where only the oldest leave, the memory's beginning is moved; where others do, they are marked;
// where something comes between or the order changes, the memory begins anew with copies.
func (s *Service) become(h *Head, r *recalled, d reworked, list []Message) (Change, error) {
	a, rev := h.Agent, h.Rev+1
	a.Rev = rev
	if d.rebuilds() {
		c, err := s.refill(h, &a.Settings.Memory, list)
		c.Agent, c.copies = &a, true
		return c, err
	}
	kept := make(map[int]bool, len(d.keep))
	for _, i := range d.keep {
		kept[i] = true
	}
	var c Change
	suffix := true
	for i := len(r.stored) - 1; i >= 0; i-- {
		if r.views[i].Status != "" || kept[i] {
			continue
		}
		m := r.stored[i]
		m.State, m.Rev = Dropped, rev
		c.Replace = append(c.Replace, m)
		suffix = suffix && (len(d.keep) == 0 || i < d.keep[0])
	}
	if len(c.Replace) == 0 {
		return Change{}, nil
	}
	if suffix && !r.unordered {
		c.Replace = nil
		a.Settings.Memory.BaseSeq = h.NextSeq
		if len(d.keep) > 0 {
			a.Settings.Memory.BaseSeq = r.stored[d.keep[0]].Seq
		}
		c.Agent = &a
	}
	return c, nil
}
