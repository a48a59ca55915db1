package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heardlog/heardlog/memory"
)

func testRevisions(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	if h := head(t, ctx, s, a); h.Rev != 1 {
		t.Errorf("rev of a new agent is %d", h.Rev)
	}
	update(t, ctx, s, a, says("one", "two")) // 2
	update(t, ctx, s, a, func(view memory.AgentView) (memory.Change, error) {
		m, err := view.Seq(1)
		m.Rev = view.Head().Rev + 1
		return memory.Change{Replace: []memory.Message{m}}, err // 3, and not the last message
	})
	if h := head(t, ctx, s, a); h.Rev != 3 {
		t.Errorf("rev after a replacement is %d", h.Rev)
	}
	update(t, ctx, s, a, end(memory.Stopping, 0)) // 4
	h := head(t, ctx, s, a)
	if h.Rev != 4 || h.Agent.Rev != 4 || h.Last.Rev != 2 {
		t.Errorf("rev %d, agent %d, last %d", h.Rev, h.Agent.Rev, h.Last.Rev)
	}
}

func testPageByRev(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	for i := range 100 {
		update(t, ctx, s, a, says(fmt.Sprint(i))) // seq i+1 has rev i+2
	}
	for _, seq := range []int64{90, 3} {
		update(t, ctx, s, a, func(view memory.AgentView) (memory.Change, error) {
			m, err := view.Seq(seq)
			m.Rev, m.Content = view.Head().Rev+1, "changed"
			return memory.Change{Replace: []memory.Message{m}}, err
		})
	}
	for _, tt := range []struct {
		after int64
		want  []string
	}{
		{103, []string{}}, {102, []string{"changed"}}, {101, []string{"changed", "changed"}}, {100, []string{"changed", "changed", "99"}}, {1 << 40, []string{}},
	} {
		list, err := s.Messages(ctx, project, a.ID, memory.MessageQuery{AfterRev: tt.after, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, fmt.Sprint("after rev ", tt.after), contents(list), tt.want)
	}
	// Paged: seq moves on, the revision stays.
	var got []string
	q := memory.MessageQuery{AfterRev: 98, Limit: 2}
	for {
		list, err := s.Messages(ctx, project, a.ID, q)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, contents(list)...)
		if len(list) < q.Limit {
			break
		}
		q.AfterSeq = list[len(list)-1].Seq
	}
	wantSame(t, "pages after rev 98", got, []string{"changed", "changed", "97", "98", "99"})
}

func testPageBySeq(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	for i := range 10 {
		update(t, ctx, s, a, userWithAnswer(fmt.Sprint(i))) // seqs 1, 3, 5, …
	}
	for _, tt := range []struct {
		after int64
		limit int
		want  []string
	}{
		{0, 3, []string{"0", "1", "2"}}, {1, 2, []string{"1", "2"}}, {2, 2, []string{"1", "2"}}, {17, 5, []string{"9"}}, {19, 5, []string{}},
		{20, 5, []string{}}, {1 << 40, 5, []string{}}, {-5, 1, []string{"0"}},
	} {
		list, err := s.Messages(ctx, project, a.ID, memory.MessageQuery{AfterSeq: tt.after, Limit: tt.limit})
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, fmt.Sprint("after ", tt.after), contents(list), tt.want)
	}
}

// modelPage returns the texts that a query finds in a plain list, and all that it may show of it.
func modelPage(model []memory.Message, q memory.MessageQuery) (want, recent []string) {
	want, recent = []string{}, []string{}
	size := int64(0)
	for _, m := range model {
		shown := !q.HistoryOnly || m.InHistory()
		if m.Seq > q.AfterSeq && m.Rev > q.AfterRev && shown && len(want) < q.Limit && (q.Bytes == 0 || size < q.Bytes) {
			want, size = append(want, m.Content), size+m.Bytes()
		}
		if shown {
			recent = append(recent, m.Content)
		}
	}
	return want, recent
}

// testPageMatchesLedger compares every way of reading with a plain list, whatever a driver keeps in
// memory.
func testPageMatchesLedger(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	rnd := rand.New(rand.NewPCG(1, 2))
	var model []memory.Message
	var free []int64 // kept for answers
	for step := range 250 {
		update(t, ctx, s, a, func(view memory.AgentView) (memory.Change, error) {
			h := view.Head()
			var c memory.Change
			switch kind := rnd.IntN(10); {
			case kind < 6:
				m := memory.Message{Seq: h.NextSeq, Rev: h.Rev + 1, Role: memory.User, Content: fmt.Sprint(step), TurnID: h.LastTurn + 1}
				if kind == 0 {
					m.Role = memory.Tool
				}
				if kind == 1 {
					m.AnswerSeq = m.Seq + 1
					free = append(free, m.AnswerSeq)
				}
				c.Append = append(c.Append, m)
			case kind < 8 && len(model) > 0:
				m := model[len(model)-1-rnd.IntN(min(len(model), 1+rnd.IntN(100)))]
				m.Rev, m.Content = h.Rev+1, fmt.Sprint("changed ", step)
				if rnd.IntN(3) == 0 {
					m.State = memory.Superseded
				}
				c.Replace = append(c.Replace, m)
			case kind == 8 && len(free) > 0:
				i := rnd.IntN(len(free))
				at := slices.IndexFunc(model, func(m memory.Message) bool { return m.AnswerSeq == free[i] })
				c.Append = append(c.Append, memory.Message{
					Seq: free[i], Rev: h.Rev + 1, Role: memory.Assistant, Content: fmt.Sprint("answer ", step), TurnID: model[at].TurnID,
				})
				free = slices.Delete(free, i, i+1)
			}
			model = append(model, c.Append...)
			for _, m := range c.Replace {
				model[slices.IndexFunc(model, func(o memory.Message) bool { return o.Seq == m.Seq })] = m
			}
			slices.SortFunc(model, func(a, b memory.Message) int { return int(a.Seq - b.Seq) })
			return c, nil
		})
		if step%5 != 0 || len(model) == 0 {
			continue
		}
		h := head(t, ctx, s, a)
		q := memory.MessageQuery{
			AfterSeq: max(0, h.NextSeq-int64(rnd.IntN(80))), AfterRev: max(0, h.Rev-int64(rnd.IntN(80))), Limit: 1 + rnd.IntN(50), HistoryOnly: rnd.IntN(2) == 0,
		}
		if rnd.IntN(2) == 0 {
			q.AfterSeq = 0
		}
		if rnd.IntN(2) == 0 {
			q.AfterRev = 0
		}
		if rnd.IntN(2) == 0 {
			q.Bytes = 1 + rnd.Int64N(20_000)
		}
		want, recent := modelPage(model, q)
		list, err := s.Messages(ctx, project, a.ID, q)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, fmt.Sprintf("step %d: page %+v", step, q), contents(list), want)
		_, list, err = s.Recent(ctx, project, a.ID, q.Limit, q.HistoryOnly)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, fmt.Sprintf("step %d: recent %d", step, q.Limit), contents(list), recent[max(0, len(recent)-q.Limit):])
	}
	wantSame(t, "ledger", ledger(t, ctx, s, a), model)
}

func testRecent(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	_, list, err := s.Recent(ctx, project, a.ID, 32, true)
	if err != nil || len(list) != 0 {
		t.Fatalf("recent of a new agent: %v, %v", list, err)
	}
	var all []string
	for i := range 130 {
		update(t, ctx, s, a, says(fmt.Sprint(i)))
		all = append(all, fmt.Sprint(i))
		h, list, err := s.Recent(ctx, project, a.ID, 32, true)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, "recent", contents(list), all[max(0, len(all)-32):])
		if h.Last.Content != fmt.Sprint(i) || h.Rev != int64(i+2) {
			t.Fatalf("head %+v is not of the messages' moment", h)
		}
	}
	for _, n := range []int{0, 1, 63, 64, 65, 129, 130, 1024} {
		_, list, err := s.Recent(ctx, project, a.ID, n, false)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, fmt.Sprint("recent ", n), contents(list), all[max(0, len(all)-n):])
	}
}

func testRecentHistoryOnly(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	var shown []string
	for i := range 200 {
		update(t, ctx, s, a, func(view memory.AgentView) (memory.Change, error) {
			c, err := says(fmt.Sprint(i))(view)
			if i%7 != 0 {
				c.Append[0].Role = memory.Tool
			} else {
				shown = append(shown, fmt.Sprint(i))
			}
			return c, err
		})
		for _, n := range []int{1, 5, 32} {
			_, list, err := s.Recent(ctx, project, a.ID, n, true)
			if err != nil {
				t.Fatal(err)
			}
			wantSame(t, fmt.Sprint("recent ", n), contents(list), shown[max(0, len(shown)-n):])
		}
	}
	list, err := s.Messages(ctx, project, a.ID, memory.MessageQuery{Limit: 1000, HistoryOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "page", contents(list), shown)
}

// testRecentSharesNothingWritten holds on to what was handed out while the ledger moves on.
func testRecentSharesNothingWritten(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	var held [][]memory.Message
	for i := range 150 {
		update(t, ctx, s, a, says(fmt.Sprint(i)))
		if i%3 == 0 {
			update(t, ctx, s, a, func(view memory.AgentView) (memory.Change, error) {
				m := view.Head().Last
				m.Rev, m.Content = m.Rev+1, m.Content+" changed"
				return memory.Change{Replace: []memory.Message{m}}, nil
			})
		}
		_, list, err := s.Recent(ctx, project, a.ID, 40, false)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, list)
	}
	for i, list := range held {
		for j, m := range list {
			n := i - len(list) + 1 + j
			want := fmt.Sprint(n)
			if n%3 == 0 {
				want += " changed"
			}
			if m.Content != want {
				t.Fatalf("list %d: message %d became %q, was %q", i, j, m.Content, want)
			}
		}
	}
}

// What a list shows, the other reads show: an agent that is listed as stopped is stopped.
func testListThenHead(t *testing.T, ctx context.Context, s memory.Ledger) {
	for n := range 40 {
		a := create(t, ctx, s, newAgent(n))
		done := make(chan error, 1)
		go func() {
			done <- s.Update(ctx, project, a.ID, func(view memory.AgentView) (memory.Change, error) {
				h := view.Head()
				ended := *h.Agent
				ended.Status, ended.StopMS, ended.Rev = memory.Stopped, ended.StartMS+1, h.Rev+1
				return memory.Change{Agent: &ended}, nil
			})
		}()
		for listed := false; !listed; {
			page, err := s.Agents(ctx, memory.AgentQuery{Project: project, Name: a.Name, Statuses: []memory.Status{memory.Stopped}, Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			listed = len(page.Heads) == 1
		}
		h, err := s.Head(ctx, project, a.ID)
		if err != nil || h.Agent.Status != memory.Stopped {
			t.Fatalf("agent %d is listed as stopped and read as %s, %v", n, h.Agent.Status, err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}
