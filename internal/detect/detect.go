// Package detect asks detectors over HTTP which pieces of texts are names, addresses and the like:
// Presidio's analyzer, or anything else that speaks a plain form of JSON.
//
// A detector that is slow, down or wrong costs its own project alone, and that no longer than its
// deadline: calls of each project have places and a circuit breaker of their own.
package detect

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/breaker"
	"github.com/heardlog/heardlog/internal/cache"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/redact"
)

// The forms of requests and answers.
const (
	Presidio = "presidio" // POST /analyze of Presidio's analyzer
	Plain    = "plain"
)

// Settings describe the detector of a project. They are immutable.
type Settings struct {
	URL      string
	Form     string
	Language string
	Entities []string // types to find; empty is up to the detector
	MinScore float64  // of a finding that counts
	Token    secret.String
	Timeout  time.Duration // of one call
	Rules    agents.DetectorRules
}

// Limits of calls.
const (
	places      = 16      // calls at a time of a project
	maxProjects = 4096    // whose breakers are kept
	maxAnswer   = 1 << 20 // bytes
	maxFindings = 1000    // in a piece
	maxPiece    = 4000    // bytes
	overlap     = 200     // bytes that two pieces of a text share
	batchPieces = 16      // pieces in one call
	batchBytes  = 8000    // in one call, unless it has one piece
	maxText     = 8 << 20 // bytes of all texts of a change
	logEvery    = time.Minute
)

// callBreaker leaves a detector alone that fails.
var callBreaker = breaker.Settings{Failures: 5, Pause: time.Second, Longest: 30 * time.Second, Doubling: true}

// Outcomes of calls.
const (
	ok        = "ok"
	timedOut  = "timeout"
	failed    = "failed"     // it could not be reached, or refused
	badAnswer = "bad_answer" // what it answered cannot be used
	skipped   = "skipped"    // it has failed before, and was left alone
	busy      = "busy"       // too many calls of the project are under way
)

// Config configures a Detector. All of it is required.
type Config struct {
	// Of returns the settings of a project, nil for none. It returns the same ones each time.
	Of        func(project string) *Settings
	Transport http.RoundTripper
	Now       func() time.Time
	Log       zerolog.Logger
	Metrics   prometheus.Registerer
}

// Detector asks the detectors of projects. It implements agents.Detector.
type Detector struct {
	cfg    Config
	client http.Client
	lines  *cache.Cache[string, *line]

	calls     *prometheus.CounterVec
	took      prometheus.Histogram
	unchecked *prometheus.CounterVec

	mu     sync.Mutex
	logged time.Time
	quiet  int // texts since then
}

// line is the way of a project to its detector.
type line struct {
	breaker *breaker.Breaker
	places  chan struct{}
}

// New returns a Detector.
func New(c Config) *Detector {
	d := &Detector{
		cfg: c, lines: cache.New[string, *line](maxProjects, nil),
		client: http.Client{Transport: c.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_detector_calls_total",
			Help: "Calls of detectors of names: ok, timeout, failed, bad_answer, skipped after failures, or busy if too many of the project were under way.",
		}, []string{"outcome"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "heardlog_detector_call_seconds", Help: "Duration of calls of detectors of names.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
		unchecked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_unchecked_texts_total",
			Help: "Texts that no detector of names has checked though one is set: stored as they are, stored as [withheld], or refused.",
		}, []string{"result"}),
	}
	for _, outcome := range []string{ok, timedOut, failed, badAnswer, skipped, busy} {
		d.calls.WithLabelValues(outcome)
	}
	for _, result := range []agents.Uncheck{agents.UncheckedStored, agents.UncheckedWithheld, agents.UncheckedRefused} {
		d.unchecked.WithLabelValues(string(result))
	}
	c.Metrics.MustRegister(d.calls, d.took, d.unchecked)
	return d
}

// Rules implements agents.Detector.
func (d *Detector) Rules(project string) *agents.DetectorRules {
	s := d.cfg.Of(project)
	if s == nil {
		return nil
	}
	return &s.Rules
}

// Unchecked implements agents.Detector.
func (d *Detector) Unchecked(project string, texts int, result agents.Uncheck, err error) {
	d.unchecked.WithLabelValues(string(result)).Add(float64(texts))
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.cfg.Now()
	if d.quiet += texts; now.Sub(d.logged) < logEvery {
		return
	}
	d.cfg.Log.Error().Err(err).Str("project", project).Str("result", string(result)).Int("texts", d.quiet).Msg("texts were not checked for names")
	d.logged, d.quiet = now, 0
}

// Find implements agents.Detector. A long text is sent in pieces that overlap, and texts are sent
// together in as few calls as their sizes allow.
func (d *Detector) Find(ctx context.Context, project string, texts []string) ([][]redact.Found, error) {
	s := d.cfg.Of(project)
	if s == nil {
		return nil, errors.New("the project has no detector")
	}
	batches, err := batchesOf(texts)
	if err != nil {
		return nil, err
	}
	l := d.lines.GetOrSet(project, func() *line {
		return &line{breaker: breaker.New(callBreaker), places: make(chan struct{}, places)}
	})
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	out := make([][]redact.Found, len(texts))
	var mu sync.Mutex
	var wait sync.WaitGroup
	atOnce := make(chan struct{}, places/4)
	for _, b := range batches {
		atOnce <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wait.Go(func() {
			defer func() { <-atOnce }()
			found, err := d.call(ctx, l, s, b)
			if err != nil {
				stop(err) // the others' work is for nothing
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for i, p := range b {
				for _, f := range found[i] {
					out[p.text] = append(out[p.text], redact.Found{Start: f.Start + p.at, End: f.End + p.at, Type: f.Type})
				}
			}
		})
	}
	wait.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return out, nil
}

// call has pieces checked in one request.
func (d *Detector) call(ctx context.Context, l *line, s *Settings, b []piece) ([][]redact.Found, error) {
	within, stop := context.WithTimeoutCause(ctx, s.Timeout, errSlow)
	defer stop()
	if l.breaker.State(d.cfg.Now()) == breaker.Open { // not worth waiting for a place
		d.calls.WithLabelValues(skipped).Inc()
		return nil, errSkipped
	}
	select {
	case l.places <- struct{}{}:
		defer func() { <-l.places }()
	case <-within.Done():
		d.calls.WithLabelValues(busy).Inc()
		return nil, errBusy
	}
	ticket, admitted := l.breaker.Admit(d.cfg.Now())
	if !admitted {
		d.calls.WithLabelValues(skipped).Inc()
		return nil, errSkipped
	}
	began := d.cfg.Now()
	found, err := d.ask(within, s, b)
	d.took.Observe(d.cfg.Now().Sub(began).Seconds())
	switch {
	case err == nil:
		ticket.Succeeded()
		d.calls.WithLabelValues(ok).Inc()
		return found, nil
	case ctx.Err() != nil: // the caller has gone, or another part has failed
		ticket.Abandoned()
		return nil, context.Cause(ctx)
	case within.Err() != nil:
		err = errSlow
		d.calls.WithLabelValues(timedOut).Inc()
	case errors.Is(err, errBad):
		d.calls.WithLabelValues(badAnswer).Inc()
	default:
		d.calls.WithLabelValues(failed).Inc()
	}
	ticket.Failed(d.cfg.Now(), 0)
	return nil, err
}

var (
	errSlow    = errors.New("the detector did not answer within timeout_ms")
	errSkipped = errors.New("the detector has failed several times, and is left alone for some seconds")
	errBusy    = errors.New("the detector is answering as many calls of the project as may be under way")
	errBad     = errors.New("the detector's answer cannot be used")
)
