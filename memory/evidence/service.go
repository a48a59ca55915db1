package evidence

import (
	"context"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/redact"
)

// Service records reports in a memory.
type Service struct{ Memory *agents.Service }

// Recorded is the result of a report whose answer was found.
type Recorded struct {
	Report  int            // its index
	Message memory.Message // the answer after the report; zero if Pending
	Changed bool
	Pending bool // the answer is still being generated; the report is applied when it is stored
}

// Record applies the reports of one event, in the order of the conversation. It returns the answers
// that were found, in the same order; an answer is used for one report only. Recording the same
// reports again changes nothing. Agents that have ended accept reports too. A report that the
// caller cut the answer that is being sent stops that answer.
//
// It returns fault.NotFound for an unknown agent and fault.Invalid for more than MaxReports.
func (s Service) Record(ctx context.Context, project, id string, reports []Report) ([]Recorded, error) {
	if len(reports) > MaxReports {
		return nil, fault.New(fault.Invalid, "more than %d reports in one call", MaxReports)
	}
	last := len(reports) - 1
	if last < 0 {
		return s.record(ctx, project, id, reports) // checks that the agent exists
	}
	if reports[last].aboutLive() {
		live, done, err := s.recordLive(ctx, project, id, reports[last])
		switch {
		case err != nil:
			return nil, err
		case done && last == 0:
			return live, nil
		case done: // the other reports of the list are about earlier answers
			out, err := s.record(ctx, project, id, reports[:last])
			for i := range live {
				live[i].Report = last
			}
			return append(out, live...), err
		}
	}
	out, err := s.record(ctx, project, id, reports)
	if err != nil || len(out) > 0 || last > 0 || !reports[0].Cut {
		return out, err
	}
	if live, done, err := s.recordLive(ctx, project, id, reports[0]); done || err != nil {
		return live, err
	}
	return out, nil
}

// recordLive applies a report to the answer that is being sent. done is false if there is none that
// the report may be about.
func (s Service) recordLive(ctx context.Context, project, id string, r Report) (out []Recorded, done bool, err error) {
	about := agents.LiveAnswer{Heard: r.Heard, AtMS: r.AtMS, Cut: r.Cut}
	result, err := s.Memory.Turns.AmendLive(ctx, project, id, about, pending{r, s, project, id})
	switch {
	case err != nil || result == agents.NoLiveAnswer:
		return nil, false, err
	case result == agents.AmendedWhenStored:
		return []Recorded{{Pending: true}}, true, nil
	}
	out, err = s.record(ctx, project, id, []Report{r})
	return out, true, err
}

// pending is a report that waits until its answer is stored.
type pending struct {
	Report
	service     Service
	project, id string
}

func (p pending) Fits(m *memory.Message) bool { return p.fits(m, 0) }

func (p pending) Apply(m memory.Message, now int64) (memory.Message, bool, error) {
	return p.apply(m, now)
}

func (p pending) ApplyElsewhere(ctx context.Context) error {
	_, err := p.service.record(ctx, p.project, p.id, []Report{p.Report})
	return err
}

// record applies reports to stored answers. Answers are found and evaluated before the write; only
// answers that changed in between are evaluated again.
func (s Service) record(ctx context.Context, project, id string, reports []Report) ([]Recorded, error) {
	depth := listDepth
	if len(reports) == 1 {
		depth = 8 * singleDepth
	}
	head, recent, err := s.Memory.Messages.Recent(ctx, project, id, depth)
	if err == nil && head.Agent.Archived() { // its record is made of notifications only
		err = head.Agent.MustBeActive(fault.NotFound)
	}
	if err != nil {
		return nil, err
	}
	// What was heard are words of answers, in which names have been found already.
	by := s.Memory.Messages.Redactor(head.Agent).Unasked()
	answers := renamed(recent, by)
	reports = redacted(slices.Clone(reports), by, recent)
	ctx = agents.Withholding(ctx)
	now := s.Memory.Messages.NowMS()
	if slices.ContainsFunc(reports, func(r Report) bool { return r.HeardMS != nil }) {
		rate := agents.SpeakingRate(recent)
		for i := range reports {
			reports[i].rate = rate
		}
	}
	var out []Recorded
	var revs []int64 // of the answers when they were evaluated
	changes := false
	for i, m := range match(reports, answers) {
		if m == nil {
			continue
		}
		updated, changed, err := reports[i].apply(*m, now)
		if err != nil {
			continue // its words are not part of that answer, so it is about another one
		}
		out, revs = append(out, Recorded{Report: i, Message: updated, Changed: changed}), append(revs, m.Rev)
		changes = changes || changed
	}
	if !changes {
		return out, nil
	}
	err = s.Memory.Messages.Change(ctx, project, id, func(view memory.AgentView) (memory.Change, error) {
		var c memory.Change
		for i := range out {
			r := &out[i]
			m, err := view.Seq(r.Message.Seq)
			if err != nil {
				return memory.Change{}, err
			}
			if m.Rev != revs[i] {
				revs[i] = m.Rev
				if r.Message, r.Changed, err = reports[r.Report].apply(m, now); err != nil {
					r.Message, r.Changed = m, false
				}
			}
			if r.Changed {
				r.Message.Rev = view.Head().Rev + 1
				c.Replace = append(c.Replace, r.Message)
			}
		}
		return c, nil
	})
	return out, err
}

// renamed returns messages with the names replaced that have become known since they were stored.
func renamed(list []memory.Message, r *redact.Redactor) []memory.Message {
	if !r.Detects() {
		return list
	}
	out := make([]memory.Message, len(list))
	for i := range list {
		out[i] = list[i].Renamed(r)
	}
	return out
}
