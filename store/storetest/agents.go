package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/turns"
	"github.com/heardlog/heardlog/memory/window"
)

func testCreateKeepsEverything(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := newAgent(1)
	a.JoinKey, a.JoinHash, a.Message, a.StopMS = "key", "hash", "", 0
	a.Properties = raw(`{"llm":{"api_key":"sk-1","unknown":[1,{"x":null}]},"tts":{"key":"t"}}`)
	a.Settings = memory.Settings{
		Channel: "lobby", Labels: map[string]string{"tier": "gold"}, IdleTimeoutS: 120,
		LLM: memory.LLMSettings{
			URL: "https://llm.example/v1", APIKey: "sk-1", Vendor: memory.VendorCustom, Style: "openai", Model: "m",
			SystemMessages: []json.RawMessage{raw(`{"role":"system","content":"be kind"}`)}, Params: raw(`{"temperature":0.1}`),
			Headers: map[string]secret.String{"X-Key": "hk"}, MaxHistory: 10, Greeting: "Hi", GreetingDelay: 5, FailureMessage: "oh",
			Variables: map[string]string{"name": "Ann"}, Mode: "inject", OnDisconnect: "drain", Duplicates: "join", OnQuestion: "keep",
			ConnectTimeoutMS: 1, FirstTokenTimeoutMS: 2, IdleTimeoutMS: 3, TotalTimeoutMS: 4,
			Upstreams: []memory.Upstream{
				{Name: "spare", URL: "https://spare.example/v1", APIKey: "sk-3", Vendor: memory.VendorAzure, Model: "m2", Headers: map[string]secret.String{"X-Key": "uk"}},
				{Name: "last", URL: "https://last.example/v1"},
			},
		},
		Filler:  memory.Filler{WaitMS: 700, Phrases: []string{"Let me see.", "Hm."}, Shuffle: true},
		Silence: memory.Silence{TimeoutMS: 9, Action: "think", Content: "c"}, Farewell: memory.Farewell{Graceful: true, TimeoutS: 3},
		Call: memory.Call{Keys: []string{"vapi.call:1"}, Shared: []string{"agora.channel:lobby"}, Previous: "p", Weak: true}, WarnedMS: 7,
		Archive: &memory.Archive{
			Name: "desk", StartMS: 1, StopMS: 2, Left: &memory.ArchiveEnd{Status: memory.Failed, Message: "m"}, Messages: 2, Digest: "d", Told: []byte{1, 255},
			Notices: []string{"n"}, Turns: []memory.ArchiveTurn{{TurnID: 1, StartType: turns.StartVoice, E2EMS: 5}}, Errors: []memory.ArchiveError{{TurnID: 1, Module: "llm"}},
		},
		Memory: memory.Memory{Policy: &window.Policy{Preset: "ovos", Normalise: &window.Normalise{}}, Summary: "Ann called.", SummaryMS: 5, SummaryUpTo: 4, BaseSeq: 3, ToolExchange: `{"id": 1}`},
	}
	stored := create(t, ctx, s, a)
	wantSame(t, "stored agent", stored, a)
	want := memory.NewHead(a, nil, 0)
	wantSame(t, "head", head(t, ctx, s, a), want)
	page, err := s.Agents(ctx, memory.AgentQuery{Project: project, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "listed agents", page, memory.AgentPage{Heads: []memory.Head{want}, Places: page.Places, Total: 1})
}

func testCreateWithMessages(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := newAgent(1)
	greeting := memory.Message{Seq: 1, Rev: 2, Role: memory.Assistant, Content: "Hello", Source: memory.SourceGreeting, Timestamp: 5}
	if _, created, err := s.Create(ctx, a, 0, memory.Change{Append: []memory.Message{greeting}}); err != nil || !created {
		t.Fatalf("created %v, err %v", created, err)
	}
	h, list, err := s.Recent(ctx, project, a.ID, 32, true)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "messages", list, []memory.Message{greeting})
	wantSame(t, "head", h, memory.Head{Agent: &a, NextSeq: 2, Rev: 2, LastTurn: 0, Last: greeting, Tally: &memory.Tally{Answers: 1, Bytes: greeting.Bytes(), TallyWords: memory.TallyWords{Counted: 1, Words: 1}}})
}

// testCreateEnded checks that an agent which has ended before it is created is not counted among
// the live ones.
func testCreateEnded(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := newAgent(1)
	a.Status, a.StopMS, a.Message = memory.Failed, a.StartMS+1, "gone"
	create(t, ctx, s, a)
	b := newAgent(2)
	// Of ended ones many may have a name.
	b.Name, b.Status, b.StopMS = a.Name, memory.Stopped, b.StartMS+1
	create(t, ctx, s, b)
	wantSame(t, "head", head(t, ctx, s, a), memory.NewHead(a, nil, 0))
	count, err := s.Count(ctx)
	if err != nil || count != [memory.Statuses]int{memory.Failed: 1, memory.Stopped: 1} {
		t.Errorf("count %v, %v", count, err)
	}
	if err := s.Live(ctx, func(h memory.Head) error { t.Errorf("%s is live", h.Agent.ID); return nil }); err != nil {
		t.Error(err)
	}
	c := newAgent(3)
	c.Name = a.Name
	if _, created, err := s.Create(ctx, c, 1, memory.Change{}); err != nil || !created {
		t.Errorf("the first live one: %v", err)
	}
	if n, err := s.Sweep(ctx, a.StopMS+b.StopMS, 10); n != 2 || err != nil {
		t.Errorf("%d were swept, %v", n, err)
	}
}

func testCreateNameTaken(t *testing.T, ctx context.Context, s memory.Ledger) {
	first := create(t, ctx, s, newAgent(1))
	second := newAgent(2)
	second.Name = first.Name
	_, _, err := s.Create(ctx, second, 0, memory.Change{})
	wantCode(t, err, fault.Conflict)
	taken, ok := errors.AsType[*memory.NameTakenError](err)
	if !ok || taken.AgentID != first.ID {
		t.Fatalf("error %#v does not name agent %s", err, first.ID)
	}
	_, err = s.Head(ctx, project, second.ID)
	wantCode(t, err, fault.NotFound)

	other := second
	other.Project = "other"
	create(t, ctx, s, other) // another project's names are its own

	for i, status := range []memory.Status{memory.Idle, memory.Starting, memory.Stopping, memory.Recovering} {
		update(t, ctx, s, first, func(view memory.AgentView) (memory.Change, error) {
			a := *view.Head().Agent
			a.Status, a.Rev = status, view.Head().Rev+1
			return memory.Change{Agent: &a}, nil
		})
		if _, _, err := s.Create(ctx, second, 0, memory.Change{}); fault.CodeOf(err) != fault.Conflict {
			t.Errorf("%d: an agent that is %v does not hold its name: %v", i, status, err)
		}
	}
	update(t, ctx, s, first, end(memory.Stopped, 9))
	create(t, ctx, s, second)
	update(t, ctx, s, second, end(memory.Failed, 9))
	third := newAgent(3)
	third.Name = first.Name
	create(t, ctx, s, third)

	for n := 10; n < 12; n++ { // agents without a name do not clash
		nameless := newAgent(n)
		nameless.Name = ""
		create(t, ctx, s, nameless)
	}
}

func testCreateNameRace(t *testing.T, ctx context.Context, s memory.Ledger) {
	const callers = 64
	var wg sync.WaitGroup
	errs := make([]error, callers)
	for i := range callers {
		wg.Go(func() {
			a := newAgent(i)
			a.Name = "one"
			_, _, errs[i] = s.Create(ctx, a, 0, memory.Change{})
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if fault.CodeOf(err) != fault.Conflict {
			t.Errorf("loser got %v", err)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d creates won", won, callers)
	}
}

func testCreateQuota(t *testing.T, ctx context.Context, s memory.Ledger) {
	const limit = 5
	var wg sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		wg.Go(func() { _, _, errs[i] = s.Create(ctx, newAgent(i), limit, memory.Change{}) })
	}
	wg.Wait()
	won, first := 0, -1
	for i, err := range errs {
		if err == nil {
			won, first = won+1, i
		} else {
			wantCode(t, err, fault.Quota)
		}
	}
	if won != limit {
		t.Fatalf("%d agents live, limit %d", won, limit)
	}
	other := newAgent(100)
	other.Project = "other"
	if _, _, err := s.Create(ctx, other, limit, memory.Change{}); err != nil {
		t.Errorf("another project's agents count: %v", err)
	}
	update(t, ctx, s, newAgent(first), end(memory.Stopped, 9))
	if _, _, err := s.Create(ctx, newAgent(101), limit, memory.Change{}); err != nil {
		t.Errorf("an ended agent still counts: %v", err)
	}
	if _, _, err := s.Create(ctx, newAgent(102), 0, memory.Change{}); err != nil {
		t.Errorf("limit 0 is a limit: %v", err)
	}
}

func testCreateJoinKey(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := newAgent(1)
	a.JoinKey, a.JoinHash = "again", "h1"
	create(t, ctx, s, a)
	b := newAgent(2)
	b.JoinKey, b.JoinHash = a.JoinKey, "h2"
	check := func(when string, want memory.Agent) {
		t.Helper()
		// The name is taken and the limit reached: the key goes before both.
		b.Name = a.Name
		stored, created, err := s.Create(ctx, b, 1, memory.Change{Append: []memory.Message{{Seq: 1, Rev: 2, Role: memory.User, Content: "x"}}})
		if err != nil || created {
			t.Fatalf("%s: created %v, err %v", when, created, err)
		}
		wantSame(t, when, stored, want)
	}
	check("while live", a)
	update(t, ctx, s, a, end(memory.Stopped, 9))
	check("when stopped", *head(t, ctx, s, a).Agent)
	if list := ledger(t, ctx, s, a); len(list) != 0 {
		t.Errorf("a repeated join wrote %v", contents(list))
	}
	_, err := s.Head(ctx, project, b.ID)
	wantCode(t, err, fault.NotFound)

	other := newAgent(3)
	other.Project, other.JoinKey = "other", a.JoinKey
	create(t, ctx, s, other)
	create(t, ctx, s, newAgent(4)) // agents without a key do not clash
	create(t, ctx, s, newAgent(5))
}

func testCreateIDTaken(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	b := a
	b.Name = "another"
	_, _, err := s.Create(ctx, b, 0, memory.Change{})
	wantCode(t, err, fault.Conflict)
	wantSame(t, "head", *head(t, ctx, s, a).Agent, a)
}

func testCreateFailsWhole(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := newAgent(1)
	m := memory.Message{Seq: 1, Rev: 2, Role: memory.User, Content: "x"}
	if _, _, err := s.Create(ctx, a, 0, memory.Change{Append: []memory.Message{m, m}}); err == nil {
		t.Fatal("two messages with one seq were stored")
	}
	_, err := s.Head(ctx, project, a.ID)
	wantCode(t, err, fault.NotFound)
	create(t, ctx, s, a) // neither id nor name stayed behind
	if _, _, err := s.Create(ctx, newAgent(2), 0, memory.Change{Agent: &a}); err == nil {
		t.Fatal("a new agent's change held an agent")
	}
}

func testUpdateAgent(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	update(t, ctx, s, a, says("one"))
	changed := a
	changed.Settings.LLM.APIKey, changed.Settings.Channel = "sk-2", "hall"
	changed.Properties, changed.Rev, changed.Message = raw(`{"n":1}`), 3, "why"
	update(t, ctx, s, a, func(view memory.AgentView) (memory.Change, error) {
		wantSame(t, "agent in the decision", *view.Head().Agent, a)
		return memory.Change{Agent: &changed}, nil
	})
	h := head(t, ctx, s, a)
	wantSame(t, "agent", *h.Agent, changed)
	if h.Rev != 3 || h.NextSeq != 2 || h.Last.Content != "one" {
		t.Errorf("head %+v", h)
	}
	for _, edit := range []func(*memory.Agent){func(a *memory.Agent) { a.ID = "x" }, func(a *memory.Agent) { a.Project = "x" }} {
		err := s.Update(ctx, project, a.ID, func(memory.AgentView) (memory.Change, error) {
			b := changed
			edit(&b)
			return memory.Change{Agent: &b}, nil
		})
		wantCode(t, err, fault.Internal)
	}
	update(t, ctx, s, a, end(memory.Stopped, 77))
	h = head(t, ctx, s, a)
	if h.Agent.Status != memory.Stopped || h.Agent.StopMS != 77 || h.Agent.Message != memory.EndOK {
		t.Errorf("ended agent %+v", h.Agent)
	}
	update(t, ctx, s, a, says("the store itself does not refuse what comes late"))
}

func testUnknownAgents(t *testing.T, ctx context.Context, s memory.Ledger) {
	check := func(project, id string) {
		t.Helper()
		ran := false
		err := s.Update(ctx, project, id, func(memory.AgentView) (memory.Change, error) { ran = true; return memory.Change{}, nil })
		wantCode(t, err, fault.NotFound)
		if ran {
			t.Error("the decision ran")
		}
		_, err = s.Head(ctx, project, id)
		wantCode(t, err, fault.NotFound)
		_, _, err = s.Recent(ctx, project, id, 32, true)
		wantCode(t, err, fault.NotFound)
		_, err = s.Messages(ctx, project, id, memory.MessageQuery{Limit: 1})
		wantCode(t, err, fault.NotFound)
	}
	check(project, "nobody")
	a := create(t, ctx, s, newAgent(1))
	check("other", a.ID)
	check("", a.ID)
	check(project, a.ID+"\x00")
	check(project, "")
}

func testTenants(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := newAgent(1)
	b := a
	b.Project = "other" // the same id and name in another project is another agent
	create(t, ctx, s, a)
	create(t, ctx, s, b)
	update(t, ctx, s, a, says("of acme"))
	update(t, ctx, s, b, says("of other", "more"))
	wantSame(t, "acme's", contents(ledger(t, ctx, s, a)), []string{"of acme"})
	wantSame(t, "other's", contents(ledger(t, ctx, s, b)), []string{"of other", "more"})
	for _, p := range []memory.Agent{a, b} {
		page, err := s.Agents(ctx, memory.AgentQuery{Project: p.Project, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if page.Total != 1 || len(page.Heads) != 1 || page.Heads[0].Agent.Project != p.Project {
			t.Errorf("%s lists %+v", p.Project, page)
		}
	}
}

func ids(page memory.AgentPage) []string {
	out := []string{}
	for _, h := range page.Heads {
		out = append(out, h.Agent.Name)
	}
	return out
}

func testListFilters(t *testing.T, ctx context.Context, s memory.Ledger) {
	for n := 1; n <= 6; n++ {
		a := newAgent(n)
		a.StartMS = int64(n * 100)
		if n%2 == 0 {
			a.Settings.Channel = "even"
		}
		create(t, ctx, s, a)
	}
	update(t, ctx, s, newAgent(5), end(memory.Stopped, 9))
	update(t, ctx, s, newAgent(6), end(memory.Failed, 9))
	for _, tt := range []struct {
		name string
		q    memory.AgentQuery
		want []string
	}{
		{"all", memory.AgentQuery{}, []string{"name-6", "name-5", "name-4", "name-3", "name-2", "name-1"}},
		{"channel", memory.AgentQuery{Channel: "even"}, []string{"name-6", "name-4", "name-2"}},
		{"name", memory.AgentQuery{Name: "name-3"}, []string{"name-3"}},
		{"from", memory.AgentQuery{FromMS: 500}, []string{"name-6", "name-5"}},
		{"to", memory.AgentQuery{ToMS: 200}, []string{"name-2", "name-1"}},
		{"from and to, both inclusive", memory.AgentQuery{FromMS: 200, ToMS: 300}, []string{"name-3", "name-2"}},
		{"running", memory.AgentQuery{Statuses: []memory.Status{memory.Running}}, []string{"name-4", "name-3", "name-2", "name-1"}},
		{"ended", memory.AgentQuery{Statuses: []memory.Status{memory.Stopped, memory.Failed}}, []string{"name-6", "name-5"}},
		{"idle", memory.AgentQuery{Statuses: []memory.Status{memory.Idle}}, []string{}},
		{"together", memory.AgentQuery{Channel: "even", FromMS: 300, Statuses: []memory.Status{memory.Running}}, []string{"name-4"}},
	} {
		q := tt.q
		q.Project, q.Limit = project, 100
		page, err := s.Agents(ctx, q)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		wantSame(t, tt.name, ids(page), tt.want)
		if page.Total != len(tt.want) || page.Next != (memory.AgentPlace{}) {
			t.Errorf("%s: total %d, next %v", tt.name, page.Total, page.Next)
		}
	}
	page, err := s.Agents(ctx, memory.AgentQuery{Project: "empty", Limit: 1})
	if err != nil || page.Total != 0 || len(page.Heads) != 0 || page.Next != (memory.AgentPlace{}) {
		t.Errorf("empty project: %+v, %v", page, err)
	}
}

func testListPages(t *testing.T, ctx context.Context, s memory.Ledger) {
	for n := range 10 {
		create(t, ctx, s, newAgent(n))
	}
	for _, limit := range []int{1, 3, 5, 9, 10, 11} {
		var got []string
		q := memory.AgentQuery{Project: project, Limit: limit}
		for pages := 0; ; pages++ {
			page, err := s.Agents(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			if page.Total != 10 {
				t.Errorf("limit %d: total %d on page %d", limit, page.Total, pages)
			}
			got = append(got, ids(page)...)
			if page.Next == (memory.AgentPlace{}) {
				break
			}
			if len(page.Heads) != limit || pages > 10 {
				t.Fatalf("limit %d: page of %d before the last", limit, len(page.Heads))
			}
			q.After = page.Next
		}
		want := []string{}
		for n := 9; n >= 0; n-- {
			want = append(want, fmt.Sprintf("name-%d", n))
		}
		wantSame(t, fmt.Sprintf("pages of %d", limit), got, want)
	}
}

func testListTags(t *testing.T, ctx context.Context, s memory.Ledger) {
	for n := 1; n <= 6; n++ {
		a := newAgent(n)
		a.StartMS = int64(n/2) * 100 // two of each start
		a.Settings.Scope.UserID = []string{"anna", "ben", "+49 170"}[n%3]
		a.Settings.Labels = map[string]string{"line": "sales", "n": fmt.Sprint(n), "": "x", "long": strings.Repeat("x", memory.MaxTag)}
		create(t, ctx, s, a)
	}
	update(t, ctx, s, newAgent(6), end(memory.Stopped, 9))
	check := func(name string, q memory.AgentQuery, want ...string) {
		t.Helper()
		q.Project, q.Limit = project, 2
		got := []string{}
		for {
			page, err := s.Agents(ctx, q)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if page.Total != len(want) && !q.NoTotal {
				t.Errorf("%s: total %d", name, page.Total)
			}
			got = append(got, ids(page)...)
			if page.Next == (memory.AgentPlace{}) {
				break
			}
			q.After = page.Next
		}
		wantSame(t, name, got, append([]string{}, want...))
	}
	sales := map[string]string{"line": "sales"}
	check("label", memory.AgentQuery{Labels: sales}, "name-6", "name-5", "name-4", "name-3", "name-2", "name-1")
	check("oldest first", memory.AgentQuery{Labels: sales, OldestFirst: true, NoTotal: true}, "name-1", "name-2", "name-3", "name-4", "name-5", "name-6")
	check("all, oldest first", memory.AgentQuery{OldestFirst: true}, "name-1", "name-2", "name-3", "name-4", "name-5", "name-6")
	check("labels", memory.AgentQuery{Labels: map[string]string{"line": "sales", "n": "3"}}, "name-3")
	check("another value", memory.AgentQuery{Labels: map[string]string{"line": "sales", "n": "9"}})
	check("a value of another label", memory.AgentQuery{Labels: map[string]string{"line": "3"}})
	check("user", memory.AgentQuery{Users: []string{"anna"}}, "name-6", "name-3")
	check("users", memory.AgentQuery{Users: []string{"anna", "+49 170", "carl"}}, "name-6", "name-5", "name-3", "name-2")
	check("user and label", memory.AgentQuery{Users: []string{"anna"}, Labels: map[string]string{"n": "3"}}, "name-3")
	check("status", memory.AgentQuery{Labels: sales, Statuses: []memory.Status{memory.Stopped, memory.Failed}}, "name-6")
	check("name and channel", memory.AgentQuery{Labels: sales, Name: "name-2", Channel: "lobby"}, "name-2")
	check("time", memory.AgentQuery{Labels: sales, FromMS: 100, ToMS: 100}, "name-3", "name-2")

	update(t, ctx, s, newAgent(2), func(view memory.AgentView) (memory.Change, error) {
		a := *view.Head().Agent
		a.Settings.Labels, a.Rev = map[string]string{"line": "sales", "new": "1"}, view.Head().Rev+1
		return memory.Change{Agent: &a}, nil
	})
	check("new label", memory.AgentQuery{Labels: map[string]string{"new": "1"}}, "name-2")
	check("old label", memory.AgentQuery{Labels: map[string]string{"n": "2"}})
	check("label that stays", memory.AgentQuery{Labels: sales, Users: []string{"+49 170"}}, "name-5", "name-2")
	if err := s.Erase(ctx, project, newAgent(2).ID); err != nil {
		t.Fatal(err)
	}
	check("erased", memory.AgentQuery{Labels: map[string]string{"new": "1"}})
}

func testListWhileAgentsComeAndGo(t *testing.T, ctx context.Context, s memory.Ledger) {
	for n := range 10 {
		create(t, ctx, s, newAgent(n))
	}
	q := memory.AgentQuery{Project: project, Limit: 4}
	page, err := s.Agents(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "first page", ids(page), []string{"name-9", "name-8", "name-7", "name-6"})
	if page.Next.StartMS != newAgent(6).StartMS {
		t.Fatalf("next page begins after %v", page.Next)
	}
	create(t, ctx, s, newAgent(10)) // newer: on no later page
	for _, n := range []int{8, 5, 3} {
		update(t, ctx, s, newAgent(n), end(memory.Stopped, 1)) // 5 would be the first of the next page
	}
	if n, err := s.Sweep(ctx, 100, 10); err != nil || n != 3 {
		t.Fatalf("swept %d, %v", n, err)
	}
	q.After = page.Next
	page, err = s.Agents(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "second page", ids(page), []string{"name-4", "name-2", "name-1", "name-0"})
	if page.Next != (memory.AgentPlace{}) || page.Total != 8 {
		t.Errorf("next %v, total %d", page.Next, page.Total)
	}
}

func testLive(t *testing.T, ctx context.Context, s memory.Ledger) {
	want := map[string]memory.Head{}
	for n := range 8 {
		a := newAgent(n)
		if n%2 == 1 {
			a.Project = "other"
		}
		create(t, ctx, s, a)
		for range n {
			update(t, ctx, s, a, says("hello"))
		}
		switch n {
		case 6:
			update(t, ctx, s, a, end(memory.Stopped, 9))
		case 7:
			update(t, ctx, s, a, end(memory.Failed, 9))
		case 5:
			update(t, ctx, s, a, end(memory.Stopping, 0))
			fallthrough
		default:
			h := head(t, ctx, s, a)
			h.Last = memory.Message{}
			want[a.ID] = h
		}
	}
	got := map[string]memory.Head{}
	if err := s.Live(ctx, func(h memory.Head) error { got[h.Agent.ID] = h; return nil }); err != nil {
		t.Fatal(err)
	}
	wantSame(t, "live agents", got, want)
	if err := s.Live(ctx, func(memory.Head) error { return errRefused }); !errors.Is(err, errRefused) {
		t.Errorf("the callback's error came back as %v", err)
	}
}

func testCount(t *testing.T, ctx context.Context, s memory.Ledger) {
	want := [memory.Statuses]int{}
	check := func() {
		t.Helper()
		got, err := s.Count(ctx)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, "counts", got, want)
	}
	check()
	for n := range 5 {
		create(t, ctx, s, newAgent(n))
	}
	want[memory.Running] = 5
	check()
	update(t, ctx, s, newAgent(0), end(memory.Stopped, 9))
	update(t, ctx, s, newAgent(1), end(memory.Failed, 9))
	update(t, ctx, s, newAgent(2), end(memory.Stopping, 0))
	want[memory.Running], want[memory.Stopped], want[memory.Failed], want[memory.Stopping] = 2, 1, 1, 1
	check()
	_ = s.Update(ctx, project, newAgent(3).ID, func(view memory.AgentView) (memory.Change, error) {
		c, _ := end(memory.Stopped, 9)(view)
		c.Append = []memory.Message{{Seq: 1, Rev: 2, Role: memory.User}, {Seq: 1, Rev: 2, Role: memory.User}}
		return c, nil // fails
	})
	check()
	if _, err := s.Sweep(ctx, 100, 10); err != nil {
		t.Fatal(err)
	}
	want[memory.Stopped], want[memory.Failed] = 0, 0
	check()
}
