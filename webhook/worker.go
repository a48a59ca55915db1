package webhook

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/fault"
)

// The worker's defaults.
const (
	DefaultInFlight    = 64
	DefaultPerEndpoint = 4
	DefaultPoll        = time.Second
	DefaultDrain       = 10 * time.Second
)

const (
	storeTimeout  = 5 * time.Second        // of one call of the store
	maxClaimPause = 15 * time.Second       // the longest wait after claims that failed
	finishPause   = 200 * time.Millisecond // between tries to store a result
	minAttempt    = time.Second            // an attempt with less time than this is not begun
)

// Deliverer makes attempts; *Sender is the one.
type Deliverer interface {
	// Send makes one attempt and says how it went. It returns soon after ctx ends.
	Send(ctx context.Context, d Delivery) Outcome
	// Lease is how long a claim must last for one attempt and the storing of its result.
	Lease() time.Duration
}

// WorkerConfig holds the settings of a Worker. Queue and Sender are required; elsewhere a zero
// value means the default.
type WorkerConfig struct {
	Queue  Queue
	Sender Deliverer
	Policy
	// BreakAfter is how many failures in a row open an endpoint's breaker; a negative value is
	// never.
	BreakAfter int
	// InFlight and PerEndpoint bound the attempts in progress, in all and for one endpoint. One
	// project uses at most half of InFlight, and leaves room for the others. As long as fewer than
	// InFlight/PerEndpoint/2 endpoints of a project are stuck, its others are not delayed; if stuck
	// endpoints want more than PerEndpoint, fewer than half as many.
	InFlight, PerEndpoint int
	// Active bounds the attempts that use processors or the store, so that a long queue does not
	// delay the turns of agents: those begun in the last 10 ms whose results are not stored yet.
	// One project uses at most half. The default is four for each processor, and at least eight.
	Active int
	Poll   time.Duration // between claims when nothing wakes the worker
	// How long attempts in progress may still take after Run's ctx is done.
	Drain      time.Duration
	Now        func() time.Time      // nil is time.Now
	Random     func() float64        // in [0,1), for jitter; nil is math/rand/v2's
	Registerer prometheus.Registerer // nil registers no metrics
	Log        zerolog.Logger
}

// Worker takes due deliveries from the queue and sends them.
type Worker struct {
	c       WorkerConfig
	gates   *gates
	metrics *metrics
}

// NewWorker returns a worker. It fails with fault.Missing without a queue or a sender, and if its
// metrics are already registered.
func NewWorker(c WorkerConfig) (*Worker, error) {
	if c.Queue == nil || c.Sender == nil {
		return nil, fault.New(fault.Missing, "webhook worker: Queue or Sender is missing")
	}
	if c.Schedule == nil {
		c.Schedule = DefaultSchedule()
	}
	c.InFlight = orDefault(c.InFlight, DefaultInFlight)
	c.Active = orDefault(c.Active, max(4*runtime.GOMAXPROCS(0), 8))
	c.PerEndpoint = orDefault(c.PerEndpoint, DefaultPerEndpoint)
	c.Poll = orDefault(c.Poll, DefaultPoll)
	c.Drain = orDefault(c.Drain, DefaultDrain)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	gates := newGates(cmp.Or(c.BreakAfter, DefaultBreakAfter))
	m, err := newMetrics(c.Registerer, c.Queue, gates, c.Now)
	if err != nil {
		return nil, fmt.Errorf("webhook worker: register metrics: %w", err)
	}
	return &Worker{c: c, gates: gates, metrics: m}, nil
}

func orDefault[T int | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// Run sends what is due until ctx is done, starting at once with what became due before. Then it
// claims nothing more, lets attempts in progress end within Drain, releases the claims of those
// that did not, and returns nil, some seconds later if the store hangs.
func (w *Worker) Run(ctx context.Context) error {
	stores, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	attempts, abandon := context.WithCancel(stores)
	defer abandon()
	run := &run{Worker: w, attempts: attempts, stores: stores, flying: map[string]int{}, tenants: map[string]int{}, actives: map[string]int{}, landed: map[string]int{}, freed: make(chan struct{}, 1)}
	run.claim(ctx)

	done := make(chan struct{})
	go func() { run.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(w.c.Drain):
		abandon()
	}
	select {
	case <-done:
	case <-time.After(storeTimeout):
		giveUp()
		<-done
	}
	return nil
}

// run is the state of one call of Run.
type run struct {
	*Worker
	attempts context.Context // of attempts; outlives Run's ctx by Drain
	stores   context.Context // of what ends their claims; outlives attempts
	wg       sync.WaitGroup
	mu       sync.Mutex
	busy     int            // attempts under way, without tests beside the limits
	urgent   int            // those
	flying   map[string]int // of them, by endpoint
	tenants  map[string]int // of them, by project
	active   int            // attempts that use processors or the store: see activeFor
	actives  map[string]int // of them, by project
	freed    chan struct{}  // an attempt has ended, or is no longer active
	storing  int            // results that are not stored yet
	landed   map[string]int // of them, by endpoint
	store    storeHealth
}

// claim is the main loop: claim as many deliveries as there is room for, then wait for a reason to
// claim again. After an error it waits longer each time, whatever wakes it, so that a store that is
// down gets no extra load.
func (r *run) claim(ctx context.Context) {
	poll := time.NewTicker(r.c.Poll)
	defer poll.Stop()
	pause := time.Duration(0)
	more := false // there was more than could be taken
	left := 0     // how many attempts the last claim left free
	gather := min(r.c.InFlight/4, r.c.Active/2)
	most := gather // how many attempts that end are waited for
	look := true   // there may be a test that came while all attempts were under way
	for ctx.Err() == nil {
		// Taken before the claim, so that a commit during the claim wakes the loop.
		woken := r.c.Queue.Woken()
		if free, tests := r.store.allow(r.c.Sender.Lease(), r.free); free > 0 || tests > 0 && look {
			look = false
			n, err := r.claimOnce(ctx, free, tests)
			if err != nil {
				pause = min(max(2*pause, r.c.Poll), maxClaimPause)
				r.metrics.storeErrors.WithLabelValues("claim").Inc()
				level := zerolog.ErrorLevel
				if fault.Reported(err) {
					level = zerolog.DebugLevel
				}
				r.c.Log.WithLevel(level).Err(err).Dur("retry_in", pause).Msg("failed to claim webhook deliveries")
				wait(ctx, pause)
				continue
			}
			pause = 0
			left, _ = r.free()
			full := free > 0 && n >= free
			more = full || free == 0 && more || r.capped()
			if full {
				continue // there may be more at once
			}
		}
		held := time.NewTimer(r.gates.wait(r.c.Now(), r.c.Poll))
		select {
		case <-ctx.Done():
		case <-poll.C:
			look, most = true, gather
		case <-woken:
			look = true
		case <-r.freed:
			if more {
				most = r.awaitEnded(ctx, left, most)
			}
		case <-held.C: // an endpoint that was held back may go on
		}
		held.Stop()
	}
}

// gatherFor is how long an attempt that has ended waits for others to end, if more is pending than
// can be sent at a time. A claim reads every endpoint that has something due, and costs the same
// whether it takes one delivery or eight.
const gatherFor = 2 * time.Millisecond

// awaitEnded waits briefly until most attempts have ended since the last claim, which left the
// given number free. It returns the number to wait for the next time, which shrinks if fewer end in
// time: the others hang at silent receivers and must not delay those that end.
func (r *run) awaitEnded(ctx context.Context, left, most int) int {
	t := time.NewTimer(gatherFor)
	defer t.Stop()
	for {
		free, _ := r.free()
		if free-left >= most {
			return most
		}
		select {
		case <-ctx.Done():
			return most
		case <-t.C:
			return max(free-left, most/2, min(most, 2))
		case <-r.freed:
		}
	}
}

// claimBytes bounds the bodies of one claim, so that the first delivery is sent before all bodies
// are read.
const claimBytes = 8 << 20

// claimOnce takes up to free deliveries, and tests in addition, and starts an attempt for each. It
// returns how many ordinary deliveries it took, or free if there may be more.
func (r *run) claimOnce(ctx context.Context, free, tests int) (int, error) {
	lease := r.c.Sender.Lease()
	// Not under ctx: an aborted claim may have been committed, and its deliveries would wait for
	// the lease to end.
	claimCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	ends := time.Now().Add(lease) // before the call, which may be slow: the lease runs from NowMS
	now := r.c.Now()
	ds, err := ClaimFrom(claimCtx, r.c.Queue, Claim{
		NowMS: now.UnixMilli(), Limit: free, Bytes: claimBytes, Urgent: tests, PerEndpoint: r.c.PerEndpoint, Lease: lease,
		Held: r.gates.held(now), Room: r.room(now), Busy: r.inProgress, Ended: r.ended, Allow: r.allow(),
	})
	if err != nil {
		return 0, err
	}
	n, bytes := 0, 0
	for _, d := range ds {
		bytes += len(d.Body)
		if !d.Urgent {
			n++
		}
		if over, ok := r.c.Overdue(d, now); ok {
			r.start(d, func(land func()) { land(); r.end(d, over, ends) })
			continue
		}
		ticket := r.gates.began(&d.Endpoint, d.Urgent, now)
		// The claim may have returned after Run was asked to stop.
		r.start(d, func(land func()) { r.deliver(d, ticket, ends, ctx.Err() != nil, land) })
	}
	if bytes >= claimBytes/2 {
		return free, nil // there may be more that was too long for this claim
	}
	return n, nil
}

// activeFor is how long an attempt counts as active, unless its result is stored before. What takes
// longer waits for its receiver.
const activeFor = 10 * time.Millisecond

// start handles a claimed delivery in a goroutine of its own, for which Run waits. do calls land
// when the attempt has ended: the next attempt may begin while the result is being stored.
func (r *run) start(d Delivery, do func(land func())) {
	r.add(d, 1, 0)
	r.activate(d, 1)
	calm := sync.OnceFunc(func() {
		r.activate(d, -1)
		r.signal()
	})
	late := time.AfterFunc(activeFor, calm)
	r.wg.Go(func() {
		defer calm()
		defer late.Stop()
		land := sync.OnceFunc(func() {
			r.add(d, -1, 1)
			r.signal()
		})
		defer func() {
			land()
			r.add(d, 0, -1)
			r.signal()
		}()
		do(land)
	})
}

// signal wakes claim, because there is room.
func (r *run) signal() {
	select {
	case r.freed <- struct{}{}:
	default: // it has been told already, and looks at everything
	}
}

// maxTests is how many tests may be in progress in addition to InFlight, so that a test does not
// wait for other deliveries.
const maxTests = 4

// free returns how many attempts may begin, and how many tests in addition. Results that wait to be
// stored count, so that a slow store slows the work that fills it.
func (r *run) free() (attempts, tests int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(min(r.c.InFlight-r.busy-r.storing, r.c.Active-r.active), 0), max(maxTests-r.urgent, 0)
}

// capped reports whether a project has as many attempts in progress as it may have, so that more of
// its deliveries may wait for them to end.
func (r *run) capped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, projects := range []map[string]int{r.tenants, r.actives} {
		for project := range projects {
			if r.full(project, 0, 0) {
				return true
			}
		}
	}
	return false
}

// full reports whether a project may begin no attempt: it gets one only while it has fewer in
// progress than are free, and fewer active than may become active. A single project thus uses at
// most half of all, a second one half of the rest, and whatever their receivers do, the next
// project finds a free one. own and all are how many the project and all projects have taken beyond
// what is counted. The caller holds r.mu.
func (r *run) full(project string, own, all int) bool {
	return r.tenants[project]+own >= r.c.InFlight-r.busy-r.storing-all || r.actives[project]+own >= r.c.Active-r.active-all
}

// allow returns what Claim.Allow is for one claim.
func (r *run) allow() func(e *Endpoint) bool {
	taken, all := map[string]int{}, 0
	return func(e *Endpoint) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.full(e.Project, taken[e.Project], all) {
			return false
		}
		taken[e.Project]++
		all++
		return true
	}
}

// activate counts active attempts.
func (r *run) activate(d Delivery, by int) {
	if d.Urgent {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active += by
	count(r.actives, d.Endpoint.Project, by)
}

// add counts attempts under way and results that wait.
func (r *run) add(d Delivery, flying, landed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.Urgent {
		r.urgent += flying
	} else {
		r.busy += flying
		count(r.flying, d.Endpoint.ID, flying)
		count(r.tenants, d.Endpoint.Project, flying)
		count(r.landed, d.Endpoint.ID, landed)
	}
	r.storing += landed
	r.metrics.inFlight.Set(float64(r.busy + r.urgent))
}

func count(of map[string]int, key string, n int) {
	if of[key] += n; of[key] == 0 {
		delete(of, key)
	}
}

// ended returns how many of an endpoint's attempts have ended while their results are not stored
// yet.
func (r *run) ended(e *Endpoint) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.landed[e.ID]
}

// inProgress returns how many attempts of a project and of an endpoint are in progress.
func (r *run) inProgress(e *Endpoint) (project, endpoint int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tenants[e.Project], r.flying[e.ID]
}

// room returns how many more attempts an endpoint may begin in one claim. Each endpoint has
// PerEndpoint of its own. Beyond that, endpoints share one part, so that any number of stuck
// receivers cannot delay the others. A single endpoint gets a quarter of all attempts, which is
// half of what its project may have.
func (r *run) room(now time.Time) func(*Endpoint) int {
	granted := map[string]int{} // from the shared part, in this claim
	return func(e *Endpoint) int {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.full(e.Project, 0, 0) {
			return 0 // so that its deliveries are not read
		}
		own := r.c.PerEndpoint
		shared, known := granted[e.ID]
		if !known {
			left := r.c.InFlight/4 - own
			for _, n := range r.flying {
				left -= max(0, n-own)
			}
			for _, n := range granted {
				left -= n
			}
			shared = max(0, min(left, e.MaxInFlight-max(own, r.flying[e.ID])))
			granted[e.ID] = shared
		}
		return min(r.gates.room(e, now), max(0, own-r.flying[e.ID])+shared)
	}
}

// log writes one line for an attempt; its URL is without the parts that hold secrets.
func (r *run) log(d Delivery, result Result) {
	level := zerolog.DebugLevel
	switch result.State {
	case Pending:
		level = zerolog.WarnLevel
	case Dead:
		level = zerolog.ErrorLevel
	}
	e := r.c.Log.WithLevel(level).Int64("delivery", d.ID).Str("event", d.EventID).Int("type", d.Type).
		Str("project", d.Project).Str("agent", d.AgentID).Str("endpoint", d.Endpoint.ID).Str("url", ShowURL(d.Endpoint.URL)).
		Int("attempt", d.Attempt).Int("status", result.Try.Status).Int64("ms", result.Try.DurationMS).Str("state", string(result.State))
	if result.Try.ErrorClass != "" {
		e = e.Str("class", result.Try.ErrorClass).Str("error", result.Try.Error)
	}
	if result.State == Pending {
		e = e.Time("next", time.UnixMilli(result.DueMS))
	}
	if result.Reason != "" {
		e = e.Str("reason", result.Reason)
	}
	if result.DisableEndpoint != "" {
		e = e.Str("endpoint_disabled", result.DisableEndpoint)
	}
	e.Msg("webhook attempt")
}

// wait waits for d, and reports whether ctx is still valid.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
