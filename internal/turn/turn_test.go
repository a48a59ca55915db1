package turn_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/prompt"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/store/storetest"
)

// bench is a Runner with a memory and one agent in front of it, and a fake LLM behind it.
type bench struct {
	mem   *agents.Service
	run   *turn.Runner
	llm   *fake.LLM
	agent memory.Agent
}

func newBench(t *testing.T, script fake.Script, edit func(*memory.LLMSettings, *turn.Config)) *bench {
	t.Helper()
	b := &bench{llm: fake.New(fake.Options{Script: script})}
	back := httptest.NewServer(b.llm)
	t.Cleanup(back.Close)
	b.mem = agents.NewService(agents.Config{Ledger: storetest.New(t), Now: time.Now, NewID: func() string { return "a1" }})
	transport := llmadapter.NewTransport(new(net.Dialer).DialContext, nil)
	t.Cleanup(transport.CloseIdleConnections)
	cfg := turn.Config{
		Turns: b.mem.Turns, Window: memctx.New(b.mem).ForTurn, Client: &llmadapter.Client{Transport: transport},
		Defaults: memory.LLMSettings{URL: back.URL + "/v1", Model: "m"}, Log: zerolog.New(zerolog.NewTestWriter(t)),
	}
	settings := memory.Settings{IdleTimeoutS: -1}
	if edit != nil {
		edit(&settings.LLM, &cfg)
	}
	b.run = turn.New(cfg)
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		if err := b.run.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	var err error
	if b.agent, err = b.mem.Agents.Join(t.Context(), agents.JoinRequest{Project: "p", Name: "n", Settings: settings}); err != nil {
		t.Fatal(err)
	}
	return b
}

// serve serves a call with one message of the user.
func (b *bench) serve(t *testing.T, ctx context.Context, w http.ResponseWriter, stream bool) error {
	t.Helper()
	body := `{"messages":[{"role":"user","content":"When does it leave?"}]`
	if stream {
		body += `,"stream":true`
	}
	in, err := llmadapter.ParseRequest([]byte(body + "}"))
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", http.NoBody)
	return b.run.Serve(w, req, &turn.Call{Project: "p", AgentID: b.agent.ID, Call: prompt.Call{Request: in}})
}

// answer returns the newest message of the ledger, which must be an answer.
func (b *bench) answer(t *testing.T) memory.Message {
	t.Helper()
	_, all, err := b.mem.Messages.History(t.Context(), "p", b.agent.ID, 10)
	if err != nil {
		t.Fatal(err)
	}
	last := all[len(all)-1]
	if last.Role != memory.Assistant {
		t.Fatalf("the newest message is %+v", last)
	}
	return last
}

// newest returns the newest message of the ledger, whether history shows it or not.
func (b *bench) newest(t *testing.T) memory.Message {
	t.Helper()
	_, all, err := b.mem.Messages.Recent(t.Context(), "p", b.agent.ID, 10)
	if err != nil {
		t.Fatal(err)
	}
	return all[len(all)-1]
}

// TestServe runs one turn in each of its ways and compares what the client gets with what the
// ledger keeps.
func TestServe(t *testing.T) {
	t.Parallel()
	sorry := func(l *memory.LLMSettings, _ *turn.Config) { l.FailureMessage = "Sorry." }
	for name, tt := range map[string]struct {
		script fake.Script
		edit   func(*memory.LLMSettings, *turn.Config)
		stream bool
		status int
		sent   string // a part of the body
		stored string
	}{
		"stream": {fake.Script{Answer: "At nine."}, nil, true, 200, "data: [DONE]", "At nine."},
		"whole":  {fake.Script{Answer: "At nine."}, nil, false, 200, `"At nine."`, "At nine."},
		"failure message, stream": {
			fake.Script{Status: 500}, sorry, true, 200, `"delta":{"role":"assistant","content":"Sorry."}`, "Sorry.",
		},
		"failure message, whole": {fake.Script{Status: 500}, sorry, false, 200, `"message":{"role":"assistant","content":"Sorry."}`, "Sorry."},
		"upstream error":         {fake.Script{Status: 429, Body: `{"error":{"message":"slow down"}}`}, nil, true, 429, "slow down", ""},
		"second upstream": {fake.Script{Answer: "At nine."}, func(_ *memory.LLMSettings, c *turn.Config) {
			second := c.Defaults.URL
			c.Defaults.URL = "http://127.0.0.1:1/v1" // refuses connections
			c.Fallbacks = []turn.Fallback{{Upstream: memory.Upstream{Name: "second", URL: second}}}
		}, true, 200, "data: [DONE]", "At nine."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, tt.script, tt.edit)
			w := httptest.NewRecorder()
			if err := b.serve(t, t.Context(), w, tt.stream); err != nil {
				t.Fatal(err)
			}
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.sent) {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			if w.Header().Get(turn.AgentHeader) != b.agent.ID || w.Header().Get(turn.TurnHeader) != "0" {
				t.Errorf("headers %v", w.Header())
			}
			_, all, err := b.mem.Messages.History(t.Context(), "p", b.agent.ID, 10)
			if err != nil {
				t.Fatal(err)
			}
			if got := all[len(all)-1]; tt.stored != "" && got.Content != tt.stored {
				t.Errorf("the ledger has %q, want %q", got.Content, tt.stored)
			}
		})
	}
}

// TestServeBroken has the upstream reset the connection within its answer: the client must see
// that, and the ledger keeps what was sent.
func TestServeBroken(t *testing.T) {
	t.Parallel()
	b := newBench(t, fake.Script{Chunks: []string{"At ", "nine."}, CutAfter: 2}, nil)
	w := httptest.NewRecorder()
	if err := b.serve(t, t.Context(), w, true); !strings.Contains(err.Error(), turn.ErrAborted.Error()) {
		t.Errorf("%v", err)
	}
	if body := w.Body.String(); !strings.Contains(body, `"upstream_error"`) || strings.Contains(body, "[DONE]") {
		t.Errorf("the client got %s", body)
	}
	if m := b.answer(t); m.Failure == nil || !strings.HasPrefix("At nine.", strings.TrimSpace(m.Content)) {
		t.Errorf("the ledger has %+v", m)
	}
}

// leaver is a client that leaves with the first words.
type leaver struct {
	*httptest.ResponseRecorder
	leave context.CancelFunc
}

// Write implements http.ResponseWriter.
func (l *leaver) Write(b []byte) (int, error) {
	n, err := l.ResponseRecorder.Write(b)
	if strings.Contains(string(b), "At ") {
		l.leave()
	}
	return n, err
}

// TestServeLeft has the client leave within the answer: the upstream call is cancelled, and the
// ledger keeps what was sent.
func TestServeLeft(t *testing.T) {
	t.Parallel()
	b := newBench(t, fake.Script{Chunks: []string{"At ", "nine."}, HangAfter: 1}, nil)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	w := &leaver{httptest.NewRecorder(), leave}
	if err := b.serve(t, ctx, w, true); fault.CodeOf(err) != fault.Canceled {
		t.Errorf("%v", err)
	}
	if _, err := b.llm.WaitCancels(t.Context(), 1); err != nil {
		t.Errorf("the upstream was not cancelled: %v", err)
	}
	if m := b.answer(t); strings.TrimSpace(m.Content) != "At" {
		t.Errorf("the ledger has %+v", m)
	}
}

// TestThink runs a turn without a client.
func TestThink(t *testing.T) {
	t.Parallel()
	b := newBench(t, fake.Script{Answer: "At nine."}, nil)
	m := memory.Message{Role: memory.User, Source: memory.SourceCommand, Content: "Say when it leaves."}
	if err := b.run.Think(t.Context(), "p", b.agent.ID, m); err != nil {
		t.Fatal(err)
	}
	if err := b.run.Close(t.Context()); err != nil { // waits for the answer
		t.Fatal(err)
	}
	if got := b.answer(t).Content; got != "At nine." {
		t.Errorf("the ledger has %q", got)
	}
	if err := b.run.Think(t.Context(), "p", b.agent.ID, m); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("after Close: %v", err)
	}
}

// TestAsk asks a question outside the turns: nothing of it is stored.
func TestAsk(t *testing.T) {
	t.Parallel()
	b := newBench(t, fake.Script{Answer: "A short summary."}, nil)
	got, err := b.run.Ask(t.Context(), turn.Question{Agent: b.agent, System: "Summarize.", User: "user: hi", Span: "summarize"})
	if err != nil {
		t.Fatal(err)
	}
	if want := (turn.Reply{Text: "A short summary.", Finish: "stop", Upstream: turn.PrimaryUpstream}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	_, all, err := b.mem.Messages.History(t.Context(), "p", b.agent.ID, 10)
	if err != nil || len(all) != 0 {
		t.Errorf("the ledger has %+v %v", all, err)
	}
	b = newBench(t, fake.Script{Chunks: []string{"A ", "short"}, CutAfter: 2}, nil)
	if _, err := b.run.Ask(t.Context(), turn.Question{Agent: b.agent, System: "s", User: "u"}); turn.Outcome(err) != "upstream_truncated" {
		t.Errorf("broken off: %v", err)
	}
}

// TestHeldBack checks that a stream whose answer does not begin is passed on all the same once more
// of it has come than is held back.
func TestHeldBack(t *testing.T) {
	t.Parallel()
	opening := `data: {"choices":[{"delta":{"role":"assistant","content":""}}],"filter":"` + strings.Repeat("x", 1000) + "\"}\n\n"
	for n, passed := range map[int]bool{10: false, 100: true} {
		b := newBench(t, fake.Script{RawPieces: []string{strings.Repeat(opening, n)}}, func(l *memory.LLMSettings, _ *turn.Config) { l.FailureMessage = "Sorry." })
		w := httptest.NewRecorder()
		if err := b.serve(t, t.Context(), w, true); err != nil {
			t.Error(err)
		}
		if got := w.Body.String(); strings.HasPrefix(got, opening) != passed || !strings.Contains(got, "Sorry.") {
			t.Errorf("of %d chunks the client has %d bytes, which end in %q", n, len(got), got[max(0, len(got)-200):])
		}
	}
}
