package webhook_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/webhook"
)

// syncWriter makes a writer safe for concurrent use.
type syncWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *syncWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// ledger is a receiver that verifies and keeps what it gets.
type ledger struct {
	mu     sync.Mutex
	bodies map[string][][]byte
	bad    []error
	full   chan struct{} // closed when want different events have been taken
	want   int
	refuse func(id string, nth int) bool // whether to answer 503
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := verifyStandard(whsec, r.Header, body, time.Now()); err != nil {
		l.bad = append(l.bad, err)
	}
	if err := webhook.VerifyAgora(whsec, r.Header, body); err != nil {
		l.bad = append(l.bad, err)
	}
	id := r.Header.Get("Webhook-Id")
	l.bodies[id] = append(l.bodies[id], body)
	if l.refuse != nil && l.refuse(id, len(l.bodies[id])) {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if l.want--; l.want == 0 {
		close(l.full)
	}
	fmt.Fprint(w, `{"code":0,"msg":"success"}`)
}

// TestDeliverAll delivers over real sockets: every event arrives, signed, with the same bytes on
// each of its attempts.
func TestDeliverAll(t *testing.T) {
	t.Parallel()
	const n = 200
	l := &ledger{
		bodies: map[string][][]byte{}, full: make(chan struct{}), want: n,
		// One in ten needs two attempts.
		refuse: func(id string, nth int) bool { return nth == 1 && id[len(id)-1] == '7' },
	}
	srv := httptest.NewServer(l)
	t.Cleanup(srv.Close)
	q := newQueue()
	q.add("a", n)
	for i, r := range q.rows {
		r.EventID, r.Body = fmt.Sprintf("n:%d", i), fmt.Appendf(nil, `{"noticeId":"n:%d","text":"é😀"}`, i)
	}
	e := delivery(srv.URL).Endpoint
	e.ID = "a"
	if err := q.PutEndpoint(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	s := newSender(t, nil)
	w, err := webhook.NewWorker(webhook.WorkerConfig{
		Queue: q, Sender: s, Policy: webhook.Policy{Schedule: webhook.Schedule{time.Millisecond}}, Poll: 10 * time.Millisecond, Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	select {
	case <-l.full:
	case <-time.After(faultPatience):
		t.Error("not all arrived")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(l.bad) > 0 {
		t.Errorf("%d bad signatures, the first: %v", len(l.bad), l.bad[0])
	}
	for i := range n {
		r := q.get(int64(i + 1))
		got := l.bodies[r.EventID]
		want := 1
		if i%10 == 7 {
			want = 2
		}
		if len(got) != want || r.state != webhook.Delivered || len(r.tries) != want {
			t.Fatalf("%s: %d attempts arrived, %s, %+v", r.EventID, len(got), r.state, r.tries)
		}
		for _, b := range got {
			if !bytes.Equal(b, r.Body) {
				t.Errorf("%s: %s", r.EventID, cmp.Diff(string(r.Body), string(b)))
			}
		}
		if last := r.tries[want-1]; string(last.Response) != `{"code":0,"msg":"success"}` || last.Status != 200 || last.StartedMS == 0 {
			t.Errorf("%s: record %+v", r.EventID, last)
		}
	}
}

// BenchmarkDeliver measures a delivery without the store: worker, signatures, HTTP over loopback.
func BenchmarkDeliver(b *testing.B) {
	var left sync.WaitGroup
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer srv.Close()
	q := &endlessQueue{left: b.N, done: &left, delivery: delivery(srv.URL)}
	q.delivery.Body = bytes.Repeat([]byte("x"), 2000)
	s, err := webhook.NewSender(webhook.SenderConfig{Dial: new(net.Dialer).DialContext})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	w, err := webhook.NewWorker(webhook.WorkerConfig{Queue: q, Sender: s, Log: zerolog.Nop()})
	if err != nil {
		b.Fatal(err)
	}
	left.Add(b.N)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	b.ResetTimer()
	go func() { done <- w.Run(ctx) }()
	left.Wait()
	b.StopTimer()
	cancel()
	<-done
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
}

// endlessQueue returns the same delivery again and again, for the benchmark.
type endlessQueue struct {
	fakeQueue
	left     int
	done     *sync.WaitGroup
	delivery webhook.Delivery
}

func (q *endlessQueue) Waiting(_ context.Context, l webhook.Look) ([]webhook.Waiting, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return []webhook.Waiting{{Endpoint: &q.delivery.Endpoint, Due: make([]webhook.Due, min(q.left, l.Limit))}}, nil
}

func (q *endlessQueue) Claim(_ context.Context, t webhook.Taking) ([]webhook.Delivery, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.left -= len(t.List)
	return slices.Repeat([]webhook.Delivery{q.delivery}, len(t.List)), nil
}

func (q *endlessQueue) Finish(context.Context, webhook.Delivery, webhook.Result) error {
	q.done.Done()
	return nil
}
