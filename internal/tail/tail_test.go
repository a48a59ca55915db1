package tail_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/handlers"
	"github.com/heardlog/heardlog/internal/tail"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/store/storetest"
)

// tailServer is a server whose live tails are read over real connections, and the service behind
// it.
type tailServer struct {
	t     *testing.T
	url   string
	mem   *agents.Service
	store *countingStore
	reg   *prometheus.Registry
	done  chan struct{} // closed by stop
}

// countingStore counts reads.
type countingStore struct {
	memory.Ledger
	heads, pages atomic.Int64
	hold         sync.Map // by the agent's id, a *gate
}

// gate holds back reads of an agent's head, all but the first.
type gate struct {
	reads atomic.Int64
	open  chan struct{}
}

func (s *countingStore) Head(ctx context.Context, project, id string) (memory.Head, error) {
	s.heads.Add(1)
	if g, ok := s.hold.Load(id); ok && g.(*gate).reads.Add(1) > 1 {
		select {
		case <-g.(*gate).open:
		case <-ctx.Done():
			return memory.Head{}, context.Cause(ctx)
		}
	}
	return s.Ledger.Head(ctx, project, id)
}

func (s *countingStore) Messages(ctx context.Context, project, id string, q memory.MessageQuery) ([]memory.Message, error) {
	s.pages.Add(1)
	return s.Ledger.Messages(ctx, project, id, q)
}

func newTails(t *testing.T, limits tail.Limits) *tailServer {
	t.Helper()
	s := &tailServer{t: t, store: &countingStore{Ledger: storetest.New(t)}, reg: prometheus.NewRegistry(), done: make(chan struct{})}
	s.mem = newService(s.store)
	api := handlers.New(handlers.Config{
		Memory: s.mem, Access: &handlers.Access{DefaultProject: "p"}, Log: zerolog.Nop(), Metrics: handlers.NewMetrics(s.reg), MaxBody: 4 << 20,
		Ready: func(context.Context) error { return nil }, MetricsPage: http.NotFoundHandler(), Tail: limits, Done: s.done,
	})
	srv := httptest.NewServer(api)
	s.url = srv.URL
	t.Cleanup(func() {
		s.stop()
		srv.CloseClientConnections()
		srv.Close() // waits for every tail to end
		if n := s.metric("heardlog_tail_readers", ""); n != 0 {
			t.Errorf("%v readers are left", n)
		}
	})
	return s
}

func newService(store memory.Ledger) *agents.Service {
	return agents.NewService(agents.Config{Ledger: store, Now: time.Now, NewID: func() string { return uuid.Must(uuid.NewV7()).String() }})
}

func (s *tailServer) stop() {
	select {
	case <-s.done:
	default:
		close(s.done)
	}
}

// metric returns a metric's value; label is the value of its only label, "" for none.
func (s *tailServer) metric(name, label string) float64 {
	s.t.Helper()
	all, err := s.reg.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// eventually waits until another goroutine has made ok true.
func (s *tailServer) eventually(what string, ok func() bool) {
	s.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(end) {
			s.t.Fatalf("still not: %s", what)
		}
	}
}

func (s *tailServer) join() string {
	s.t.Helper()
	a, err := s.mem.Agents.Join(s.t.Context(), agents.JoinRequest{Project: "p", Name: uuid.NewString(), Settings: memory.Settings{IdleTimeoutS: -1}})
	if err != nil {
		s.t.Fatal(err)
	}
	return a.ID
}

func (s *tailServer) say(id string, msgs ...memory.Message) {
	s.t.Helper()
	if _, err := s.mem.Messages.Append(s.t.Context(), "p", id, msgs); err != nil {
		s.t.Fatal(err)
	}
}

func says(role memory.Role, text string) memory.Message {
	source := memory.SourceASR
	if role == memory.Assistant {
		source = memory.SourceLLM
	}
	return memory.Message{Role: role, Content: text, Source: source}
}

// received is an event as an EventSource dispatches it.
type received struct {
	ID, Name, Data string
}

// source reads server-sent events as the HTML specification has it ("Interpreting an event
// stream"). Its lastID outlives a connection.
type source struct {
	t      *testing.T
	url    string
	lastID string
	retry  int
	body   io.ReadCloser
	lines  *bufio.Reader
	status int
}

func (s *tailServer) source(id, query string) *source {
	return &source{t: s.t, url: s.url + "/v1/agents/" + id + "/events" + query}
}

// connect opens the stream. It reports false if nothing more will come, or the server refuses.
func (c *source) connect() bool {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.url, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if c.lastID != "" {
		req.Header.Set("Last-Event-ID", c.lastID)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		c.t.Fatal(err)
	}
	c.status, c.body, c.lines = resp.StatusCode, resp.Body, bufio.NewReader(resp.Body)
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return false
	}
	c.t.Cleanup(func() { _ = resp.Body.Close() })
	return true
}

// cutAfter makes the connection break after n bytes.
func (c *source) cutAfter(n int64) { c.lines = bufio.NewReader(io.LimitReader(c.body, n)) }

// next returns the next event, false at the end of the stream. It leaves out an incomplete event.
func (c *source) next() (received, bool) {
	var e received
	id, data := c.lastID, []string(nil)
	for {
		line, err := c.lines.ReadString('\n')
		if err != nil {
			_ = c.body.Close()
			return received{}, false
		}
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			c.lastID = id
			if data == nil {
				e.Name = ""
				continue
			}
			e.ID, e.Data = id, strings.Join(data, "\n")
			return e, true
		case field == "event":
			e.Name = value
		case field == "id":
			id = value
		case field == "data":
			data = append(data, value)
		case field == "retry":
			c.retry, _ = strconv.Atoi(value)
		}
	}
}

// until reads up to the first event of a name.
func (c *source) until(name string) received {
	c.t.Helper()
	for {
		e, ok := c.next()
		if !ok {
			c.t.Fatalf("the stream ended before %q", name)
		}
		if e.Name == name {
			return e
		}
	}
}

// rest reads to the end of the stream.
func (c *source) rest() (out []received) {
	for e, ok := c.next(); ok; e, ok = c.next() {
		out = append(out, e)
	}
	return out
}

// inLedger returns the events that are made of the ledger.
func inLedger(list []received) (out []received) {
	for _, e := range list {
		if e.Name != "state" && e.Name != "dropped" && !strings.Contains(e.Data, "searched") {
			out = append(out, e)
		}
	}
	return out
}

// TestTailEvents checks that each change is sent, in order, with what a client needs to act on it.
//
// Rules: 003-22
func TestTailEvents(t *testing.T) {
	t.Parallel()
	s := newTails(t, tail.Limits{})
	id := s.join()
	c := s.source(id, "?types=message,turn,interrupted,evidence,speak,memory")
	if c.connect(); c.status != http.StatusOK {
		t.Fatal(c.status)
	}
	s.say(id, says(memory.User, "Hi"), says(memory.Assistant, "Good morning to you"))
	heard := "Good morning"
	if _, err := s.mem.Turns.Interrupt(t.Context(), "p", id, agents.InterruptRequest{Heard: &heard, AtMS: 1780000000000}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.mem.Turns.Speak(t.Context(), "p", id, "Bye", agents.SpeakInterrupt, ""); err != nil {
		t.Fatal(err)
	}
	var got []string
	for len(got) < 15 {
		if len(got) == 14 { // the tail follows by now, and gets no searches of before
			s.mem.Messages.Searched("p", id, 3)
		}
		e, ok := c.next()
		if !ok {
			t.Fatalf("the stream ended after %q", got)
		}
		if e.Name == "message" {
			var m struct{ Content string }
			if err := json.Unmarshal([]byte(e.Data), &m); err != nil {
				t.Fatal(err)
			}
			e.Data = m.Content
		}
		got = append(got, e.ID+" "+e.Name+" "+e.Data)
	}
	want := []string{
		`2.1.0 turn {"phase":"opened","seq":1,"turn_id":0}`,
		`2.1.2 message Hi`,
		`2.1.8 memory {"action":"added","seq":1}`,
		`2.2.2 message Good morning to you`,
		`2.2.7 turn {"phase":"closed","seq":2,"turn_id":0}`,
		`2 memory {"action":"added","seq":2}`,
		`3.2.2 message Good morning`,
		`3.2.5 interrupted {"seq":2,"turn_id":0,"caused_by":"api_interrupt","interrupt_timestamp":1780000000000,"heard":"Good morning"}`,
		`3 evidence {"seq":2,"turn_id":0,"method":"vendor_text","state":"final","heard":"Good morning","at":1780000000000,"confidence":98}`,
		`4.3.0 turn {"phase":"opened","seq":3,"turn_id":1}`,
		`4.3.2 message Bye`,
		`4.3.3 speak {"kind":"speak","seq":3,"turn_id":1,"text":"Bye"}`,
		`4.3.7 turn {"phase":"closed","seq":3,"turn_id":1}`,
		`4 memory {"action":"added","seq":3}`,
		`4 memory {"action":"searched","count":3}`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestTailOfTheMemory checks that changes of the whole memory and of its summary are sent, live and
// on resume, and that erasing an agent ends its tails.
//
// Rules: 003-22
func TestTailOfTheMemory(t *testing.T) {
	t.Parallel()
	s := newTails(t, tail.Limits{})
	id := s.join()
	c := s.source(id, "?types=summary,memory")
	c.connect()
	s.say(id, says(memory.User, "Hi"))
	if _, err := memctx.New(s.mem).SetSummary(t.Context(), "p", id, "They said hi.", 1); err != nil {
		t.Fatal(err)
	}
	s.say(id, says(memory.User, "More"))
	if _, err := memctx.New(s.mem).Clear(t.Context(), "p", id); err != nil {
		t.Fatal(err)
	}
	s.say(id, says(memory.User, "Again"))
	if _, err := memctx.New(s.mem).SetSummary(t.Context(), "p", id, "", 0); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`2 memory {"action":"added","seq":1}`,
		`3.0.1 memory {"action":"trimmed","from_seq":2}`,
		`3.0.2 summary {"set":true,"summary":"They said hi.","up_to_seq":1}`,
		`4 memory {"action":"added","seq":2}`,
		`5.0.1 memory {"action":"cleared","from_seq":3}`,
		`6 memory {"action":"added","seq":3}`,
		`7.0.2 summary {"set":false}`,
	}
	var got []string
	for len(got) < len(want) {
		e, ok := c.next()
		if !ok {
			t.Fatalf("the stream ended after %q", got)
		}
		got = append(got, e.ID+" "+e.Name+" "+timestamps.ReplaceAllString(e.Data, ""))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	again := s.source(id, "?types=summary,memory&after=1")
	again.connect()
	for _, w := range want {
		e, _ := again.next()
		if g := e.ID + " " + e.Name + " " + timestamps.ReplaceAllString(e.Data, ""); g != w {
			t.Errorf("coming back: %s, want %s", g, w)
		}
	}
	if err := s.mem.Agents.Erase(t.Context(), "p", id); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*source{c, again} {
		if e := r.until("dropped"); e.Data != `{"reason":"erased"}` {
			t.Errorf("%+v", e)
		}
	}
	if c.connect() || c.status != http.StatusNotFound {
		t.Errorf("an erased agent is answered with %d", c.status)
	}
}

var timestamps = regexp.MustCompile(`,"timestamp":\d+`)
