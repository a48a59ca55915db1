package webhook_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

// fakeQueue is a webhook.Queue in memory, with faults that tests set.
type fakeQueue struct {
	mu        sync.Mutex
	endpoints map[string]webhook.Endpoint
	rows      []*row
	woken     chan struct{}
	claims    int // calls of Waiting

	// Faults; each may be nil.
	onClaim   func(ctx context.Context) error // before a claim
	onFinish  func(ctx context.Context, d webhook.Delivery) error
	onBacklog func() error
}

type row struct {
	webhook.Delivery
	state        webhook.DeliveryState
	due          int64
	claimedUntil int64 // 0 = not claimed
	reason       string
	tries        []webhook.Attempt
}

var _ webhook.Queue = (*fakeQueue)(nil)

func newQueue() *fakeQueue {
	return &fakeQueue{endpoints: map[string]webhook.Endpoint{}, woken: make(chan struct{}, 1)}
}

// add stores n deliveries that are due now, for an endpoint of the id.
func (q *fakeQueue) add(endpoint string, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.endpoints[endpoint]; !ok {
		q.endpoints[endpoint] = webhook.Endpoint{ID: endpoint, URL: "http://" + endpoint + ".test/hook"}
	}
	for range n {
		id := int64(len(q.rows) + 1)
		now := time.Now().UnixMilli()
		q.rows = append(q.rows, &row{state: webhook.Pending, due: now, Delivery: webhook.Delivery{
			ID: id, EventID: "n:" + string(rune('0'+id%10)), Type: event.Left, Body: []byte("{}"), CreatedMS: now,
			Endpoint: webhook.Endpoint{ID: endpoint},
		}})
	}
}

// move puts an endpoint into a project.
func (q *fakeQueue) move(endpoint, project string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.endpoints[endpoint]
	e.Project = project
	q.endpoints[endpoint] = e
}

func (q *fakeQueue) wake() {
	select {
	case q.woken <- struct{}{}:
	default:
	}
}

// get returns a copy of a row.
func (q *fakeQueue) get(id int64) row {
	q.mu.Lock()
	defer q.mu.Unlock()
	return *q.rows[id-1]
}

// claimed returns how often Waiting was called.
func (q *fakeQueue) claimed() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.claims
}

func (q *fakeQueue) count(s webhook.DeliveryState, endpoint string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, r := range q.rows {
		if r.state == s && (endpoint == "" || r.Endpoint.ID == endpoint) {
			n++
		}
	}
	return n
}

func (q *fakeQueue) PutEndpoint(_ context.Context, e webhook.Endpoint) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.endpoints[e.ID] = e
	return nil
}

func (q *fakeQueue) DeleteEndpoint(context.Context, string) error {
	return errors.New("the worker has no business here")
}

func (q *fakeQueue) Endpoints(context.Context, string) ([]webhook.Endpoint, error) {
	return nil, errors.New("the worker has no business here")
}

func (q *fakeQueue) Attempts(context.Context, string) ([]webhook.Attempt, error) {
	return nil, errors.New("the worker has no business here")
}

func (q *fakeQueue) Woken() <-chan struct{} { return q.woken }

func (q *fakeQueue) Waiting(ctx context.Context, l webhook.Look) ([]webhook.Waiting, error) {
	q.mu.Lock()
	q.claims++
	fail := q.onClaim
	q.mu.Unlock()
	if fail != nil {
		if err := fail(ctx); err != nil {
			return nil, err
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []webhook.Waiting
	for _, id := range slices.Sorted(maps.Keys(q.endpoints)) {
		e := q.endpoints[id]
		w := webhook.Waiting{Endpoint: &e}
		n, _ := l.Reads(&e)
		for _, r := range q.rows {
			switch {
			case r.state != webhook.Pending || r.Endpoint.ID != id:
			case r.claimedUntil > l.NowMS:
				w.Claimed++
			case r.due <= l.NowMS:
				d := webhook.Due{ID: r.ID, DueMS: r.due, Retry: r.Attempt > 0}
				if w.Due = append(w.Due, d); r.Urgent {
					w.Tests = append(w.Tests, d)
				}
			}
		}
		slices.SortStableFunc(w.Due, func(a, b webhook.Due) int {
			if a.Retry != b.Retry && a.Retry {
				return 1
			} else if a.Retry != b.Retry {
				return -1
			}
			return cmp.Compare(a.DueMS, b.DueMS)
		})
		if w.Due = w.Due[:min(len(w.Due), n)]; len(w.Due)+len(w.Tests) > 0 {
			out = append(out, w)
		}
	}
	return out, nil
}

func (q *fakeQueue) Claim(_ context.Context, t webhook.Taking) ([]webhook.Delivery, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []webhook.Delivery
	for _, one := range t.List {
		r := q.rows[one.ID-1]
		if r.state != webhook.Pending || r.due > t.NowMS {
			continue
		}
		r.Attempt++
		r.Fence++
		r.due = t.NowMS + t.Lease.Milliseconds()
		r.claimedUntil = r.due
		d := r.Delivery
		d.Endpoint, d.Urgent = q.endpoints[d.Endpoint.ID], one.Urgent
		out = append(out, d)
	}
	return out, nil
}

func (q *fakeQueue) Finish(ctx context.Context, d webhook.Delivery, r webhook.Result) error {
	q.mu.Lock()
	fail := q.onFinish
	q.mu.Unlock()
	if fail != nil {
		if err := fail(ctx, d); err != nil {
			return err
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	row := q.rows[d.ID-1]
	if row.Fence != d.Fence {
		return fault.New(fault.Conflict, "fence")
	}
	row.state, row.due, row.reason, row.claimedUntil = r.State, r.DueMS, r.Reason, 0
	if r.Untried && r.State == webhook.Pending {
		row.Attempt--
	} else {
		row.tries = append(row.tries, r.Try)
	}
	if r.DisableEndpoint != "" {
		e := q.endpoints[row.Endpoint.ID]
		e.Disabled, e.DisabledWhy = true, r.DisableEndpoint
		q.endpoints[e.ID] = e
	}
	return nil
}

func (q *fakeQueue) Backlog(context.Context) (webhook.Backlog, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.onBacklog != nil {
		if err := q.onBacklog(); err != nil {
			return webhook.Backlog{}, err
		}
	}
	var b webhook.Backlog
	for _, r := range q.rows {
		switch r.state {
		case webhook.Pending:
			b.Pending++
			if b.OldestDue == 0 || r.due < b.OldestDue {
				b.OldestDue = r.due
			}
			if b.OldestPending == 0 || r.CreatedMS < b.OldestPending {
				b.OldestPending = r.CreatedMS
			}
		case webhook.Dead:
			b.Dead++
		}
	}
	return b, nil
}

// fakeSender is a webhook.Deliverer whose attempts are scripted.
type fakeSender struct {
	send func(ctx context.Context, d webhook.Delivery) webhook.Outcome
}

func (f fakeSender) Send(ctx context.Context, d webhook.Delivery) webhook.Outcome {
	return f.send(ctx, d)
}

func (fakeSender) Lease() time.Duration { return webhook.TotalTimeout + 10*time.Second }

// taken and failed are the two plain outcomes.
func taken(d webhook.Delivery) webhook.Outcome {
	return webhook.Outcome{Attempt: webhook.Attempt{N: d.Attempt, Status: 200}}
}

func failed(d webhook.Delivery) webhook.Outcome {
	return webhook.Outcome{Attempt: webhook.Attempt{N: d.Attempt, Status: 500, ErrorClass: webhook.Class5xx, Error: "the receiver answered 500"}}
}
