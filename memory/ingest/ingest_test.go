package ingest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/evidence"
	"github.com/heardlog/heardlog/memory/ingest"
	"github.com/heardlog/heardlog/memory/turns"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/store/storetest"
)

// service is a memory with the archive beside it.
type service struct{ *agents.Service }

func (s service) File(ctx context.Context, project string, n ingest.Notice) (changed bool, err error) {
	return ingest.Service{Memory: s.Service}.File(ctx, project, n)
}

func newService(t testing.TB, edit func(*agents.Config)) service {
	var made atomic.Int64
	c := agents.Config{Now: time.Now, NewID: func() string { return fmt.Sprint("own", made.Add(1)) }}
	if edit != nil {
		edit(&c)
	}
	if c.Ledger == nil {
		c.Ledger = storetest.New(t)
	}
	return service{agents.NewService(c)}
}

// archiveStart is the start of the archived agents of these tests, Unix ms.
const archiveStart = 1780000000000

// heardCall returns the notices of a call that ended, as Agora sends them: its history has neither
// numbers nor times.
func heardCall(id string) []ingest.Notice {
	at := func(s int64) int64 { return archiveStart + s*1000 }
	about := func(n ingest.Notice) ingest.Notice {
		n.AgentID, n.Name, n.Channel, n.StartMS = id, "desk", "room", max(n.StartMS, archiveStart)
		return n
	}
	return []ingest.Notice{
		about(ingest.Notice{ID: id + ":101", Labels: map[string]string{"tenant": "t1"}}),
		about(ingest.Notice{ID: id + ":102", StopMS: at(60), Left: &memory.ArchiveEnd{Status: memory.Stopped, Message: memory.EndIdle}}),
		about(ingest.Notice{ID: id + ":103", StopMS: at(60), History: []memory.Message{
			{Role: memory.Assistant, Content: "Hello!"},
			{Role: memory.User, Content: "When is my train?"},
			{Role: memory.Assistant, Content: "The train leaves at"},
			{Role: memory.User, Content: "And the bus?"},
			{Role: memory.Assistant, Content: "I am sorry."},
		}}),
		about(ingest.Notice{ID: id + ":112", StartMS: archiveStart + 123, StopMS: at(60) + 456, Turns: []memory.ArchiveTurn{
			{TurnID: 1, StartMS: at(1), StartType: turns.StartGreeting, EndMS: at(2), EndType: turns.EndOK},
			{TurnID: 2, StartMS: at(10), StartType: turns.StartVoice, EndMS: at(13), EndType: turns.EndInterrupted, CausedBy: memory.ByStartOfSpeech, E2EMS: 900, TokenMS: 600, SentenceMS: 700},
			{TurnID: 3, StartMS: at(20), StartType: turns.StartVoice, EndMS: at(21), EndType: turns.EndError, Reason: "LLM_REQUEST_ERR", Details: "upstream said no"},
		}}),
		about(ingest.Notice{ID: id + ":110", Errors: []memory.ArchiveError{{TurnID: 3, Module: "llm", Code: 503, Message: "busy"}}}),
	}
}

// numberedCall gives one whose history tells all, of an agent with a custom LLM.
func numberedCall(id string) []ingest.Notice {
	notices := heardCall(id)
	turn := func(n int64, m memory.Message) memory.Message {
		m.TurnID, m.GivenTurn, m.Timestamp = n, true, archiveStart+n*1000
		return m
	}
	notices[2].History = []memory.Message{
		turn(1, memory.Message{Role: memory.Assistant, Source: memory.SourceGreeting, Content: "Hello!"}),
		turn(2, memory.Message{Role: memory.User, Source: memory.SourceASR, Content: "When?", Metadata: map[string]json.RawMessage{"user": json.RawMessage(`"42"`)}}),
		turn(2, memory.Message{Role: memory.Assistant, Source: memory.SourceLLM, Content: "The train", Interrupted: true, InterruptMS: archiveStart + 12_500, Generated: "The train leaves at nine."}),
		turn(3, memory.Message{Role: memory.User, Source: memory.SourceCommand, Content: "And the bus?"}),
	}
	longer := notices[2] // two notices of one history, of which one was cut
	longer.ID += "b"
	longer.History = append([]memory.Message{}, notices[2].History...)
	notices[2].History = longer.History[2:]
	return append(notices, longer)
}

// archived is all that is stored of an agent, without what counts changes.
type archived struct {
	Agent    memory.Agent
	Messages []memory.Message
}

func recordOf(t *testing.T, s service, id string) archived {
	t.Helper()
	h, msgs, err := s.Messages.Recent(t.Context(), "p", id, 1000)
	if err != nil {
		t.Fatal(err)
	}
	msgs, a := slices.Clone(msgs), *h.Agent // they are shared with the store
	a.Rev = 0
	for i := range msgs {
		msgs[i].Rev, msgs[i].Marks = 0, memory.Marks{}
	}
	return archived{a, msgs}
}

// takeRecord is recordOf for an agent that it erases.
func takeRecord(t *testing.T, s service, id string) archived {
	t.Helper()
	out := recordOf(t, s, id)
	if err := s.Agents.Erase(t.Context(), "p", id); err != nil {
		t.Fatal(err)
	}
	return out
}

// sameRecord compares as stored.
func sameRecord(t *testing.T, want, got archived) {
	t.Helper()
	a, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if string(a) != string(b) {
		t.Errorf("another record (-want +got):\n%s", cmp.Diff(string(a), string(b)))
	}
}

func file(t *testing.T, s service, notices ...ingest.Notice) {
	t.Helper()
	for _, n := range notices {
		if _, err := s.File(t.Context(), "p", n); err != nil {
			t.Fatalf("%s: %v", n.ID, err)
		}
	}
}

// permutations calls each with every order of n things.
func permutations(n int, each func(order []int)) {
	order := make([]int, 0, n)
	used := make([]bool, n)
	var next func()
	next = func() {
		if len(order) == n {
			each(order)
			return
		}
		for i := range n {
			if !used[i] {
				used[i] = true
				order = append(order, i)
				next()
				order = order[:len(order)-1]
				used[i] = false
			}
		}
	}
	next()
}

// TestFileAnyOrder: every order of an agent's notices, each of them also sent twice, gives the same
// record.
func TestFileAnyOrder(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(string) []ingest.Notice{"heard": heardCall, "numbered": numberedCall} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, nil)
			notices := call("a")
			file(t, s, notices...)
			want := takeRecord(t, s, "a")
			permutations(len(notices), func(order []int) {
				for i, at := range order {
					file(t, s, notices[at])
					if again := notices[order[i/2]]; i%2 == 0 {
						if changed, err := s.File(t.Context(), "p", again); changed || err != nil {
							t.Errorf("%s again: changed=%v, %v", again.ID, changed, err)
						}
					}
				}
				sameRecord(t, want, takeRecord(t, s, "a"))
				if t.Failed() {
					t.Fatalf("order %v", order)
				}
			})
		})
	}
}

// TestFileInterleaved shuffles the notices of several agents together, repeats among them, in calls
// that come at once, on a real store.
func TestFileInterleaved(t *testing.T) {
	t.Parallel()
	var all []ingest.Notice
	ids := []string{"a", "b", "c", "d"}
	plain := newService(t, nil)
	for i, id := range ids {
		call := heardCall
		if i%2 == 1 {
			call = numberedCall
		}
		file(t, plain, call(id)...)
		all = append(all, call(id)...)
	}
	all = append(all, all...)
	for seed := range uint64(10) {
		file, err := store.OpenSQLite(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "x.db")}, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := newService(t, func(c *agents.Config) { c.Ledger = file })
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		var at sync.WaitGroup
		for worker := range 4 {
			at.Go(func() {
				for i := worker; i < len(all); i += 4 {
					if _, err := s.File(t.Context(), "p", all[i]); err != nil {
						t.Errorf("%s: %v", all[i].ID, err)
					}
				}
			})
		}
		at.Wait()
		for _, id := range ids {
			sameRecord(t, recordOf(t, plain, id), recordOf(t, s, id))
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestFileRecord looks at what the record says.
func TestFileRecord(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	file(t, s, heardCall("a")...)
	r := recordOf(t, s, "a")
	if a := r.Agent; a.Name != "desk" || a.Status != memory.Stopped || a.Message != memory.EndIdle || a.StartMS != archiveStart+123 || a.StopMS != archiveStart+60_456 ||
		a.Settings.Channel != "room" || a.Settings.Labels["tenant"] != "t1" {
		t.Errorf("%+v", a)
	}
	var got []string
	for _, m := range r.Messages {
		got = append(got, fmt.Sprint(m.TurnID, " ", (m.Timestamp-archiveStart)/100, " ", m.Role, " ", m.Source, " ", m.Content))
	}
	want := []string{
		"0 10 assistant greeting Hello!", "1 100 user asr When is my train?", "1 109 assistant  The train leaves at",
		"2 200 user asr And the bus?", "2 200 assistant  I am sorry.",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if m := r.Messages[2]; !m.Interrupted || !m.CutGenerated || m.InterruptMS != archiveStart+13_000 || m.InterruptBy != memory.ByStartOfSpeech || m.Method != memory.VendorText {
		t.Errorf("cut: %+v", m)
	}
	if m := r.Messages[4]; m.Failure == nil || *m.Failure != (memory.Failure{Reason: "LLM_REQUEST_ERR", Code: 503, Message: "upstream said no"}) {
		t.Errorf("failed: %+v", m.Failure)
	}
	_, rows, err := turns.Read(t.Context(), s.Messages, "p", "a")
	if err != nil || len(rows) != 3 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	if row := rows[1]; row.StartMS != archiveStart+10_000 || row.EndMS != archiveStart+13_000 || row.EndType != turns.EndInterrupted || row.E2EMS != 900 || row.FirstTokenMS != 600 {
		t.Errorf("%+v", row)
	}
	if row := rows[2]; row.EndType != turns.EndError || row.Failure == nil {
		t.Errorf("%+v", row)
	}
}

// TestFileNumbered: what a history tells stands, whatever a turn table says.
func TestFileNumbered(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	file(t, s, numberedCall("a")...)
	msgs := recordOf(t, s, "a").Messages
	if len(msgs) != 4 {
		t.Fatalf("%d messages", len(msgs))
	}
	if m := msgs[2]; m.TurnID != 2 || m.Content != "The train" || m.Original() != "The train leaves at nine." || m.InterruptMS != archiveStart+12_500 || m.CutGenerated || m.Timestamp != archiveStart+2000 {
		t.Errorf("%+v", m)
	}
	if m := msgs[1]; string(m.Metadata["user"]) != `"42"` || m.Timestamp != archiveStart+2000 {
		t.Errorf("%+v", m)
	}
	// A turn without an answer.
	if m := msgs[3]; m.Failure == nil || m.Source != memory.SourceCommand {
		t.Errorf("%+v", m)
	}
}

// TestFileRefuses: an archived agent takes nothing but notices, and notices do not touch an agent
// that runs here.
func TestFileRefuses(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	own, err := s.Agents.Join(t.Context(), agents.JoinRequest{Project: "p", Name: "own", Properties: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.File(t.Context(), "p", ingest.Notice{ID: "n", AgentID: own.ID}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a notice about an agent of ours: %v", err)
	}
	file(t, s, heardCall("a")[0], heardCall("b")[0]) // two at once of one name, which is free here
	if _, err := s.Agents.Join(t.Context(), agents.JoinRequest{Project: "p", Name: "desk", Properties: []byte("{}")}); err != nil {
		t.Errorf("the name is not free: %v", err)
	}
	heard := "Hello"
	for what, err := range map[string]error{
		"append": func() error {
			_, err := s.Messages.Append(t.Context(), "p", "a", []memory.Message{{Role: memory.User, Content: "x"}})
			return err
		}(),
		"leave":  s.Agents.Leave(t.Context(), "p", "a", ""),
		"update": func() error { _, err := s.Agents.Update(t.Context(), "p", "a", agents.UpdateRequest{}); return err }(),
		"interrupt": func() error {
			_, err := s.Turns.Interrupt(t.Context(), "p", "a", agents.InterruptRequest{Heard: &heard})
			return err
		}(),
		"record": func() error {
			_, err := evidence.Service{Memory: s.Service}.Record(t.Context(), "p", "a", []evidence.Report{{Heard: &heard}})
			return err
		}(),
	} {
		if e, ok := errors.AsType[*fault.Error](err); !ok || !strings.Contains(e.Msg, "runs at Agora") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// noneOf wants every event and is to get none.
type noneOf struct{ t *testing.T }

func (noneOf) Wants(string, int) bool { return true }
func (n noneOf) Body(f agents.EventFacts) ([]byte, error) {
	n.t.Errorf("event %d was made of an agent that runs elsewhere", f.Type)
	return []byte("{}"), nil
}

// TestFileExpires: an agent whose end is never told ends when it must have; an end that is told
// later counts.
func TestFileExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, func(c *agents.Config) { c.IdleTimeout, c.Events = time.Minute, noneOf{t} })
		done := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() { done <- s.Agents.Run(ctx) }()
		notices := heardCall("a")
		notices[0].StartMS = time.Now().UnixMilli()
		file(t, s, notices[0])
		time.Sleep(memory.Lifetime - time.Second)
		synctest.Wait()
		if a := recordOf(t, s, "a").Agent; a.Status != memory.Running || a.ShownName() != "desk" {
			t.Errorf("before: %v %q", a.Status, a.ShownName())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if a := recordOf(t, s, "a").Agent; a.Status != memory.Stopped || a.Message != memory.EndLifetime || a.Name != "desk" {
			t.Errorf("after: %v %q", a.Status, a.Message)
		}
		file(t, s, notices[4])
		if a := recordOf(t, s, "a").Agent; a.Status != memory.Stopped {
			t.Errorf("a notice that tells no end: %v", a.Status)
		}
		file(t, s, notices[1])
		if a := recordOf(t, s, "a").Agent; a.Message != memory.EndIdle {
			t.Errorf("after its end was told: %q", a.Message)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
