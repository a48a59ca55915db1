package webhook_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

// TestFault25Signatures checks with an independent verifier the signatures of the first and the
// ninth attempt: of both secrets while one replaces the other, and only of the new one afterwards.
// The body never changes, and each signature has its own time.
func TestFault25Signatures(t *testing.T) {
	t.Parallel()
	const renewed = "whsec_cmVuZXdlZC1yZW5ld2VkLXJlbmV3ZWQtMTIzNA=="
	url, seen := hits(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	s := newSite(t)
	s.endpoint("e", url, nil)
	s.emit(s.event("n"))
	s.work(nil, nil)
	takes := func(secret string, h hit) bool {
		t.Helper()
		lib, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		// The attempts are days apart by the test's clock, which the library does not know.
		return lib.VerifyIgnoringTimestamp([]byte(h.body), h.header) == nil
	}
	body, last := "", int64(0)
	for n := 1; n <= 10; n++ {
		h := receiveFrom(t, seen, "an attempt")
		r := s.next()
		if h.header.Get("Webhook-Attempt") != strconv.Itoa(n) || r.Attempt != n || body != "" && h.body != body {
			t.Fatalf("attempt %d is %v", n, h)
		}
		body = h.body
		at, err := strconv.ParseInt(h.header.Get("Webhook-Timestamp"), 10, 64)
		if err != nil || at <= last || time.Unix(at, 0).Sub(s.now()).Abs() > time.Minute {
			t.Errorf("attempt %d is signed at %d, the one before at %d", n, at, last)
		}
		last = at
		if o, w := takes(whsec, h), n <= 5; o != w {
			t.Errorf("attempt %d: the old secret verifies: %t", n, o)
		}
		if o, w := takes(renewed, h), n >= 4; o != w {
			t.Errorf("attempt %d: the new secret verifies: %t", n, o)
		}
		s.endpoint("e", url, func(e *webhook.Endpoint) {
			switch overlap := (webhook.SigningSecret{Value: whsec, NotAfter: s.now().Add(time.Hour)}); {
			case n+1 >= 6: // revoked
				e.Secrets = []webhook.SigningSecret{{Value: renewed}}
			case n+1 >= 4:
				overlap.NotAfter = s.now().Add(100 * time.Hour)
				e.Secrets = []webhook.SigningSecret{{Value: renewed}, overlap}
			}
		})
		s.pass(30 * time.Hour)
	}
	s.wantBacklog(0, 1)
}

// TestFault25SecretRunsOut checks that a secret that has expired signs no more, without any call.
func TestFault25SecretRunsOut(t *testing.T) {
	t.Parallel()
	url, seen := hits(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	s := newSite(t)
	s.endpoint("e", url, func(e *webhook.Endpoint) {
		e.Secrets = []webhook.SigningSecret{{Value: "first", NotAfter: s.now().Add(time.Hour)}, {Value: "second"}}
	})
	s.emit(s.event("n"))
	s.work(nil, nil)
	for n, want := range []bool{true, false} {
		h := receiveFrom(t, seen, "an attempt")
		s.next()
		if err := verifyStandard("first", h.header, []byte(h.body), s.now()); (err == nil) != want {
			t.Errorf("attempt %d: %v", n+1, err)
		}
		if err := verifyStandard("second", h.header, []byte(h.body), s.now()); err != nil {
			t.Errorf("attempt %d: %v", n+1, err)
		}
		s.pass(2 * time.Hour)
	}
}

// TestFault26Bodies sends memories with difficult contents: the stored bytes arrive, are JSON, and
// independent libraries verify them.
func TestFault26Bodies(t *testing.T) {
	t.Parallel()
	message := func(text string, turn int) json.RawMessage {
		return fmt.Appendf(nil, `{"role":"user","content":"%s","turn_id":%d}`, text, turn)
	}
	turns := make([]json.RawMessage, 100_000)
	for i := range turns {
		turns[i] = message("yes", i)
	}
	url, seen := hits(t, nil)
	s := newSite(t)
	s.endpoint("e", url, nil)
	bodies := map[string]string{}
	for id, contents := range map[string][]json.RawMessage{
		"empty":        nil,
		"bad UTF-8":    {message("caf\xe9 \xed\xa0\x80", 0)},
		"NUL":          {message(`a\u0000b`, 0)},
		"emoji":        {message("😀👩‍👩‍👧‍👦", 0)},
		"5 MB":         {message(strings.Repeat("é😀 ", 5<<20/7), 0)},
		"100000 turns": turns,
	} {
		id = strings.ReplaceAll(id, " ", "-")
		body, err := webhook.Encode(webhook.Notice{ID: id, AtMS: s.now().UnixMilli(), Payload: webhook.History{About: about(), Contents: contents}})
		if err != nil {
			t.Fatal(err)
		}
		bodies[id] = string(body)
		s.emit(memory.Event{ID: id, Type: event.History, CreatedMS: s.now().UnixMilli(), Body: body})
	}
	s.work(nil, nil)
	lib, err := standardwebhooks.NewWebhook(whsec)
	if err != nil {
		t.Fatal(err)
	}
	for range bodies {
		if r := s.next(); r.State != webhook.Delivered {
			t.Errorf("%s: %+v", r.EventID, r.Result)
		}
		h := receiveFrom(t, seen, "an event")
		if h.body != bodies[h.id()] || !json.Valid([]byte(h.body)) {
			t.Errorf("%s: %d bytes came, %d were stored", h.id(), len(h.body), len(bodies[h.id()]))
		}
		if err := lib.Verify([]byte(h.body), h.header); err != nil {
			t.Errorf("%s: %v", h.id(), err)
		}
	}
}

// TestFault27StuckEndpoint checks that an endpoint that never answers, with a thousand deliveries
// waiting, gets no more than its share of the attempts. Other endpoints' deliveries are sent
// meanwhile, and its own first attempts before its retries.
func TestFault27StuckEndpoint(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	var inside, most atomic.Int32
	stuck, _ := hits(t, func(http.ResponseWriter, *http.Request) {
		n := inside.Add(1)
		defer inside.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		<-hold
	})
	free := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(free)
	live, seen := hits(t, nil)
	s := newSite(t)
	s.endpoint("stuck", stuck, nil)
	var list []memory.Event
	for i := range 1000 {
		list = append(list, s.event(fmt.Sprintf("old%d", i)))
	}
	s.emit(list...)
	s.endpoint("live", live, nil)
	stop := s.work(nil, func(c *webhook.WorkerConfig) { c.Drain = time.Millisecond })
	timedOut := false
	for i := range 200 {
		id := fmt.Sprintf("new%d", i)
		s.emit(s.event(id))
		if h := receiveFrom(t, seen, id); h.id() != id {
			t.Fatalf("%s came for %s", h.id(), id)
		}
		r := s.next()
		for ; r.Endpoint.ID == "stuck"; r = s.next() { // on a slow machine its attempts time out
			timedOut = true
		}
		if r.State != webhook.Delivered {
			t.Fatalf("%+v", r)
		}
	}
	// The receiver still holds what has timed out, beside the next attempts.
	if n := most.Load(); n < webhook.DefaultPerEndpoint || n > webhook.DefaultPerEndpoint && !timedOut {
		t.Errorf("%d attempts at once for the stuck one", n)
	}
	free()
	stop()
}

// TestFault30Edited checks that an endpoint that is changed between two attempts gets what waits at
// its new address, signed with its new secret.
func TestFault30Edited(t *testing.T) {
	t.Parallel()
	broken, _ := hits(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	url, seen := hits(t, nil)
	s := newSite(t)
	s.endpoint("e", broken, nil)
	s.emit(s.event("n"))
	s.work(nil, nil)
	if r := s.next(); r.State != webhook.Pending {
		t.Fatalf("%+v", r.Result)
	}
	s.endpoint("e", url, func(e *webhook.Endpoint) { e.Secrets = []webhook.SigningSecret{{Value: "another"}} })
	s.pass(2 * time.Hour)
	if r := s.next(); r.State != webhook.Delivered || r.Attempt != 2 {
		t.Errorf("%+v", r.Result)
	}
	h := receiveFrom(t, seen, "the event")
	if err := verifyStandard("another", h.header, []byte(h.body), s.now()); err != nil {
		t.Error(err)
	}
	if err := verifyStandard(whsec, h.header, []byte(h.body), s.now()); err == nil {
		t.Error("signed with the old secret")
	}
}

// TestFault30Gone checks an endpoint that a 410 disabled: enabled again, it gets what waited, and
// only the event that was answered 410 is dead. Deleted, it leaves what waits dead with a reason.
func TestFault30Gone(t *testing.T) {
	t.Parallel()
	var answer atomic.Int32
	answer.Store(http.StatusGone)
	url, seen := hits(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(answer.Load())) })
	s := newSite(t)
	s.endpoint("e", url, nil)
	s.emit(s.event("n1"), s.event("n2"))
	s.work(nil, func(c *webhook.WorkerConfig) { c.InFlight = 1 })
	if r := s.next(); r.EventID != "n1" || r.State != webhook.Dead || r.DisableEndpoint == "" {
		t.Fatalf("%+v", r)
	}
	s.wantBacklog(1, 1)
	answer.Store(http.StatusOK)
	s.endpoint("e", url, nil)
	s.emit() // wakes the worker
	if r := s.next(); r.EventID != "n2" || r.State != webhook.Delivered || r.Attempt != 1 {
		t.Errorf("%+v", r)
	}
	if len(seen) != 2 {
		t.Errorf("%d attempts", len(seen))
	}
	answer.Store(http.StatusInternalServerError)
	s.emit(s.event("n3"))
	if r := s.next(); r.State != webhook.Pending {
		t.Errorf("%+v", r)
	}
	if err := s.DeleteEndpoint(t.Context(), "", "e"); err != nil {
		t.Fatal(err)
	}
	s.wantBacklog(0, 2)
}

// TestFault32FanOut checks three endpoints, one of which fails: the others get each event exactly
// once, and the failing one gets all when it works again.
func TestFault32FanOut(t *testing.T) {
	t.Parallel()
	const n = 50
	var ill atomic.Bool
	ill.Store(true)
	s := newSite(t)
	var seen [3]chan hit
	for i := range seen {
		var url string
		url, seen[i] = hits(t, func(w http.ResponseWriter, _ *http.Request) {
			if i == 1 && ill.Load() {
				w.WriteHeader(500)
			}
		})
		s.endpoint(fmt.Sprint(i), url, nil)
	}
	var list []memory.Event
	for i := range n {
		list = append(list, s.event(fmt.Sprint("n", i)))
	}
	s.emit(list...)
	// Each delivery of the failing endpoint is tried.
	s.work(nil, func(c *webhook.WorkerConfig) { c.BreakAfter = -1 })
	for range 3 * n {
		s.next()
	}
	s.wantBacklog(n, 0)
	ill.Store(false)
	s.pass(2 * time.Hour)
	for range n {
		if r := s.next(); r.Endpoint.ID != "1" || r.State != webhook.Delivered {
			t.Errorf("%+v", r)
		}
	}
	s.wantBacklog(0, 0)
	for i, want := range []int{1, 2, 1} {
		got := map[string]int{}
		for len(seen[i]) > 0 {
			got[(<-seen[i]).id()]++
		}
		for _, e := range list {
			if got[e.ID] != want {
				t.Errorf("endpoint %d got %s %d times, want %d", i, e.ID, got[e.ID], want)
			}
		}
	}
}
