package checkpoint_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/store"

	"github.com/google/go-cmp/cmp"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/ossa/checkpoint"
	"github.com/heardlog/heardlog/store/storetest"
)

// world is a memory with its checkpoints.
type world struct {
	t      *testing.T
	store  *store.SQLite
	agents *agents.Service
	memory *memctx.Service
	jobs   *job.Runner
	*checkpoint.Service
}

func newWorld(t *testing.T, store *store.SQLite) *world {
	t.Helper()
	w := &world{t: t, store: store}
	var n atomic.Int64
	w.agents = agents.NewService(agents.Config{
		Ledger: store, Now: time.Now, NewID: func() string { return fmt.Sprint("agent-", time.Now().UnixNano(), "-", n.Add(1)) },
		Changed: func(project, id string, seconds int) { w.Changed(project, id, seconds) },
		Forget:  func(ctx context.Context, project, id string) error { return w.Forget(ctx, project, id) },
	})
	w.memory = memctx.New(w.agents)
	var err error
	w.jobs = job.New(job.Config{Store: store, Now: time.Now, Log: zerolog.New(t.Output()).Level(zerolog.WarnLevel)})
	w.Service, err = checkpoint.New(w.jobs, checkpoint.Config{
		Records: store, Ledger: store, Memory: w.memory, Now: time.Now,
		First: func(context.Context, *memory.Agent) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) join(name string, c memory.Checkpoints) string {
	w.t.Helper()
	r := agents.JoinRequest{Project: "p", Name: name, Properties: []byte("{}"), Settings: memory.Settings{IdleTimeoutS: -1}}
	r.Settings.Memory.Checkpoints = c
	a, err := w.agents.Agents.Join(w.t.Context(), r)
	if err != nil {
		w.t.Fatal(err)
	}
	return a.ID
}

func (w *world) say(id string, msgs ...memory.Message) {
	w.t.Helper()
	if _, err := w.agents.Messages.Append(w.t.Context(), "p", id, msgs); err != nil {
		w.t.Fatal(err)
	}
}

func user(text string) memory.Message {
	return memory.Message{Role: memory.User, Source: memory.SourceASR, Content: text}
}

func llm(text string) memory.Message {
	return memory.Message{Role: memory.Assistant, Source: memory.SourceLLM, Content: text, Method: memory.AssumedFull}
}

// context returns what an LLM gets, as JSON.
func (w *world) context(id string) string {
	w.t.Helper()
	c, err := w.memory.Context(w.t.Context(), "p", id, memctx.Request{})
	if err != nil {
		w.t.Fatal(err)
	}
	type shown struct {
		Role  memory.Role
		Text  string
		Calls json.RawMessage
		ID    string
	}
	var out []shown
	for _, m := range c.Messages {
		out = append(out, shown{m.Role, m.Text, m.ToolCalls, m.ToolCallID})
	}
	b, err := json.Marshal(out)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

func (w *world) ids(id string) (out []int64) {
	w.t.Helper()
	list, err := w.List(w.t.Context(), "p", id)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range list {
		out = append(out, c.ID)
	}
	return out
}

// TestRestore: whatever happens to a memory after a checkpoint, restoring it gives the LLM the same
// context, byte for byte, also in another agent and at a server that was started later.
func TestRestore(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain %v", plain), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, storetest.New(t))
			id := w.join("a", memory.Checkpoints{Plain: plain})
			policy := &window.Policy{Preset: "full"}
			if _, err := w.agents.Agents.Update(t.Context(), "p", id, agents.UpdateRequest{Policy: policy, PolicySet: true}); err != nil {
				t.Fatal(err)
			}
			cut := llm("The train leaves at nine from platform four.")
			cut.Interrupted, cut.Generated, cut.Content = true, cut.Content, "The train leaves"
			w.say(id, memory.Message{Role: memory.System, Content: "Be brief."}, user("When? é\u2028\"x\" <b>"), cut, user("Where?"),
				memory.Message{Role: memory.Assistant, Source: memory.SourceLLM, ToolCalls: json.RawMessage(`[{"id":"c1","type":"function","function":{"name":"f","arguments":"{ }"}}]`)},
				memory.Message{Role: memory.Tool, Source: memory.SourceTool, ToolCallID: "c1", Content: "four"}, llm("Platform four."))
			before := w.context(id)
			c, err := w.Save(t.Context(), "p", id)
			if err != nil || c.Messages != 7 || c.Compressed == plain {
				t.Fatalf("%+v, %v", c, err)
			}
			w.say(id, user("more"), llm("words"))
			if _, err := w.agents.Agents.Update(t.Context(), "p", id, agents.UpdateRequest{Policy: &window.Policy{Preset: "pairs"}, PolicySet: true}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.memory.Clear(t.Context(), "p", id); err != nil {
				t.Fatal(err)
			}
			w = newWorld(t, w.store)
			other := w.join("b", memory.Checkpoints{})
			for _, into := range []string{id, other, id} {
				if n, err := w.Restore(t.Context(), "p", id, c.ID, into); err != nil || n != 7 {
					t.Fatalf("%d messages, %v", n, err)
				}
				if d := cmp.Diff(before, w.context(into)); d != "" {
					t.Errorf("the context of %s (-before +restored):\n%s", into, d)
				}
			}
		})
	}
}

// TestLimits: the oldest checkpoints go, numbers only grow, and what cannot be done is refused.
func TestLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, storetest.New(t))
	id := w.join("a", memory.Checkpoints{Max: 3})
	var saved []int64
	for range 5 {
		w.say(id, user("x"), llm("y"))
		c, err := w.Save(t.Context(), "p", id)
		if err != nil {
			t.Fatal(err)
		}
		saved = append(saved, c.ID)
	}
	newest := slices.Clone(saved[2:])
	slices.Reverse(newest)
	if d := cmp.Diff(newest, w.ids(id)); d != "" || !slices.IsSorted(saved) {
		t.Errorf("%v (-want +got):\n%s", saved, d)
	}
	for range 2 {
		if err := w.Delete(t.Context(), "p", id, newest[0]); err != nil {
			t.Error(err)
		}
	}
	c, err := w.Save(t.Context(), "p", id)
	if err != nil || c.ID <= newest[0] {
		t.Errorf("%d after %d was deleted, %v", c.ID, newest[0], err)
	}
	if _, err := w.Restore(t.Context(), "p", id, newest[0], id); !fault.Is(err, fault.NotFound) {
		t.Errorf("a deleted one: %v", err)
	}
	if _, err := w.Save(t.Context(), "other", id); !fault.Is(err, fault.NotFound) {
		t.Errorf("of another project: %v", err)
	}
	large := w.join("large", memory.Checkpoints{Plain: true})
	w.say(large, user(strings.Repeat("x", 900<<10)))
	w.say(large, user(strings.Repeat("x", 900<<10)))
	w.say(large, user(strings.Repeat("x", 900<<10)))
	if _, err := w.Save(t.Context(), "p", large); !fault.Is(err, fault.TooLarge) {
		t.Errorf("a memory that is too long: %v", err)
	}
	if err := w.agents.Agents.Leave(t.Context(), "p", id, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Save(t.Context(), "p", id); !fault.Is(err, fault.Stopped) {
		t.Errorf("an ended agent: %v", err)
	}
	if n := len(w.ids(id)); n != 3 {
		t.Errorf("%d checkpoints of the ended agent", n)
	}
	if err := w.agents.Agents.Erase(t.Context(), "p", id); err != nil {
		t.Fatal(err)
	}
	usage, err := w.store.Usage(t.Context())
	for _, u := range usage {
		if u.Project == "p" && u.Bytes > 3<<20 {
			t.Errorf("records are left: %+v, %v", u, err)
		}
	}
}

// TestRun: an agent that changes is saved after its interval, one that does not is not saved again,
// and a new server saves what the last one had not saved yet.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, storetest.New(t))
		run := func() func() {
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 2)
			go func() { done <- w.jobs.Run(ctx) }()
			go func() { done <- w.agents.Agents.Run(ctx) }() // finds the agents at its start
			return func() {
				stop()
				if err := errors.Join(<-done, <-done); err != nil {
					t.Error(err)
				}
			}
		}
		stop := run()
		id := w.join("a", memory.Checkpoints{EverySeconds: 60})
		w.join("b", memory.Checkpoints{})
		after := func(d time.Duration, want int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if n := len(w.ids(id)); n != want {
				t.Errorf("%d checkpoints, want %d", n, want)
			}
		}
		w.say(id, user("one"))
		after(58*time.Second, 0)
		after(4*time.Second, 1)
		after(10*time.Minute, 1)
		for range 5 {
			w.say(id, user("more"))
			time.Sleep(20 * time.Second)
		}
		after(60*time.Second, 3)
		w.say(id, user("last"))
		stop()
		w = newWorld(t, w.store)
		stop = run()
		after(62*time.Second, 4)
		after(10*time.Minute, 4)
		stop()
	})
}
