package summary_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/summary"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
	windows "github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/store/storetest"
)

// world is a memory with a summariser, on a store in memory; it lives in a bubble of synctest.
type world struct {
	*memctx.Service
	mem    *agents.Service
	t      *testing.T
	store  memory.Ledger
	worker *summary.Worker
	jobs   *job.Runner
	reg    *prometheus.Registry
	stop   func()

	mu    sync.Mutex
	asked []question
}

type question struct {
	agent, model string
	summary.Prompt
	at time.Time
}

type asking func(ctx context.Context, n int, q question) (summary.Answer, error)

// made counts the agents of all worlds.
var made atomic.Int64

// begin runs a world on a store; nil is an empty one. places 0 is the default.
func begin(t *testing.T, store memory.Ledger, places int, ask asking) *world {
	t.Helper()
	if store == nil {
		store = storetest.New(t)
	}
	w := &world{t: t, store: store, reg: prometheus.NewRegistry()}
	w.jobs = job.New(job.Config{Store: storetest.New(t).Store, Now: time.Now})
	w.worker = summary.New(w.jobs, summary.Config{
		Memory: w, Places: places, Metrics: w.reg,
		Ask: func(ctx context.Context, a memory.Agent, model string, p summary.Prompt) (summary.Answer, error) {
			w.mu.Lock()
			q := question{a.ID, model, p, time.Now()}
			w.asked = append(w.asked, q)
			n := len(w.asked)
			w.mu.Unlock()
			return ask(ctx, n, q)
		},
	})
	w.mem = agents.NewService(agents.Config{
		Ledger: store, Now: time.Now, NewID: func() string { return fmt.Sprintf("agent-%04d", made.Add(1)) }, Summaries: w.worker,
	})
	w.Service = memctx.New(w.mem)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- w.jobs.Run(ctx) }()
	go func() { done <- w.mem.Agents.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.stop)
	return w
}

// window is a policy that summarises at 80 tokens, 320 code points, and keeps two messages.
const window = `{"strategy":"summarize","max_tokens":100,"summarize_at":0.8,"keep_recent":2,"summary_model":"small"}`

func (w *world) join(project, policy string) string {
	w.t.Helper()
	own, err := windows.Decode("policy", []byte(policy))
	if err != nil {
		w.t.Fatal(err)
	}
	a, err := w.mem.Agents.Join(w.t.Context(), agents.JoinRequest{
		Project: project, Properties: []byte("{}"), Settings: memory.Settings{Memory: memory.Memory{Policy: &own}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return a.ID
}

// say appends messages of 40 code points, the caller's and the agent's by turns, and gives their
// texts.
func (w *world) say(project, id string, from, to int) {
	w.t.Helper()
	for i := from; i < to; i++ {
		w.append(project, id, line(i))
	}
}

func line(i int) memory.Message {
	m := memory.Message{Role: memory.User, Source: memory.SourceASR, Content: fmt.Sprintf("%-40s", fmt.Sprintf("fact%d", i))}
	m.Content = strings.ReplaceAll(m.Content, " ", ".")
	if i%2 == 1 {
		m.Role, m.Source, m.Method = memory.Assistant, memory.SourceLLM, memory.AssumedFull
	}
	return m
}

func (w *world) append(project, id string, msgs ...memory.Message) {
	w.t.Helper()
	if _, err := w.mem.Messages.Append(w.t.Context(), project, id, msgs); err != nil {
		w.t.Fatal(err)
	}
}

// holds gives the summary and the first word of each message in memory.
func (w *world) holds(project, id string) (string, []string) {
	w.t.Helper()
	h, msgs, err := w.mem.Messages.Remembered(w.t.Context(), project, id)
	if err != nil {
		w.t.Fatal(err)
	}
	out := []string{}
	for _, m := range msgs {
		out = append(out, strings.Trim(m.Content, "."))
	}
	return h.Agent.Settings.Memory.Summary, out
}

func (w *world) questions() []question {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

// answers gives the model's answer to the n-th call.
func answers(_ context.Context, n int, _ question) (summary.Answer, error) {
	return summary.Answer{Text: fmt.Sprintf("summary %d", n), Finish: "stop"}, nil
}
