package tail_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heardlog/heardlog"
	"github.com/heardlog/heardlog/internal/spectest"
	"github.com/heardlog/heardlog/internal/tail"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// TestTailIsMadeOnce checks that a change is encoded once for all readers, without a read of the
// store.
func TestTailIsMadeOnce(t *testing.T) {
	t.Parallel()
	const readers, changes, events = 100, 50, 3 // of each change: turn, message, memory
	s := newTails(t, tail.Limits{})
	id := s.join()
	var tails []*source
	for range readers {
		c := s.source(id, "")
		c.connect()
		c.until("state")
		tails = append(tails, c)
	}
	heads, pages := s.store.heads.Load(), s.store.pages.Load()
	for i := range changes {
		s.say(id, says(memory.Assistant, "good"), says(memory.User, fmt.Sprint(i)))
	}
	var wg sync.WaitGroup
	for _, c := range tails {
		wg.Go(func() {
			for n := 0; n < 2*changes; {
				e, ok := c.next()
				if !ok {
					t.Errorf("a tail ended after %d messages", n)
					return
				}
				if e.Name == "message" {
					n++
				}
			}
		})
	}
	wg.Wait()
	if n := s.store.heads.Load() - heads + s.store.pages.Load() - pages; n != 0 {
		t.Errorf("%d reads of the store for %d changes and %d readers", n, changes, readers)
	}
	made := s.metric("heardlog_tail_events_made_total", "")
	var sent float64
	s.eventually("all was counted", func() bool {
		sent = s.metric("heardlog_tail_events_sent_total", "")
		return sent >= readers*made
	})
	if most := float64(changes*2*events) + 1; made > most || made < 2*changes {
		t.Errorf("%v events were made of %d changes", made, changes)
	}
	if sent > readers*(made+changes+3) { // and for each reader the agent as it was and its states
		t.Errorf("%v events were sent of %v", sent, made)
	}
}

// TestTailBehindTheRing checks that a reader that is further behind than the hub keeps reads the
// store, and gets nothing twice.
func TestTailBehindTheRing(t *testing.T) {
	t.Parallel()
	s := newTails(t, tail.Limits{})
	id := s.join()
	there := s.source(id, "?types=message")
	there.connect() // keeps the hub alive
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 60 {
			there.until("message")
		}
	})
	long := strings.Repeat("x", 50<<10)
	for range 60 { // 3 MB: more than the ring and than is read at a time
		s.say(id, says(memory.User, long))
	}
	wg.Wait()
	away := s.source(id, "?types=message&after=0")
	away.connect()
	last := ""
	for i := range 60 {
		if e := away.until("message"); e.ID == last || !strings.Contains(e.Data, fmt.Sprintf(`{"seq":%d,`, i+1)) {
			t.Fatalf("event %d is %s %.40s", i, e.ID, e.Data)
		} else {
			last = e.ID
		}
	}
	if n := s.metric("heardlog_tail_reads_total", "reader"); n < 2 || n > 10 {
		t.Errorf("it read the store %v times", n)
	}
	s.say(id, says(memory.User, "and then"))
	if e := away.until("message"); !strings.Contains(e.Data, "and then") {
		t.Errorf("%.80s", e.Data)
	}
}

// TestTailFromTheBeginning checks that a long ledger that is read from its start, piece by piece,
// is read once and not once for each piece, and that a late answer comes in its place.
func TestTailFromTheBeginning(t *testing.T) {
	t.Parallel()
	s := newTails(t, tail.Limits{})
	id := s.join()
	const messages = 4000
	text := strings.Repeat("x", 5<<10)
	list := make([]memory.Message, 100)
	for i := range list {
		list[i] = says(memory.User, text)
	}
	for range messages / len(list) {
		s.say(id, list...)
	}
	heard := "good"
	s.say(id, says(memory.Assistant, "good morning"))
	if _, err := s.mem.Turns.Interrupt(t.Context(), "p", id, agents.InterruptRequest{Heard: &heard, AtMS: 1}); err != nil {
		t.Fatal(err)
	}
	pages := s.store.pages.Load()
	c := s.source(id, "?types=message,interrupted&after=0")
	c.connect()
	for i := range messages + 1 {
		if e := c.until("message"); !strings.Contains(e.Data, fmt.Sprintf(`{"seq":%d,`, i+1)) {
			t.Fatalf("event %d is %s %.40s", i, e.ID, e.Data)
		}
	}
	c.until("interrupted")
	pieces := int64(s.metric("heardlog_tail_reads_total", "reader"))
	if n := s.store.pages.Load() - pages; pieces < 15 || n > 5*pieces {
		t.Errorf("%d pages were read for %d pieces", n, pieces)
	}
}

// TestTailOfAnotherServer checks that what another server writes to the store is sent once the
// driver reports a change.
func TestTailOfAnotherServer(t *testing.T) {
	t.Parallel()
	s := newTails(t, tail.Limits{})
	other := newService(s.store)
	id := s.join()
	c := s.source(id, "?types=message")
	c.connect()
	there := s.source(id, "")
	there.connect()
	there.until("state")
	for i := range 20 {
		text := fmt.Sprint("word ", i)
		if i%3 == 0 {
			s.say(id, says(memory.User, text))
		} else {
			if _, err := other.Messages.Append(t.Context(), "p", id, []memory.Message{says(memory.User, text)}); err != nil {
				t.Fatal(err)
			}
			s.mem.Messages.Changed("p", id)
		}
		if e := c.until("message"); !strings.Contains(e.Data, `"`+text+`"`) {
			t.Fatalf("%s came instead of %q", e.Data, text)
		}
	}
	s.mem.Messages.Changed("p", "nobody") // costs nothing and finds nobody
}

// TestTailLimits checks the limits of open tails, of an agent and of the server.
func TestTailLimits(t *testing.T) {
	t.Parallel()
	s := newTails(t, tail.Limits{Readers: 3, AgentReaders: 2})
	a, b := s.join(), s.join()
	var open []*source
	for _, id := range []string{a, a, b} {
		c := s.source(id, "")
		if !c.connect() {
			t.Fatal(c.status)
		}
		open = append(open, c)
	}
	for _, c := range []struct {
		id, reason, says string
		status           int
	}{
		{b, "ServiceUnavailable", "the server has 3 live tails open", http.StatusServiceUnavailable},
	} {
		refusedTail(t, s, c.id, c.status, c.reason, c.says)
	}
	_ = open[2].body.Close()
	s.eventually("the tail of b is gone", func() bool { return s.metric("heardlog_tail_readers", "") == 2 })
	refusedTail(t, s, a, http.StatusTooManyRequests, "ConcurrencyLimitExceeded", "has 2 live tails open")
	if c := s.source(b, ""); !c.connect() {
		t.Errorf("%d: a refused reader has taken a place", c.status)
	}
	if s.metric("heardlog_tail_refused_total", "agent") != 1 || s.metric("heardlog_tail_refused_total", "server") != 1 {
		t.Error("the refusals were not counted")
	}
}

func refusedTail(t *testing.T, s *tailServer, id string, status int, reason, says string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/agents/"+id+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	described, err := spectest.Load(t.Context(), heardlog.Spec)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := described.Transport(t, http.DefaultTransport).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var e struct{ Detail, Reason string }
	if err := jsonOf(resp.Body, &e); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != status || e.Reason != reason || !strings.Contains(e.Detail, says) || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %+v %v, want %d %s %q", resp.StatusCode, e, resp.Header, status, reason, says)
	}
}

// TestSlowTail checks that a reader that takes nothing is dropped and counted, and delays no other.
func TestSlowTail(t *testing.T) {
	t.Parallel()
	s := newTails(t, tail.Limits{Write: 2 * time.Second})
	id := s.join()
	slow, quick := s.source(id, "?types=message"), s.source(id, "?types=message")
	slow.connect() // and never reads
	quick.connect()
	long := strings.Repeat("x", 500<<10)
	for range 60 { // 30 MB: more than all buffers on its way
		s.say(id, says(memory.User, long))
		quick.until("message")
	}
	s.eventually("the slow reader is dropped", func() bool { return s.metric("heardlog_tail_dropped_total", "slow") > 0 })
	if n := s.metric("heardlog_tail_readers", ""); n != 1 {
		t.Errorf("%v readers are left", n)
	}
	s.say(id, says(memory.User, "and on"))
	for e := quick.until("message"); !strings.Contains(e.Data, "and on"); e = quick.until("message") {
	}
}

// TestTailBehindForTooLong checks that a reader that never catches up is dropped as too slow.
func TestTailBehindForTooLong(t *testing.T) {
	t.Parallel()
	s := newTails(t, tail.Limits{Behind: time.Nanosecond})
	id := s.join()
	c := s.source(id, "?types=message,state")
	c.connect()
	c.until("state") // it is up to date
	for range 30 {   // 15 MB: what it takes at a time does not bring it up to date
		s.say(id, says(memory.User, strings.Repeat("x", 500<<10)))
	}
	var last received
	for e, ok := c.next(); ok; e, ok = c.next() {
		last = e
	}
	if last.Name != "dropped" || last.Data != `{"reason":"slow"}` || c.retry < 500 {
		t.Errorf("the end was %q %.60q, retry %d", last.Name, last.Data, c.retry)
	}
}

// TestTailAtShutdown checks that readers learn that the server stops and when to reconnect, not all
// at once.
func TestTailAtShutdown(t *testing.T) {
	t.Parallel()
	s := newTails(t, tail.Limits{})
	id := s.join()
	var tails []*source
	for range 20 {
		c := s.source(id, "")
		c.connect()
		c.until("state")
		tails = append(tails, c)
	}
	s.stop()
	retries := map[int]bool{}
	for _, c := range tails {
		if e := c.until("dropped"); e.Data != `{"reason":"shutdown"}` {
			t.Errorf("%+v", e)
		}
		if rest := c.rest(); len(rest) > 0 {
			t.Errorf("after it came %+v", rest)
		}
		retries[c.retry] = true
	}
	if len(retries) < 3 || retries[0] {
		t.Errorf("they come back after %v", retries)
	}
	if n := s.metric("heardlog_tail_dropped_total", "shutdown"); n != 20 {
		t.Errorf("%v were counted", n)
	}
}

// TestTailBeats checks that a quiet tail gets heartbeats, with the current ID if a filter hid it.
func TestTailBeats(t *testing.T) {
	t.Parallel()
	s := newTails(t, tail.Limits{Heartbeat: 5 * time.Millisecond})
	id := s.join()
	c := s.source(id, "?types=summary")
	c.connect()
	s.say(id, says(memory.User, "not asked for"))
	for line := ""; line != "id: 2\n"; {
		var err error
		if line, err = c.lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if line, _ := c.lines.ReadString('\n'); line != "\n" { // no event
		t.Errorf("behind it stands %q", line)
	}
}

// TestTailRefusals checks that IDs, event names and agents that do not exist are refused.
func TestTailRefusals(t *testing.T) {
	t.Parallel()
	s := newTails(t, tail.Limits{})
	id := s.join()
	for _, bad := range []string{"x", "-1", "1.5", "1.2.x", "1.2.3.4", "1..2", "+1", "1.2.100", "0.1.1", "99999999999999999999", "."} {
		c := s.source(id, "")
		if c.lastID = bad; c.connect() || c.status != http.StatusBadRequest {
			t.Errorf("%q: %d", bad, c.status)
		}
	}
	if c := s.source(id, "?types=message,gossip"); c.connect() || c.status != http.StatusBadRequest {
		t.Errorf("an unknown event: %d", c.status)
	}
	if c := s.source("unknown", ""); c.connect() || c.status != http.StatusNotFound {
		t.Errorf("an unknown agent: %d", c.status)
	}
}

// TestTailStates checks that a tail starts with what the agent is doing and reports each change of
// it.
func TestTailStates(t *testing.T) {
	t.Parallel()
	s := newTails(t, tail.Limits{})
	id := s.join()
	c := s.source(id, "?types=state")
	c.connect()
	want := func(data string) {
		t.Helper()
		if e := c.until("state"); e.Data != data || e.ID != "" {
			t.Fatalf("%+v, want %s", e, data)
		}
	}
	want(`{"state":"listening"}`)
	turn, err := s.mem.Turns.Begin(t.Context(), "p", id, agents.TurnRequest{
		Plan: func(memory.Head, []memory.Message) (agents.Plan, error) {
			return agents.Plan{Append: []memory.Message{says(memory.User, "Hi")}}, nil
		},
		Cut: func(error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	want(`{"state":"thinking","turn_id":0}`)
	s.mem.Turns.Progress(turn, memory.Speaking)
	want(`{"state":"speaking","turn_id":0}`)
	late := s.source(id, "?types=state")
	late.connect()
	if e := late.until("state"); e.Data != `{"state":"speaking","turn_id":0}` {
		t.Errorf("who comes late is told %s", e.Data)
	}
	if _, err := s.mem.Turns.Settle(t.Context(), turn, agents.Answer{Generated: "Yes", Sent: "Yes", Complete: true}); err != nil {
		t.Fatal(err)
	}
	want(`{"state":"listening"}`)
}

// TestTailWaitsForItsOwnStore checks that a slow read of one agent's head delays only tails of that
// agent, and that they share one read.
func TestTailWaitsForItsOwnStore(t *testing.T) {
	t.Parallel()
	s := newTails(t, tail.Limits{})
	slow, quick := s.join(), s.join()
	held := &gate{open: make(chan struct{})}
	s.store.hold.Store(slow, held)
	opened := make(chan bool, 3)
	for range 3 {
		go func() { opened <- s.source(slow, "").connect() }()
	}
	// That of the request which came first, and the second of it, which the hub begins with;
	// others.
	s.eventually("reads that wait", func() bool { return held.reads.Load() == 4 })
	other := s.source(quick, "")
	there := make(chan bool, 1)
	go func() { there <- other.connect() }()
	s.eventually("the tail of another agent", func() bool { return len(there) == 1 })
	if !<-there {
		t.Fatal("the tail of another agent was refused")
	}
	s.say(quick, says(memory.User, "hello"))
	other.until("message")
	close(held.open)
	for range 3 {
		if !<-opened {
			t.Error("a tail was refused after the wait")
		}
	}
}
