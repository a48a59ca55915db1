package export_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/webhook"
)

// ledgers is a store without an outbox, whole one with all its parts.
type (
	ledgers interface {
		memory.Ledger
		kv.Store
		record.Store
	}
	whole interface {
		ledgers
		webhook.Store
		Usage(ctx context.Context) ([]memory.Usage, error)
	}
)

// fill puts something of every kind into a store: two projects, live and ended agents, messages of
// all states with odd bytes, items, conversations, records, and an outbox with what was delivered,
// is dead, waits, is claimed, and is for an endpoint that was deleted.
func fill(t *testing.T, s whole) {
	t.Helper()
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range []webhook.Endpoint{
		{ID: "e2", Project: "p", URL: "https://two.example/x", Retry: []time.Duration{time.Second}, CreatedMS: 5, Rev: 2, Headers: []webhook.Header{{Name: "X-A", Value: "hidden-header"}}},
		{ID: "e1", Project: "p", URL: "https://one.example/x", Events: []string{"*"}, Secrets: []webhook.SigningSecret{{ID: "s1", Value: "whsec_hidden", NotAfter: time.Unix(2e9, 5e6)}}},
		{ID: "gone", Project: "p", URL: "https://gone.example/x"},
		{ID: "other", Project: "q", URL: "https://q.example/x", Disabled: true, DisabledWhy: "why", DisabledMS: 7},
	} {
		check(webhook.PutEndpoint(ctx, s, e))
	}
	fillMemories(t, s, true)
	results := []webhook.Result{
		{State: webhook.Delivered, AtMS: 3000, Try: webhook.Attempt{N: 1, StartedMS: 2000, DurationMS: 5, Status: 200, Response: []byte("ok\xfe"), Detail: webhook.Detail{ConnectMS: 1, Headers: []webhook.HeaderLine{{Name: "A", Value: "b"}}, Signed: []webhook.HeaderLine{{Name: "C", Value: "d"}}}}},
		{State: webhook.Pending, DueMS: 9000, AtMS: 3000, Try: webhook.Attempt{N: 1, StartedMS: 2000, DurationMS: 5, Status: 500, ErrorClass: "status", Error: "no"}},
		{State: webhook.Dead, Reason: "gave up", AtMS: 3000, Try: webhook.Attempt{N: 1, StartedMS: 2000, DurationMS: 5, ErrorClass: "dial", Error: "<refused>"}},
	}
	claimed := must(webhook.ClaimFrom(ctx, s, webhook.Claim{NowMS: 2000, Limit: 4, PerEndpoint: 10, Lease: time.Hour}))
	if len(claimed) != 4 {
		t.Fatalf("%d deliveries were claimed, want 4", len(claimed))
	}
	for i, r := range results {
		check(s.Finish(ctx, claimed[i], r)) // the fourth stays claimed
	}
	check(s.DeleteEndpoint(ctx, "p", "gone"))
	_, err := s.Replay(ctx, "p", claimed[0].ID, 3500, "")
	if err != nil && claimed[0].Endpoint.ID != "gone" {
		t.Fatal(err)
	}
}

// fillMemories puts the part of fill into a store that needs no outbox, with events if there is
// one.
func fillMemories(t *testing.T, s ledgers, outbox bool) {
	t.Helper()
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	events := func(e memory.Event) []memory.Event {
		if !outbox {
			return nil
		}
		return []memory.Event{e}
	}
	half := 0.5
	for i, a := range []memory.Agent{
		{ID: "b", Project: "p", Name: "first", Status: memory.Running, StartMS: 100, Rev: 1, JoinKey: "jk", JoinHash: "jh", Properties: json.RawMessage("{ \"tts\": {\"key\":\"hidden-tts\"},\"x\":\"<&>\" }")},
		{ID: "a", Project: "p", Name: "second", Status: memory.Running, StartMS: 200, Rev: 1},
		{ID: "a", Project: "q", Name: "first", Status: memory.Running, StartMS: 300, Rev: 1},
		{ID: "keeper", Project: memories.OwnProject("p"), Status: memory.Running, StartMS: 50, Rev: 1},
	} {
		a.Settings = memory.Settings{
			Channel: "c", Labels: map[string]string{"l": "<v>"}, IdleTimeoutS: 30, Call: memory.Call{Keys: []string{"key:" + a.ID + a.Project}, Shared: []string{"room:1"}},
			LLM: memory.LLMSettings{
				URL: "https://llm.example/v1", APIKey: "hidden-key", Headers: map[string]secret.String{"X": "hidden-llm-header"}, SystemMessages: []json.RawMessage{json.RawMessage(`{"role":"system","content":"<b>"}`)},
				Params: json.RawMessage(`{"t":1}`), Upstreams: []memory.Upstream{{Name: "u", URL: "https://u.example", APIKey: "hidden-upstream"}},
			},
			Memory: memory.Memory{Policy: &window.Policy{}, Summary: "what was said", SummaryMS: 9, SummaryUpTo: 1, BaseSeq: 1},
		}
		msgs := []memory.Message{
			{Seq: 1, Rev: 2, ID: "m1", Role: memory.User, Content: "hello\u2028 <b> \"q\" \\ é 😀", TurnID: 0, Timestamp: 1, Source: memory.SourceASR, AnswerSeq: 2, Metadata: map[string]json.RawMessage{"k": json.RawMessage("{ \"b\": 1.50, \"a\":\"<\" }")}},
			{Seq: 3, Rev: 3, Role: memory.Assistant, Content: "hi", Generated: "hi there", Sent: "hi th", TurnID: 1, Timestamp: 2, Source: memory.SourceLLM, Interrupted: true, InterruptMS: 3, Method: memory.EchoDiff, Marks: memory.Marks{Born: 2, Cut: 3, Heard: 3},
				ToolCalls: json.RawMessage("[ {\"id\":\"t\"} ]"), Usage: json.RawMessage(`{"n": 1}`), Timings: &memory.Timings{StartMS: 1, TotalMS: 4}, AnswerSeq: 4},
			{Seq: 5, Rev: 3, ID: "m5", Role: memory.System, Content: "s", TurnID: 1, Timestamp: 3, State: memory.Dropped, Chars: 1, AnswerSeq: 6, Details: &memory.Details{Filed: memory.Filed{Importance: &half, Category: "c", Raw: "{ }", Scope: memory.Scope{UserID: "u", TaskID: "t"}}}},
			{Seq: 7, Rev: 3, Role: memory.User, Content: "item", TurnID: 4, Timestamp: 3, Details: &memory.Details{Filed: memory.Filed{Item: &memory.Item{ID: strings.Repeat("ab", 16), AgentID: "x", Extra: json.RawMessage("{ \"e\":1 }")}}}, AnswerSeq: 8},
		}
		body := []byte(`{"text":"<` + a.ID + a.Project + `>"}`)
		_, _, err := s.Create(ctx, a, 0, memory.Change{Append: msgs, Events: events(memory.Event{ID: "ev" + a.ID + a.Project, Type: 102, CreatedMS: int64(1000 + i), Body: body})})
		check(err)
	}
	check(kv.Put(ctx, s, kv.Space{Project: "p", Agent: "a"}, kv.Entry{Key: "k/é", Value: []byte("{ \"v\": 1 }"), UpdatedMS: 5, ExpiresMS: 1 << 50}, kv.Limit{Keys: 9, Bytes: 999}, 5))
	check(kv.Put(ctx, s, kv.Space{Project: "p", Agent: "a"}, kv.Entry{Key: "Z", Value: []byte("2"), UpdatedMS: 5, ExpiresMS: 1 << 50}, kv.Limit{Keys: 9, Bytes: 999}, 5))
	// Something other than the last message changes last, and an agent ends.
	check(s.Update(ctx, "p", "b", func(tx memory.AgentView) (memory.Change, error) {
		m, err := tx.Seq(1)
		if err != nil {
			return memory.Change{}, err
		}
		m.Rev, m.State, m.Marks.State = 6, memory.Superseded, 6
		a := *tx.Head().Agent
		a.Status, a.StopMS, a.Message, a.Rev = memory.Stopped, 400, memory.EndOK, 6
		return memory.Change{Agent: &a, Replace: []memory.Message{m}, Events: events(memory.Event{ID: "end", Type: 103, CreatedMS: 1500, Body: []byte("\xff\x00 no text")})}, nil
	}))
	check(kv.Put(ctx, s, kv.Space{Project: "p"}, kv.Entry{Key: "z", Value: []byte(`{"messages":[ 1 ]}`), ExpiresMS: kv.Never}, kv.Limit{}, 0))
	check(kv.Put(ctx, s, kv.Space{Project: "p"}, kv.Entry{Key: "é", Value: []byte(`{"messages":[]}`), ExpiresMS: kv.Never}, kv.Limit{}, 0))
	change := func(at record.Space, changes ...record.Change) {
		t.Helper()
		_, err := s.ChangeRecords(ctx, at, changes, record.Limit{}, nil, 77)
		check(err)
	}
	facts := record.Space{Project: "p", Name: "fact", User: "u/é"}
	change(facts, record.Change{ID: "f2", Body: []byte(`{"text":"<likes> tea"}`)}, record.Change{ID: "f1", Body: []byte("\x01b64:\xff")}, record.Change{ID: "gone", Body: []byte("x")})
	change(facts, record.Change{ID: "f1", Body: []byte{}, If: record.Any})
	change(facts, record.Change{ID: "gone", If: record.Any})
	change(record.Space{Project: "q", Name: "vector/a"}, record.Change{ID: "d", Body: []byte("{}")})
	check(kv.Put(ctx, s, kv.Space{Project: "q"}, kv.Entry{Key: "a", Value: []byte(`{}`), ExpiresMS: kv.Never}, kv.Limit{}, 0))
}

// must gives a value that there is no reason not to have.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// dump gives the whole export of a source.
func dump(t *testing.T, from export.Source, s export.Scope, secrets bool) string {
	t.Helper()
	var b strings.Builder
	if _, err := export.Write(t.Context(), &b, from, s, secrets, nil); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// findings gives what Verify says.
func findings(t *testing.T, from export.Source) (out []string) {
	t.Helper()
	_, err := export.Verify(t.Context(), from, export.Scope{}, func(f export.Finding) error {
		out = append(out, strings.TrimSpace(f.Project+" "+f.Agent+" "+f.What))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
