package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/heardlog/heardlog/memory"
)

// randomAnswer changes a message to one of the ways in which an answer may end.
func randomAnswer(r *rand.Rand, m *memory.Message) {
	m.Role, m.Generated, m.Content = memory.Assistant, "one two three four five six seven", "one two"
	m.State = []memory.State{memory.Final, memory.Final, memory.Superseded, memory.Empty, memory.Unplayed, memory.Dropped, memory.Merged, memory.Removed}[r.IntN(8)]
	m.Interrupted = r.IntN(2) == 0
	m.Method = []memory.Method{"", memory.AssumedFull, memory.EchoDiff, memory.WordTimes}[r.IntN(4)]
	m.ToolCalls = nil
	if r.IntN(4) == 0 {
		m.ToolCalls = raw(`[{"id":"a"},{"id":"b"}]`)
	}
	if r.IntN(8) == 0 {
		m.Role, m.ToolCallID = memory.Tool, "a"
	}
	m.Timings, m.Usage, m.Failure, m.Details = nil, nil, nil, nil
	if r.IntN(4) > 0 {
		m.Timings = &memory.Timings{StartMS: 1, FirstTokenMS: r.Int64N(2000)}
		if r.IntN(2) == 0 {
			m.Details = &memory.Details{Made: memory.Made{Model: "gpt-4o", Cost: &memory.Cost{In: r.Int64N(100), Out: r.Int64N(100), Estimated: r.IntN(2) == 0}}}
		}
		m.Usage = raw(fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d}`, r.IntN(100), r.IntN(100)))
	}
	if r.IntN(4) == 0 {
		m.Failure = &memory.Failure{Reason: "LLM_REQUEST_ERR", Code: 502}
		m.Amend(func(d *memory.Details) { d.Upstream = []string{"primary", "second"}[r.IntN(2)] })
	}
}

// testTally checks that an agent's tally is that of its messages after any changes, and that every
// way of reading it agrees.
func testTally(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	r := rand.New(rand.NewPCG(1, 2))
	for range 120 { // more messages than any cache keeps of one agent
		update(t, ctx, s, a, func(view memory.AgentView) (c memory.Change, err error) {
			h := view.Head()
			for range r.IntN(3) {
				m, err := h.Place(memory.Message{Role: memory.User, Content: "and then?"}, view.Head().Rev+1, 5, false)
				if err != nil {
					return c, err
				}
				if r.IntN(2) == 0 {
					randomAnswer(r, &m)
				}
				c.Append = append(c.Append, m)
			}
			if last := view.Head().NextSeq - 1; last > 0 {
				m, err := view.Seq(1 + r.Int64N(last))
				if err != nil {
					return c, err
				}
				m.Rev = view.Head().Rev + 1
				randomAnswer(r, &m)
				c.Replace = append(c.Replace, m)
			}
			return c, nil
		})
	}
	want := &memory.Tally{}
	for _, m := range ledger(t, ctx, s, a) {
		want.Add(&m, 1)
	}
	if want.Turns == 0 || want.Ghosts == 0 || want.Failures == 0 || len(want.FirstToken) == 0 || want.UnheardCost == 0 || want.EstimatedCost == 0 ||
		want.UnheardWords == 0 || want.GhostWords == 0 || want.Evident == 0 || want.ToolCalls == 0 || want.ToolResults == 0 || !want.Whole() {
		t.Fatalf("the messages hold too little: %+v", want)
	}
	wantSame(t, "tally of the head", head(t, ctx, s, a).Tally, want)
	page, err := s.Agents(ctx, memory.AgentQuery{Project: project, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "tally in a list", page.Heads[0].Tally, want)
	other := newAgent(2)
	other.Project = "another"
	create(t, ctx, s, other)
	for _, span := range []struct {
		from, to int64
		want     int
	}{{a.StartMS, a.StartMS, 1}, {a.StartMS + 1, a.StartMS + 9, 0}, {a.StartMS - 9, a.StartMS - 1, 0}} {
		var got memory.Tally
		n := 0
		if err := s.Tallies(ctx, project, span.from, span.to, func(startMS int64, tally []byte) error {
			n++
			wantSame(t, "start", startMS, a.StartMS)
			return got.MergeEncoded(tally)
		}); err != nil {
			t.Fatal(err)
		}
		if wantSame(t, "agents in the time", n, span.want); n > 0 {
			sum := *want
			sum.Bytes = 0
			wantSame(t, "tally of the time", got, sum)
		}
	}
	failed := fmt.Errorf("enough")
	if err := s.Tallies(ctx, project, 0, a.StartMS, func(int64, []byte) error { return failed }); err != failed {
		t.Errorf("the callback's error came back as %v", err)
	}
}

// testListHappenings checks the filters by what happened in a call, while that changes.
func testListHappenings(t *testing.T, ctx context.Context, s memory.Ledger) {
	plain, busy, vapi := newAgent(1), newAgent(2), newAgent(3)
	busy.StartMS, vapi.StartMS = plain.StartMS+1, plain.StartMS+2
	vapi.Settings.Call.Keys = []string{"vapi.call:1"}
	vapi.Settings.Labels = map[string]string{"line": "sales", "\x01ghosts": ""}
	for _, a := range []memory.Agent{plain, busy, vapi} {
		create(t, ctx, s, a)
	}
	find := func(q memory.AgentQuery) (ids []string) {
		t.Helper()
		q.Project, q.Limit = project, 10
		page, err := s.Agents(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Heads {
			ids = append(ids, page.Heads[i].Agent.ID)
		}
		if page.Total != len(ids) {
			t.Errorf("total %d of %v", page.Total, ids)
		}
		return ids
	}
	answer := func(a memory.Agent, change func(*memory.Message)) {
		update(t, ctx, s, a, func(view memory.AgentView) (memory.Change, error) {
			h := view.Head()
			if h.Last.Seq == 0 {
				m := memory.Message{Seq: 1, Rev: h.Rev + 1, Role: memory.Assistant, Content: "Hello there"}
				change(&m)
				return memory.Change{Append: []memory.Message{m}}, nil
			}
			m := h.Last
			m.Rev = h.Rev + 1
			change(&m)
			return memory.Change{Replace: []memory.Message{m}}, nil
		})
	}
	var none []string
	wantSame(t, "interrupted, at first", find(memory.AgentQuery{Interrupted: true}), none)
	answer(busy, func(m *memory.Message) { m.Interrupted = true })
	answer(vapi, func(m *memory.Message) { m.Interrupted = true })
	wantSame(t, "interrupted", find(memory.AgentQuery{Interrupted: true}), []string{vapi.ID, busy.ID})
	wantSame(t, "interrupted, oldest first", find(memory.AgentQuery{Interrupted: true, OldestFirst: true}), []string{busy.ID, vapi.ID})
	wantSame(t, "interrupted on a line", find(memory.AgentQuery{Interrupted: true, Labels: vapi.Settings.Labels}), none)
	wantSame(t, "interrupted on the sales line", find(memory.AgentQuery{Interrupted: true, Labels: map[string]string{"line": "sales"}}), []string{vapi.ID})
	wantSame(t, "on vapi", find(memory.AgentQuery{Platform: "vapi", Interrupted: true}), []string{vapi.ID})
	wantSame(t, "on another platform", find(memory.AgentQuery{Platform: "retell"}), none)
	answer(busy, func(m *memory.Message) { m.State = memory.Superseded })
	wantSame(t, "ghosts", find(memory.AgentQuery{Ghosts: true}), []string{busy.ID})
	wantSame(t, "interrupted, once one is a ghost", find(memory.AgentQuery{Interrupted: true}), []string{vapi.ID})
	answer(busy, func(m *memory.Message) { m.State, m.Failure = memory.Empty, &memory.Failure{Code: 502} })
	wantSame(t, "ghosts, once it is none", find(memory.AgentQuery{Ghosts: true}), none)
	wantSame(t, "failed answers", find(memory.AgentQuery{Failed: true}), []string{busy.ID})
	update(t, ctx, s, plain, end(memory.Failed, plain.StartMS+5))
	wantSame(t, "failed", find(memory.AgentQuery{Failed: true}), []string{busy.ID, plain.ID})
	wantSame(t, "failed agents", find(memory.AgentQuery{Failed: true, Statuses: []memory.Status{memory.Failed}}), []string{plain.ID})
}
