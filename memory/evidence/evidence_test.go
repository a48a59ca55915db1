package evidence_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/evidence"
	"github.com/heardlog/heardlog/memory/heard"
	"github.com/heardlog/heardlog/store/storetest"
)

const told = "The train leaves at nine from platform two. Shall I book a seat?"

func newService(t testing.TB, edit func(*agents.Config)) *agents.Service {
	var n atomic.Int64
	c := agents.Config{Now: time.Now, NewID: func() string { return fmt.Sprint("agent-", n.Add(1)) }}
	if edit != nil {
		edit(&c)
	}
	if c.Ledger == nil {
		c.Ledger = storetest.New(t)
	}
	return agents.NewService(c)
}

func user(text string) memory.Message {
	return memory.Message{Role: memory.User, Source: memory.SourceASR, Content: text}
}

func llm(text string) memory.Message {
	return memory.Message{Role: memory.Assistant, Source: memory.SourceLLM, Content: text, Method: memory.AssumedFull}
}

// begin starts a turn whose answer is still to come.
func begin(t *testing.T, s *agents.Service, id string, cut func(error), msgs ...memory.Message) *agents.Turn {
	t.Helper()
	turn, err := s.Turns.Begin(t.Context(), "p", id, agents.TurnRequest{
		Plan: func(memory.Head, []memory.Message) (agents.Plan, error) { return agents.Plan{Append: msgs}, nil }, Cut: cut,
	})
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

func settle(t *testing.T, s *agents.Service, turn *agents.Turn, a agents.Answer) memory.Message {
	t.Helper()
	m, err := s.Turns.Settle(t.Context(), turn, a)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func text(s string) *string { return &s }
func number(n int64) *int64 { return &n }

// fixed is a service whose clock stands still, so that records can be compared.
func fixed(t *testing.T) *agents.Service {
	t.Helper()
	return newService(t, func(c *agents.Config) { c.Now = func() time.Time { return time.UnixMilli(1_780_000_100_000) } })
}

// conversation makes an agent with these messages.
func conversation(t *testing.T, s *agents.Service, msgs ...memory.Message) memory.Agent {
	t.Helper()
	a, err := s.Agents.Join(t.Context(), agents.JoinRequest{Project: "p", Properties: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Messages.Append(t.Context(), "p", a.ID, msgs); err != nil {
		t.Fatal(err)
	}
	return a
}

// lastOf gives the newest message without its revision, which tells how often it changed.
func lastOf(t *testing.T, s *agents.Service, id string) memory.Message {
	t.Helper()
	_, list, err := s.Messages.Recent(t.Context(), "p", id, 1)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	// The order in which evidence comes makes no other difference.
	list[0].Rev, list[0].Marks = 0, memory.Marks{}
	list[0].Amend(func(r *memory.Details) { r.Earlier = nil }) // what was replaced depends on it
	return list[0]
}

func record(t *testing.T, s *agents.Service, id string, reports ...evidence.Report) []evidence.Recorded {
	t.Helper()
	out, err := (evidence.Service{Memory: s}).Record(t.Context(), "p", id, reports)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// spoken gives word times of 300 ms each.
func spoken(s string) []evidence.WordTime {
	var out []evidence.WordTime
	for i, w := range strings.Fields(s) {
		out = append(out, evidence.WordTime{Text: w, StartMS: int64(i) * 300, EndMS: int64(i)*300 + 280})
	}
	return out
}

// stories are events of one answer as the platforms tell them, and what was heard in the end.
func stories() map[string]struct {
	reports []evidence.Report
	heard   string
	method  memory.Method
} {
	const start = 1_780_000_012_000
	type story = struct {
		reports []evidence.Report
		heard   string
		method  memory.Method
	}
	return map[string]story{
		"word times and a cut": {[]evidence.Report{
			{Playing: true, Generated: told, StartMS: start, Words: spoken("The train leaves at nine from platform two.")},
			{Playing: true, Generated: told, StartMS: start + 2600, Words: spoken("Shall I book a seat?")},
			{Cut: true, AtMS: start + 3300},
			{Cut: true, AtMS: start + 3300},
		}, "The train leaves at nine from platform two. Shall I", memory.WordTimes},
		"cut in the first stretch": {[]evidence.Report{
			{Playing: true, Generated: told, StartMS: start, Words: spoken("The train leaves at nine from platform two.")},
			{Playing: true, Generated: told, StartMS: start + 2600, Words: spoken("Shall I book a seat?")},
			{Cut: true, AtMS: start + 1000},
		}, "The train leaves", memory.WordTimes},
		"cut before the first word": {[]evidence.Report{
			{Playing: true, Generated: told, StartMS: start, Words: spoken(told)}, {Cut: true, AtMS: start + 100},
		}, "", memory.WordTimes},
		"two cuts": {[]evidence.Report{
			{Playing: true, Generated: told, StartMS: start, Words: spoken(told)}, {Cut: true, AtMS: start + 700}, {Cut: true, AtMS: start + 1600, By: memory.ByStartOfSpeech},
		}, "The train leaves at nine", memory.WordTimes},
		"progress and a cut": {[]evidence.Report{
			{Playing: true, Generated: told, Heard: text("")},
			{Playing: true, Generated: told, Heard: text("The train leaves")},
			{Playing: true, Generated: told, Heard: text("The train leaves at nine")},
			{Cut: true, AtMS: start + 1500},
		}, "The train leaves at nine", memory.WordTimes},
		"sentences": {[]evidence.Report{
			{Playing: true, Heard: text("The train leaves at nine from platform two.")},
			{Playing: true, Heard: text("Shall I")},
			{Cut: true},
		}, "The train leaves at nine from platform two. Shall I", memory.WordTimes},
		"to the end": {[]evidence.Report{
			{Playing: true, Heard: text("The train leaves at nine from platform two.")}, {Playing: true, Heard: text("Shall I book a seat?")},
		}, told, memory.WordTimes},
		"a cut after the end": {[]evidence.Report{{Playing: true, Heard: text(told)}, {Cut: true}}, told, memory.WordTimes},
		"a beginning and a cut": {[]evidence.Report{{Playing: true, Generated: told, StartMS: start}, {Cut: true, AtMS: start + 1500}},
			heard.Estimate(told, 1500), memory.AudioMS},
		"a transcript that grows": {[]evidence.Report{
			{Playing: true, Account: true, Heard: text("The train")}, {Playing: true, Account: true, Heard: text("The train leaves at")},
			{Playing: true, Account: true, Cut: true, Heard: text("The train leaves at nine")}, {HeardMS: number(90_000)},
		}, "The train leaves at nine", memory.VendorText},
		"the platform's text wins": {[]evidence.Report{
			{Playing: true, Generated: told, StartMS: start, Words: spoken(told)}, {Cut: true, AtMS: start + 1500},
			{Cut: true, Generated: told, Heard: text("The train leaves")}, {HeardMS: number(90_000)},
		}, "The train leaves", memory.VendorText},
	}
}

// TestReportsInAnyOrder: the same events, in any order and any number of times, give one record.
func TestReportsInAnyOrder(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for name, story := range stories() {
		s := fixed(t)
		var want *memory.Message
		for n := range 60 {
			a, err := s.Agents.Join(t.Context(), agents.JoinRequest{Project: "p", Name: fmt.Sprint(name, n), Properties: []byte("{}")})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Messages.Append(t.Context(), "p", a.ID, []memory.Message{user("When?"), llm(told)}); err != nil {
				t.Fatal(err)
			}
			order := rnd.Perm(len(story.reports))
			if n == 0 {
				order = nil
				for i := range story.reports {
					order = append(order, i)
				}
			}
			for _, i := range order {
				record(t, s, a.ID, story.reports[i])
				again := story.reports[rnd.IntN(len(story.reports))]
				if n%2 == 1 {
					record(t, s, a.ID, again)
				}
			}
			for _, r := range story.reports {
				for _, rec := range record(t, s, a.ID, r) {
					if rec.Changed {
						t.Fatalf("%s: an event that came already changes the record", name)
					}
				}
			}
			m := lastOf(t, s, a.ID)
			if want == nil {
				want = &m
				if m.Content != story.heard || m.Method != story.method || m.Original() != told || m.Interrupted != (m.Content != told) {
					t.Errorf("%s: heard %q by %s, want %q by %s; %+v", name, m.Content, m.Method, story.heard, story.method, m)
				}
			} else if diff := cmp.Diff(*want, m); diff != "" {
				t.Fatalf("%s: another order (%v) gives another record:\n%s", name, order, diff)
			}
		}
	}
}

// TestTranscript: a transcript tells of many answers; each is found once, in order, and what the
// ledger does not hold is told.
func TestTranscript(t *testing.T) {
	t.Parallel()
	s := fixed(t)
	a := conversation(t, s, llm("Hello."), user("a"), llm("Say that again, please."), user("b"), llm("Say that again, please."), user("c"), llm(told))
	got := record(t, s, a.ID,
		evidence.Report{Full: true, Generated: "Hello."},
		evidence.Report{Full: true, Generated: "Nothing of ours."},
		evidence.Report{Cut: true, Generated: "Say that again, please.", Heard: text("Say that...")},
		evidence.Report{Full: true, Generated: "Say that again, please."},
		evidence.Report{Heard: text("The train leaves")},
	)
	var lines []string
	for _, r := range got {
		lines = append(lines, fmt.Sprintf("%d: %d %q", r.Report, r.Message.TurnID, r.Message.Content))
	}
	if diff := cmp.Diff([]string{`0: 0 "Hello."`, `2: 1 "Say that"`, `3: 2 "Say that again, please."`, `4: 3 "The train leaves"`}, lines); diff != "" {
		t.Error(diff)
	}
}

// TestTurnsCountFromZeroOrOne: a turn table without texts is laid beside ours where their times
// agree.
func TestTurnsCountFromZeroOrOne(t *testing.T) {
	t.Parallel()
	answer := func(text string, at int64) memory.Message {
		m := llm(text)
		m.Timestamp = at
		return m
	}
	for _, first := range []int64{0, 1} {
		s := fixed(t)
		a := conversation(t, s, user("a"), answer("One.", 2000), user("b"), answer("Two.", 4000), user("c"), answer("Three.", 6000))
		got := record(t, s, a.ID,
			evidence.Report{Ordinal: true, Turn: number(first), Full: true, AtMS: 3000},
			evidence.Report{Ordinal: true, Turn: number(first + 1), Cut: true, AtMS: 5000, By: memory.ByStartOfSpeech},
			evidence.Report{Ordinal: true, Turn: number(first + 2), Full: true, AtMS: 7000},
		)
		if len(got) != 3 || got[0].Message.Content != "One." || !got[1].Message.Interrupted || got[1].Message.Original() != "Two." || got[2].Message.Interrupted {
			t.Errorf("from %d: %+v", first, got)
		}
	}
}

// TestReportOfAnswerInFlight: what is told of an answer while it is made counts once it is stored;
// a cut ends it.
func TestReportOfAnswerInFlight(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	a := conversation(t, s, user("Hi"), llm("The train leaves in the morning."))
	fly := func(cut func(error)) *agents.Turn {
		turn := begin(t, s, a.ID, cut, user("When?"))
		if got := record(t, s, a.ID, evidence.Report{Cut: true}); len(got) != 1 || got[0].Pending || got[0].Message.TurnID != 0 {
			t.Errorf("before its first word: %+v", got)
		}
		s.Turns.Progress(turn, memory.Speaking)
		return turn
	}
	turn := fly(func(error) { t.Error("cut") })
	for _, said := range []string{"The train leaves", "The train leaves at nine"} {
		if got := record(t, s, a.ID, evidence.Report{Playing: true, Heard: text(said)}); len(got) != 1 || !got[0].Pending {
			t.Errorf("%+v", got)
		}
	}
	// Late, and of the answer before.
	record(t, s, a.ID, evidence.Report{Playing: true, Heard: text("in the morning")})
	settle(t, s, turn, agents.Answer{Generated: told, Sent: told, Complete: true})
	if got := record(t, s, a.ID, evidence.Report{Cut: true, AtMS: 1_780_000_013_000}); len(got) != 1 || got[0].Message.Content != "The train leaves at nine" {
		t.Errorf("%+v", got)
	}
	_, list, err := s.Messages.Recent(t.Context(), "p", a.ID, 9)
	if err != nil || list[1].Heard().Playback == nil || list[1].Heard().Playback.Spoken != len("The train leaves in the morning.") {
		t.Errorf("the answer before: %+v, %v", list[1], err)
	}

	cut := make(chan error, 1)
	turn2 := begin(t, s, a.ID, func(err error) { cut <- err }, user("And the bus?"))
	s.Turns.Progress(turn2, memory.Speaking)
	done := make(chan memory.Message, 1)
	go func() {
		<-cut
		m, _ := s.Turns.Settle(context.WithoutCancel(t.Context()), turn2, agents.Answer{Generated: "The bus leaves at ten.", Sent: "The bus leaves", Err: agents.ErrBargeIn})
		done <- m
	}()
	got := record(t, s, a.ID, evidence.Report{Cut: true, Heard: text("The bus")})
	<-done
	if len(got) != 1 || got[0].Message.Content != "The bus" || got[0].Message.Method != memory.VendorText || got[0].Message.InterruptBy != memory.ByStartOfSpeech {
		t.Errorf("%+v", got)
	}
}

// TestLateCut: a cut that comes after the next answer was begun is one of the answer before.
func TestLateCut(t *testing.T) {
	t.Parallel()
	s := fixed(t)
	first, second := llm("One two three."), llm("Four five six.")
	first.Timestamp, second.Timestamp = 1_780_000_010_000, 1_780_000_020_000
	a := conversation(t, s, user("a"), first, user("b"), second)
	if got := record(t, s, a.ID, evidence.Report{Cut: true, AtMS: 1_780_000_015_000}); len(got) != 1 || got[0].Message.Original() != "One two three." {
		t.Errorf("%+v", got)
	}
	if got := record(t, s, a.ID, evidence.Report{Cut: true, AtMS: 1_780_000_025_000}); len(got) != 1 || got[0].Message.Original() != "Four five six." {
		t.Errorf("%+v", got)
	}
	flying := begin(t, s, a.ID, func(error) { t.Error("cut") }, user("c"))
	s.Turns.Progress(flying, memory.Speaking)
	if got := record(t, s, a.ID, evidence.Report{Cut: true, AtMS: 1_780_000_025_001}); len(got) != 1 || got[0].Message.Original() != "Four five six." {
		t.Errorf("while the next is sent: %+v", got)
	}
	settle(t, s, flying, agents.Answer{Generated: "Seven.", Sent: "Seven.", Complete: true})
}

func TestRecordBounds(t *testing.T) {
	t.Parallel()
	s := fixed(t)
	if _, err := (evidence.Service{Memory: s}).Record(t.Context(), "p", "nobody", []evidence.Report{{Cut: true}}); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	a := conversation(t, s, user("x"), llm(told))
	if _, err := (evidence.Service{Memory: s}).Record(t.Context(), "p", a.ID, make([]evidence.Report, evidence.MaxReports+1)); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
	flying := begin(t, s, a.ID, func(error) {}, user("y"))
	s.Turns.Progress(flying, memory.Speaking)
	for i := range 300 {
		if got := record(t, s, a.ID, evidence.Report{Playing: true, Heard: text(strings.Repeat("word ", i+1))}); len(got) != 1 || !got[0].Pending {
			t.Fatalf("%d: %+v", i, got)
		}
	}
	if m := settle(t, s, flying, agents.Answer{Generated: strings.Repeat("word ", 400), Complete: true}); m.Heard().Playback == nil || m.Heard().Playback.Spoken < 5*300-1 {
		t.Errorf("%+v", m.Heard().Playback)
	}
	a = conversation(t, s, user("x"), llm(told))
	for i := range 200 {
		record(t, s, a.ID, evidence.Report{Playing: true, Generated: told, StartMS: 1_780_000_000_000 + int64(i), Words: spoken(strings.Repeat("word ", 600))})
	}
	last := lastOf(t, s, a.ID)
	p := last.Heard().Playback
	if len(p.Stretches) != 64 || len(p.Stretches[0].Ends) != 512 || p.Stretches[63].StartMS != 1_780_000_000_199 {
		t.Errorf("%d stretches, %d words", len(p.Stretches), len(p.Stretches[0].Ends))
	}
}

// TestGrowingTranscriptInFlight: of a transcript whose last row is being spoken, that row waits for
// its answer, and the others find theirs.
func TestGrowingTranscriptInFlight(t *testing.T) {
	t.Parallel()
	s := fixed(t)
	a := conversation(t, s, user("a"), llm("The bus leaves at ten."))
	flying := begin(t, s, a.ID, func(error) { t.Error("cut") }, user("b"))
	s.Turns.Progress(flying, memory.Speaking)
	row := func(said string, cut bool) evidence.Report {
		return evidence.Report{Playing: true, Account: true, Cut: cut, Heard: text(said)}
	}
	got := record(t, s, a.ID, row("The bus leaves", true), row("The", false))
	if len(got) != 2 || got[0].Message.Content != "The bus leaves" || !got[1].Pending || got[1].Report != 1 {
		t.Errorf("%+v", got)
	}
	if m := settle(t, s, flying, agents.Answer{Generated: told, Sent: told, Complete: true}); m.Heard().Playback == nil || m.Heard().Playback.Spoken != len("The") {
		t.Errorf("%+v", m)
	}
}

// TestStrayRow: a row that stands in the ledger long ago only does not keep those before it from
// their answers.
func TestStrayRow(t *testing.T) {
	t.Parallel()
	s := fixed(t)
	msgs := []memory.Message{llm("Are you still there?")}
	for i := range 30 {
		msgs = append(msgs, user(fmt.Sprint("question ", i)), llm(fmt.Sprintf("Answer number %d it is.", i)))
	}
	a := conversation(t, s, msgs...)
	got := record(t, s, a.ID,
		evidence.Report{Full: true, Generated: "Answer number 28 it is."},
		evidence.Report{Full: true, Generated: "Answer number 29 it is."},
		// Said by the platform itself.
		evidence.Report{Full: true, Generated: "Are you still there?"},
	)
	if len(got) != 2 || got[0].Report != 0 || got[1].Report != 1 {
		t.Errorf("%+v", got)
	}
}

// TestRecordWork: what the reports of one call are compared with is bounded, since each comparison
// reads a whole answer: behind very much that fits nothing, an older report finds its answer no
// more, and in front of it, it does.
func TestRecordWork(t *testing.T) {
	t.Parallel()
	s := fixed(t)
	said := []memory.Message{llm("We open at nine.")}
	for i := range 3 {
		said = append(said, memory.Message{Role: memory.Assistant, Source: memory.SourceCommand, Content: strings.Repeat(fmt.Sprintf("alpha %d beta ", i), 10000)})
	}
	for name, tt := range map[string]struct{ rows, want int }{"few": {2, 1}, "many": {40, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := conversation(t, s, said...)
			reports := []evidence.Report{{Heard: text("We open at"), Cut: true}}
			for i := range tt.rows {
				reports = append(reports, evidence.Report{Heard: text(fmt.Sprintf("gamma %d delta epsilon", i)), Cut: true})
			}
			if out := record(t, s, a.ID, reports...); len(out) != tt.want {
				t.Errorf("%+v", out)
			}
		})
	}
}
