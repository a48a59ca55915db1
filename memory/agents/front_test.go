package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/engine"
	"github.com/heardlog/heardlog/memory/inmem"
	"github.com/heardlog/heardlog/memory/storetest"
	"github.com/heardlog/heardlog/memory/window"
)

// rows counts the messages that a store gives, within decisions and outside.
type rows struct {
	memory.Ledger
	n atomic.Int64
	// blind tells that nothing of a memory's beginning is known as counted.
	blind bool
}

func (r *rows) Recent(ctx context.Context, project, id string, n int, history bool) (memory.Head, []memory.Message, error) {
	h, msgs, err := r.Ledger.Recent(ctx, project, id, n, history)
	r.n.Add(int64(len(msgs)))
	return h, msgs, err
}

func (r *rows) Messages(ctx context.Context, project, id string, q memory.MessageQuery) ([]memory.Message, error) {
	msgs, err := r.Ledger.Messages(ctx, project, id, q)
	r.n.Add(int64(len(msgs)))
	return msgs, err
}

func (r *rows) Update(ctx context.Context, project, id string, decide memory.Decision) error {
	return r.Ledger.Update(ctx, project, id, func(view memory.AgentView) (memory.Change, error) { return decide(rowsTx{view, r}) })
}

func (r *rows) UpdateEarly(ctx context.Context, project, id string, decide memory.Decision, _ func(error)) (bool, error) {
	return false, r.Update(ctx, project, id, decide)
}

type rowsTx struct {
	memory.AgentView
	r *rows
}

func (t rowsTx) Head() memory.Head {
	h := t.AgentView.Head()
	if t.r.blind {
		h.Agent.Settings.Memory.Front = nil
	}
	return h
}

func (t rowsTx) Last(n int) ([]memory.Message, error) {
	msgs, err := t.AgentView.Last(n)
	t.r.n.Add(int64(len(msgs)))
	return msgs, err
}

func (t rowsTx) Seq(seq int64) (memory.Message, error) {
	t.r.n.Add(1)
	return t.AgentView.Seq(seq)
}

// anyMessage makes a message of a long conversation: mostly words, now and then tools,
// instructions, drafts.
func anyMessage(rnd *rand.Rand, i int) memory.Message {
	id := fmt.Sprint("c", rnd.IntN(4))
	text := fmt.Sprint(i, " some words that somebody said")
	switch n := rnd.IntN(200); {
	case n < 1:
		return memory.Message{Role: memory.System, Source: memory.SourceMessage, Content: text}
	case n < 8:
		return memory.Message{Role: memory.Assistant, Source: memory.SourceLLM, ToolCalls: json.RawMessage(`[{"id":"` + id + `","type":"function","function":{"name":"f","arguments":"{}"}}]`)}
	case n < 16:
		return memory.Message{Role: memory.Tool, ToolCallID: id, Content: text}
	case n < 20:
		return memory.Message{Role: memory.User, Source: memory.SourceASR, Content: text, Status: memory.Draft}
	case n < 24:
		return memory.Message{Role: memory.Assistant, Source: memory.SourceCommand, Content: text}
	case n < 30:
		return memory.Message{Role: memory.User, Source: memory.SourceMessage, Parts: json.RawMessage(`[{"type":"text","text":"` + text + `"}]`)}
	case n < 115:
		return user(text)
	}
	return llm(text)
}

func anyPolicy(rnd *rand.Rand) *window.Policy {
	p := window.Policy{Preset: window.PresetNames()[rnd.IntN(len(window.PresetNames()))]}
	limit := func(most int) *int {
		if rnd.IntN(3) > 0 {
			return nil
		}
		n := rnd.IntN(most)
		return &n
	}
	p.MaxMessages, p.MaxTokens, p.MaxRounds = limit(3000), limit(20000), limit(300)
	if rnd.IntN(4) == 0 {
		p.KeepSystem = new(rnd.IntN(2) == 0)
	}
	if rnd.IntN(6) == 0 {
		p.Strategy = window.ImportanceBased
	}
	p.Projection = []string{"", "heard_marked", "heard_and_unsaid", "generated"}[rnd.IntN(4)]
	return &p
}

// TestLongMemoryReadsItsEnd: a context of a long memory is the same whether all of the memory is
// looked at or its end alone, whatever the ledger and the policy, all presets among them; and it is
// its end alone that is read wherever the policy has a limit.
func TestLongMemoryReadsItsEnd(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 5))
			store := storetest.New()
			s := newService(func(c *agents.Config) { c.Ledger = store })
			a := join(t, s, nil)
			for i := 0; i < 3500; {
				batch := make([]memory.Message, 1+rnd.IntN(400))
				for j := range batch {
					batch[j] = anyMessage(rnd, i)
					i++
				}
				stored, err := s.Append(t.Context(), "p", a.ID, batch)
				if err != nil {
					t.Fatal(err)
				}
				for range rnd.IntN(4) { // what was heard of some is told later
					m := stored[rnd.IntN(len(stored))]
					if m.Role != memory.Assistant || m.Content == "" {
						continue
					}
					heard, turn := "", m.TurnID
					if rnd.IntN(2) == 0 {
						heard = m.Content[:6]
					}
					if _, err := s.Interrupt(t.Context(), "p", a.ID, agents.InterruptRequest{TurnID: &turn, Heard: &heard}); err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.Conflict) {
						t.Fatal(err)
					}
				}
			}
			h, err := store.Head(t.Context(), "p", a.ID)
			if err != nil {
				t.Fatal(err)
			}
			if h.Agent.Settings.Memory.Front == nil {
				t.Fatal("the beginning is not counted")
			}
			checkFront(t, store, a.ID)
			counted := &rows{Ledger: store}
			whole := memctx.New(newService(func(c *agents.Config) { c.Ledger = store }))
			part := memctx.New(newService(func(c *agents.Config) { c.Ledger = counted }))
			for i := range 36 {
				if i%12 == 0 { // nothing is kept of before
					part = memctx.New(newService(func(c *agents.Config) { c.Ledger = counted }))
				}
				if i%7 == 3 {
					if _, err := s.Append(t.Context(), "p", a.ID, []memory.Message{anyMessage(rnd, i), anyMessage(rnd, i)}); err != nil {
						t.Fatal(err)
					}
				}
				p := anyPolicy(rnd)
				if i < 6 {
					p = &window.Policy{Preset: window.PresetNames()[i]}
				}
				r := memctx.Request{Policy: p}
				if say := "now"; rnd.IntN(2) == 0 {
					r.Utterance = &say
				}
				counted.n.Store(0)
				got, err := part.Context(t.Context(), "p", a.ID, r)
				if err != nil {
					t.Fatal(err)
				}
				read := counted.n.Load()
				// Of which everything is, and which is looked for in all of the memory.
				r.Scope = &window.Scope{}
				want, err := whole.Context(t.Context(), "p", a.ID, r)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(want, got) { // far faster where nothing differs
					t.Fatalf("policy %+v (-whole +end):\n%s", p, cmp.Diff(want, got))
				}
				if i%12 == 0 && p.CutsPart() && p.MaxMessages == nil && p.MaxTokens == nil && read > 2000 {
					t.Errorf("preset %s: %d messages were read", p.Preset, read)
				}
			}
		})
	}
}

// checkFront counts what is counted of a memory's beginning.
func checkFront(t *testing.T, store memory.Ledger, id string) {
	t.Helper()
	h, msgs, err := store.Recent(t.Context(), "p", id, 1_000_000, false)
	if err != nil {
		t.Fatal(err)
	}
	m := &h.Agent.Settings.Memory
	f := m.Front
	if f == nil {
		return
	}
	if behind := h.NextSeq - f.Seq; behind > 2*1024 {
		t.Errorf("%d messages are not counted", behind)
	}
	want := memory.Front{Seq: f.Seq, LastTurn: f.LastTurn, Unordered: f.Unordered}
	last := int64(-1)
	for i := range msgs {
		x := &msgs[i]
		if x.Seq < m.BaseSeq || x.Seq >= f.Seq {
			continue
		}
		if last = max(last, x.TurnID); x.TurnID < last && !f.Unordered {
			t.Errorf("seq %d: turn %d behind turn %d", x.Seq, x.TurnID, last)
		}
		if x.State == memory.Unplayed && x.Role == memory.Assistant && x.Original() != "" {
			want.Unheard++
		}
		if x.State == memory.Removed {
			want.Removed++
		}
		if !x.InMemory() {
			continue
		}
		if want.Count++; x.Role == memory.System {
			want.System = append(want.System, x.Seq)
		}
	}
	if len(want.System) > memory.MaxFrontSystem {
		want.System, want.Many = nil, true
	}
	if d := cmp.Diff(want, *f); d != "" || f.LastTurn < last {
		t.Errorf("last turn %d (-counted +front):\n%s", last, d)
	}
}

// TestFrontIsKept: what is counted of a memory's beginning stays right whatever is done to it.
func TestFrontIsKept(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 6))
			store := storetest.New()
			s := newService(func(c *agents.Config) { c.Ledger = store })
			a := join(t, s, nil)
			check := func(err error) {
				t.Helper()
				if err != nil && !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict) {
					t.Fatal(err)
				}
				checkFront(t, store, a.ID)
			}
			last := 0
			for range 60 {
				switch rnd.IntN(8) {
				case 0: // an answer from far in front is heard otherwise
					turn, heard := int64(rnd.IntN(last/3+1)), ""
					_, err := s.Interrupt(t.Context(), "p", a.ID, agents.InterruptRequest{TurnID: &turn, Heard: &heard})
					check(err)
				case 1:
					keep := 500 + rnd.IntN(5000)
					if rnd.IntN(6) == 0 {
						_, err := memctx.New(s).Trim(t.Context(), "p", a.ID, memctx.TrimRequest{KeepRecent: &keep})
						check(err)
					}
				default:
					batch := make([]memory.Message, 1+rnd.IntN(500))
					for j := range batch {
						batch[j] = anyMessage(rnd, last)
						last++
					}
					_, err := s.Append(t.Context(), "p", a.ID, batch)
					check(err)
				}
			}
		})
	}
}

// loads counts how often a store is asked for an agent's messages.
type loads struct {
	memory.Store
	n atomic.Int64
}

func (l *loads) Load(ctx context.Context, project, id string, n int, known memory.Version) (memory.Stored, error) {
	l.n.Add(1)
	return l.Store.Load(ctx, project, id, n, known)
}

// TestFrontReadsNothing appends to an agent in memory, singly and in batches: counting its
// beginning reads nothing from the store, and what is in memory is not counted.
func TestFrontReadsNothing(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2, 300} {
		store := &loads{Store: inmem.New()}
		ledger := engine.New(store, engine.Options{})
		s := newService(func(c *agents.Config) { c.Ledger = ledger })
		a := join(t, s, nil)
		for n := 0; n < 900; n += size {
			batch := make([]memory.Message, size)
			for i := range batch {
				batch[i] = []memory.Message{user("when?"), llm("at nine")}[(n+i)%2]
			}
			if _, err := s.Append(t.Context(), "p", a.ID, batch); err != nil {
				t.Fatal(err)
			}
			if h, err := ledger.Head(t.Context(), "p", a.ID); err != nil || n+size <= 48 && h.Agent.Settings.Memory.Front != nil {
				t.Fatalf("batches of %d: %d messages are counted, %v", size, n+size, err)
			}
		}
		// Once, since this store counts versions and the engine learns that by it; and once more if
		// the first batch is longer than what is in memory.
		most := int64(1)
		if size > 48 {
			most = 2
		}
		if n := store.n.Load(); n > most {
			t.Errorf("batches of %d: the store was asked %d times", size, n)
		}
		checkFront(t, ledger, a.ID)
		h, err := ledger.Head(t.Context(), "p", a.ID)
		if f := h.Agent.Settings.Memory.Front; err != nil || f == nil || h.NextSeq-f.Seq > 48 {
			t.Errorf("batches of %d: %+v counted of %d, %v", size, f, h.NextSeq, err)
		}
	}
}

// TestLongMemoryIsCutOnWrite: a memory that is cut when it is written to is cut in the same way
// whether all of it is looked at or its end alone, and its end is what is read.
func TestLongMemoryIsCutOnWrite(t *testing.T) {
	t.Parallel()
	limit := func(n int) *int { return &n }
	for name, p := range map[string]*window.Policy{
		"ovos":                   {Preset: "ovos"},
		"no limit":               {Preset: "orbiter", Apply: window.OnWrite},
		"few, system stays":      {Preset: "agora", Apply: window.OnWrite, MaxMessages: limit(40)},
		"more than is read":      {Preset: "agora", Apply: window.OnWrite, MaxMessages: limit(1800)},
		"tokens":                 {Preset: "lauren", Apply: window.OnWrite, MaxTokens: limit(700)},
		"rounds":                 {Preset: "orbiter", Apply: window.OnWrite, MaxRounds: limit(3)},
		"limits, and normalised": {Preset: "ossa", Apply: window.OnWrite, Normalise: &window.Normalise{MergeAssistant: new(true), DropHangingUser: new(true)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			most := int64(500) // that are not counted, and those that are kept
			if name == "more than is read" {
				most = 6000
			}
			first := &rows{Ledger: storetest.New(), blind: true}
			second := &rows{Ledger: storetest.New()}
			var ledgers [2][]memory.Message
			reads := int64(0)
			for i, store := range []*rows{first, second} {
				rnd := rand.New(rand.NewPCG(7, 8))
				s := newService(func(c *agents.Config) {
					c.Ledger = store
					c.Now = func() time.Time { return time.UnixMilli(1_780_000_000_000) }
				})
				a := join(t, s, func(x *memory.Settings) { x.Memory.Policy = p })
				put := func(n, size int) {
					for i := range n {
						batch := make([]memory.Message, size)
						for j := range batch {
							batch[j] = anyMessage(rnd, i*size+j)
						}
						if _, err := s.Append(t.Context(), "p", a.ID, batch); err != nil {
							t.Fatal(err)
						}
					}
				}
				if _, err := s.Append(t.Context(), "p", a.ID, []memory.Message{{Role: memory.System, Source: memory.SourceMessage, Content: "be brief"}}); err != nil {
					t.Fatal(err)
				}
				put(60, 50)
				store.n.Store(0)
				put(100, 1)
				reads = store.n.Load()
				if i == 1 {
					checkFront(t, store.Ledger, a.ID)
				}
				_, msgs, err := store.Ledger.Recent(t.Context(), "p", a.ID, 1_000_000, false)
				if err != nil {
					t.Fatal(err)
				}
				for j := range msgs {
					msgs[j].Rev, msgs[j].Marks = 0, memory.Marks{}
				}
				ledgers[i] = msgs
			}
			if !reflect.DeepEqual(ledgers[0], ledgers[1]) {
				t.Fatalf("(-whole +end):\n%s", cmp.Diff(ledgers[0], ledgers[1]))
			}
			if each := reads / 100; each > most {
				t.Errorf("an append reads %d messages, %d at most", each, most)
			}
		})
	}
}
