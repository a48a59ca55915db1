package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/store/storetest"
)

// rows counts the messages that a store gives, within decisions and outside.
type rows struct {
	memory.Ledger
	n atomic.Int64
	// blind hides what is known of a memory's start.
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
		a := *h.Agent
		a.Settings.Memory.ConversationFrom = 0
		h.Agent = &a
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

// TestLongMemoryReadsItsEnd: a context of a long memory is the same whether a policy is given all
// of the memory or its end, whatever the ledger and the policy, all presets among them.
func TestLongMemoryReadsItsEnd(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 5))
			store := storetest.New(t)
			s := newService(t, func(c *agents.Config) { c.Ledger = store })
			a := join(t, s, nil)
			for i := 0; i < 3500; {
				batch := make([]memory.Message, 1+rnd.IntN(400))
				for j := range batch {
					batch[j] = anyMessage(rnd, i)
					i++
				}
				stored, err := s.Messages.Append(t.Context(), "p", a.ID, batch)
				if err != nil {
					t.Fatal(err)
				}
				for range rnd.IntN(4) { // what was heard of some is told later
					m := stored.Messages[rnd.IntN(len(stored.Messages))]
					if m.Role != memory.Assistant || m.Content == "" {
						continue
					}
					heard, turn := "", m.TurnID
					if rnd.IntN(2) == 0 {
						heard = m.Content[:6]
					}
					if _, err := s.Turns.Interrupt(t.Context(), "p", a.ID, agents.InterruptRequest{TurnID: &turn, Heard: &heard}); err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.Conflict) {
						t.Fatal(err)
					}
				}
			}
			checkBounds(t, store, a.ID)
			whole := memctx.New(newService(t, func(c *agents.Config) { c.Ledger = store }))
			part := memctx.New(newService(t, func(c *agents.Config) { c.Ledger = store }))
			for i := range 36 {
				if i%12 == 0 { // nothing is kept of before
					part = memctx.New(newService(t, func(c *agents.Config) { c.Ledger = store }))
				}
				if i%7 == 3 {
					if _, err := s.Messages.Append(t.Context(), "p", a.ID, []memory.Message{anyMessage(rnd, i), anyMessage(rnd, i)}); err != nil {
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
				got, err := part.Context(t.Context(), "p", a.ID, r)
				if err != nil {
					t.Fatal(err)
				}
				r.Scope = &window.Scope{} // everything is of it, and all of the memory is read
				want, err := whole.Context(t.Context(), "p", a.ID, r)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(want, got) { // far faster where nothing differs
					t.Fatalf("policy %+v (-whole +end):\n%s", p, cmp.Diff(want, got))
				}
			}
		})
	}
}

// TestPromptReadsItsEnd: the prompt of a turn has the same messages as the context, and only about
// as many are read as the policy can keep.
func TestPromptReadsItsEnd(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 9))
	counted := &rows{Ledger: storetest.New(t)}
	s := newService(t, func(c *agents.Config) { c.Ledger = counted })
	a := join(t, s, nil)
	for i := 0; i < 3000; {
		batch := make([]memory.Message, 1+rnd.IntN(400))
		for j := range batch {
			batch[j] = anyMessage(rnd, i)
			i++
		}
		if _, err := s.Messages.Append(t.Context(), "p", a.ID, batch); err != nil {
			t.Fatal(err)
		}
	}
	seqs := func(m *memory.Message) int64 {
		if m == nil {
			return 0
		}
		return m.Seq
	}
	for i := range 60 {
		p := anyPolicy(rnd)
		if i < 6 {
			p = &window.Policy{Preset: window.PresetNames()[i]}
		}
		prompts := memctx.New(s) // nothing is kept of before
		counted.n.Store(0)
		turn, err := s.Turns.Begin(t.Context(), "p", a.ID, agents.TurnRequest{Plan: plan(user("and?")), Cut: func(error) {}, Policy: p, Window: prompts.ForTurn})
		if err != nil {
			t.Fatal(err)
		}
		// Of which the turn itself reads as many as max_history, and 16.
		if n := counted.n.Load() - memory.DefaultMaxHistory - 16; p.Preset == "recent" && i < 6 && n > 48+64 || n > 2*memory.MaxRead {
			t.Errorf("policy %+v: %d messages were read", p, n)
		}
		want, err := memctx.New(s).Context(t.Context(), "p", a.ID, memctx.Request{Policy: p, Scope: &window.Scope{}})
		if err != nil {
			t.Fatal(err)
		}
		var got, all []int64
		for _, m := range turn.Context {
			got = append(got, seqs(m))
		}
		for _, m := range want.Messages {
			all = append(all, seqs(m.Stored))
		}
		if p.Preset != "pairs" && !slices.Equal(got, all) { // pairs takes the question apart
			t.Errorf("policy %+v (-context +prompt):\n%s", p, cmp.Diff(all, got))
		}
		settle(t, s, turn, agents.Answer{Generated: "yes", Sent: "yes", Complete: true})
	}
}

// TestMemoryBeyondTheBound: of a memory that is longer than a policy may read, it is given the
// newest messages and the newest of the instructions before them, also when both were read before.
func TestMemoryBeyondTheBound(t *testing.T) {
	t.Parallel()
	store := storetest.New(t)
	s := newService(t, func(c *agents.Config) { c.Ledger = store })
	a := join(t, s, nil)
	kept := memctx.New(s)
	said := 0
	put := func(n int) {
		t.Helper()
		batch := make([]memory.Message, n)
		for i := range batch {
			batch[i] = []memory.Message{user(fmt.Sprint(said)), llm(fmt.Sprint(said))}[said%2]
			said++
		}
		if _, err := s.Messages.Append(t.Context(), "p", a.ID, batch); err != nil {
			t.Fatal(err)
		}
	}
	rule := func(text string) {
		t.Helper()
		if _, err := s.Messages.Append(t.Context(), "p", a.ID, []memory.Message{{Role: memory.System, Source: memory.SourceMessage, Content: text}}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, rules ...string) {
		t.Helper()
		want := slices.Clone(rules)
		for i := max(0, said-memory.MaxRead); i < said; i++ {
			want = append(want, fmt.Sprint(i))
		}
		for name, c := range map[string]*memctx.Service{"fresh": memctx.New(s), "kept": kept} {
			r, err := c.Context(t.Context(), "p", a.ID, memctx.Request{Policy: &window.Policy{Preset: "full"}})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range r.Messages {
				got = append(got, m.Text)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s, %s: %d messages, the first %q; want %d, the first %q", when, name, len(got), got[0], len(want), want[0])
			}
			ten := 10
			r, err = c.Context(t.Context(), "p", a.ID, memctx.Request{Policy: &window.Policy{Preset: "full", MaxMessages: &ten}})
			if err != nil || len(r.Messages) != len(rules)+ten || r.Dropped != len(want)-len(r.Messages) {
				t.Fatalf("%s, %s: %d messages of %d, %d dropped; %v", when, name, len(r.Messages), len(want), r.Dropped, err)
			}
		}
	}
	rule("be brief")
	put(100)
	check("a short one", "be brief")
	for range 5 {
		put(998)
	}
	check("a long one", "be brief")
	for range 300 {
		put(2)
		if said%50 == 0 {
			check("one that grows", "be brief")
		}
	}
	for range 2 {
		put(1000)
		check("one that outgrows what was read", "be brief")
	}
	set := func(seq int64, state memory.State) {
		t.Helper()
		err := s.Messages.Change(t.Context(), "p", a.ID, func(view memory.AgentView) (memory.Change, error) {
			m, err := view.Seq(seq)
			m.State, m.Rev = state, view.Head().Rev+1
			return memory.Change{Replace: []memory.Message{m}}, err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	set(1, memory.Dropped)
	check("one that lost its rule")
	set(1, memory.Final)
	check("one that has its rule again", "be brief")
	var all []string
	for i := range memory.MaxInstructions + 3 {
		all = append(all, fmt.Sprint("rule ", i))
		rule(all[i])
	}
	for range 5 {
		put(1000)
	}
	check("one with too many rules", all[3:]...)
	h, err := s.Messages.Head(t.Context(), "p", a.ID)
	if err != nil {
		t.Fatal(err)
	}
	set(h.Agent.Settings.Memory.Instructions[0], memory.Removed)
	check("one with one rule less", all[4:]...)
	if _, err := memctx.New(s).Clear(t.Context(), "p", a.ID); err != nil {
		t.Fatal(err)
	}
	said = 0
	put(50)
	check("one that was cleared")
}

// checkBounds compares what an agent says of its memory with the ledger.
func checkBounds(t *testing.T, store memory.Ledger, id string) {
	t.Helper()
	h, msgs, err := store.Recent(t.Context(), "p", id, 1_000_000, false)
	if err != nil {
		t.Fatal(err)
	}
	m := &h.Agent.Settings.Memory
	var want []int64
	for i := range msgs {
		switch x := &msgs[i]; {
		case x.Seq < m.BaseSeq || !x.InMemory():
		case x.Role.Instructs():
			want = append(want, x.Seq)
		case x.Seq < m.ConversationFrom:
			t.Errorf("message %d is in memory, before %d", x.Seq, m.ConversationFrom)
		}
	}
	if len(m.Instructions) == memory.MaxInstructions { // perhaps not all
		return
	}
	if d := cmp.Diff(want, m.Instructions, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("instructions (-ledger +noted):\n%s", d)
	}
}

// TestBoundsAreKept: what an agent says of its memory is right, whatever is done to that.
func TestBoundsAreKept(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 6))
			store := storetest.New(t)
			s := newService(t, func(c *agents.Config) { c.Ledger = store })
			a := join(t, s, nil)
			check := func(err error) {
				t.Helper()
				if err != nil && !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict) {
					t.Fatal(err)
				}
				checkBounds(t, store, a.ID)
			}
			last := 0
			for range 60 {
				switch rnd.IntN(8) {
				case 0: // an answer from far in front is heard otherwise
					turn, heard := int64(rnd.IntN(last/3+1)), ""
					_, err := s.Turns.Interrupt(t.Context(), "p", a.ID, agents.InterruptRequest{TurnID: &turn, Heard: &heard})
					check(err)
				case 1:
					keep := 10 + rnd.IntN(2000)
					if rnd.IntN(2) == 0 {
						_, err := memctx.New(s).Trim(t.Context(), "p", a.ID, memctx.TrimRequest{KeepRecent: &keep})
						check(err)
					}
				case 2:
					h, err := s.Messages.Head(t.Context(), "p", a.ID)
					if err == nil && rnd.IntN(3) == 0 {
						_, err = memctx.New(s).SetSummary(t.Context(), "p", a.ID, "they talked", rnd.Int64N(h.NextSeq))
					}
					check(err)
				default:
					batch := make([]memory.Message, 1+rnd.IntN(500))
					for j := range batch {
						batch[j] = anyMessage(rnd, last)
						last++
					}
					_, err := s.Messages.Append(t.Context(), "p", a.ID, batch)
					check(err)
				}
			}
		})
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
			first := &rows{Ledger: storetest.New(t), blind: true}
			second := &rows{Ledger: storetest.New(t)}
			var ledgers [2][]memory.Message
			reads := int64(0)
			for i, store := range []*rows{first, second} {
				rnd := rand.New(rand.NewPCG(7, 8))
				s := newService(t, func(c *agents.Config) {
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
						if _, err := s.Messages.Append(t.Context(), "p", a.ID, batch); err != nil {
							t.Fatal(err)
						}
					}
				}
				if _, err := s.Messages.Append(t.Context(), "p", a.ID, []memory.Message{{Role: memory.System, Source: memory.SourceMessage, Content: "be brief"}}); err != nil {
					t.Fatal(err)
				}
				put(30, 100)
				store.n.Store(0)
				put(50, 1)
				reads = store.n.Load()
				if i == 1 {
					checkBounds(t, store.Ledger, a.ID)
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
			if each := reads / 50; each > most {
				t.Errorf("an append reads %d messages, %d at most", each, most)
			}
		})
	}
}
