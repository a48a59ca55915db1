package turn

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/breaker"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/prompt"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/toolbox"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
)

// attempt is a request to one upstream and, once the upstream answers, its response.
type attempt struct {
	*Runner
	target *target
	turn   context.Context // of the whole call

	ctx    context.Context         // of this request; turn itself if no other upstream could take over
	cancel context.CancelCauseFunc // of ctx; nil if ctx is turn
	watch  *llmadapter.Watch
	ticket breaker.Ticket
	booked bool // the result is in the metrics and the breaker

	meter func(io.ReadCloser) io.ReadCloser // counts what is read of a response
	call  *llmadapter.Call                  // what was sent
	tools *toolbox.Box                      // of the memory; nil offers none

	res    *http.Response
	events *llmadapter.Events // of res, if it is a stream
}

// asker asks the upstreams of a turn.
type asker struct {
	*exchange
	prompt  *prompt.Prompt
	targets []target
	began   time.Time
}

// ask asks the call's upstreams in their order until one begins to answer. If all fail, it asks
// those again that may recover. Once a response has begun there is no way back: a client may have
// heard a part of it, which no other upstream can continue.
func (x *exchange) ask(p *prompt.Prompt) (*attempt, error) {
	q := &asker{exchange: x, prompt: p, targets: x.targets(), began: x.cfg.Now()}
	if err := q.findNames(); err != nil {
		return nil, err
	}
	for round := 0; ; round++ {
		var last error
		for t, ticket := q.next(); t != nil; t, ticket = q.next() {
			a, trouble, err := q.try(t, ticket)
			if err != nil && q.reshapes(t, err) {
				a, trouble, err = q.try(t, ticket)
			}
			if err == nil {
				p.Release()
				return a, nil
			}
			if x.answer.isDrained() || !trouble.FallsOver() {
				return nil, llmadapter.CauseFault(context.Cause(x.ctx), err)
			}
			t.spent = !trouble.Repeats()
			t.wait = RetryAfter(err, x.cfg.Now())
			last = err
		}
		if !q.another(round) {
			// The call may have been cancelled between two attempts.
			return nil, llmadapter.CauseFault(context.Cause(x.ctx), last)
		}
	}
}

// findNames has a detector find the names in what the upstreams are given, if they are to see none.
func (q *asker) findNames() error {
	if !q.hide.HidesFromUpstream() || !q.hide.Detects() {
		return nil
	}
	return q.cfg.Redact(q.ctx, &q.turn.Agent, func(r *redact.Redactor) {
		q.turn.Known(r)
		q.prompt.Hide(r)
		for i := range q.targets {
			q.prompt.Body(&q.targets[i].to)
		}
	})
}

// reshapes reports whether an upstream is to be asked again at once with a list in another order,
// since it complained of the order. Its later calls begin with that order.
func (q *asker) reshapes(t *target, err error) bool {
	up, ok := errors.AsType[*llmadapter.UpstreamError](err)
	if !ok || t.to.Shape == llmadapter.ShapeAlternate || !up.ComplainsOfOrder() || context.Cause(q.ctx) != nil {
		return false
	}
	t.to.Shape = llmadapter.ShapeAlternate
	q.shapes.learn(q.turn.Agent.Project, t)
	q.cfg.Log.Warn().Str("agent", q.turn.Agent.ID).Str("upstream", t.name).Str("shape", t.to.Shape).
		Msg("an upstream refused the order of the messages; it is asked again with user and assistant in turn")
	return true
}

// next returns the first upstream of this round that its breaker admits, or the first of the rest
// if there is none: no other is better.
func (q *asker) next() (*target, breaker.Ticket) {
	var shut *target
	var ticket breaker.Ticket
	for i := range q.targets {
		t := &q.targets[i]
		switch {
		case t.tried || t.spent:
		case t.breaker == nil:
			return t, breaker.Ticket{}
		default:
			admitted, ok := t.breaker.Admit(q.cfg.Now())
			if ok {
				return t, admitted
			}
			if shut == nil {
				shut, ticket = t, admitted
			}
		}
	}
	return shut, ticket
}

// another waits before another round and reports whether there is one.
func (q *asker) another(round int) bool {
	if round >= q.cfg.Retries.Times {
		return false
	}
	pause, wait := llmadapter.Backoff(round), time.Duration(-1)
	for i := range q.targets {
		if t := &q.targets[i]; !t.spent {
			t.wait = max(t.wait, pause)
			if wait < 0 || t.wait < wait {
				wait = t.wait
			}
		}
	}
	if wait < 0 || q.cfg.Now().Sub(q.began)+wait > q.cfg.Retries.Budget {
		return false
	}
	for i := range q.targets {
		q.targets[i].tried = q.targets[i].wait > wait // it asked for more time
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return !q.answer.isDrained()
	case <-q.ctx.Done():
		return false
	}
}

// try asks one upstream; see check.
func (q *asker) try(t *target, ticket breaker.Ticket) (*attempt, llmadapter.Trouble, error) {
	t.tried = true
	more := slices.ContainsFunc(q.targets, func(o target) bool { return !o.tried && !o.spent })
	q.setUpstream(t)
	a := &attempt{Runner: q.Runner, target: t, turn: q.ctx, ctx: q.ctx, ticket: ticket, meter: q.newMeter}
	call := q.prepare(a, more)
	sent := q.since(q.cfg.Now())
	q.answer.relay.Mu.Lock()
	q.answer.body = call.Body
	q.answer.relay.Mu.Unlock()
	q.recordRequest(call)
	res, err := q.cfg.Client.Do(a.ctx, call)
	trouble := llmadapter.TroubleOf(err)
	if err == nil {
		res.Body, a.res = a.meter(res.Body), res
		if err = a.check(more || q.failureText() != ""); err == nil {
			q.tried(sent, t.name, nil)
			return a, llmadapter.None, nil
		}
		trouble = llmadapter.TroubleOf(err).After2xx()
		_ = res.Body.Close() // the error is what matters
		q.first.Store(0)
		q.bytes.Store(0)
	}
	q.trace.failed(q.exchange, err)
	q.tried(sent, t.name, err)
	a.watch.Stop()
	if a.cancel != nil {
		a.cancel(nil)
	}
	return nil, a.book(trouble, err), err
}

// prepare returns the request of an attempt and starts its clocks.
func (q *asker) prepare(a *attempt, more bool) *llmadapter.Call {
	t := a.target
	body := q.prompt.Body(&t.to)
	if tools := q.prompt.Tools(); tools != nil {
		if a.tools = toolbox.Offer(body, &t.to.Recipient, tools); a.tools != nil {
			body = a.tools.Body()
		}
	}
	limits := limitsOf(&q.llm)
	if len(q.targets) > 1 && !more && q.llm.FailureMessage == "" {
		limits.FirstToken = 0 // giving up on the last one would leave the caller with nothing
	}
	cancel := q.cancel
	if more {
		a.ctx, a.cancel = context.WithCancelCause(q.ctx)
		cancel = a.cancel
	}
	call := &llmadapter.Call{
		URL: t.url, APIKey: t.key, Azure: t.azure, Headers: secret.RevealMap(t.headers),
		Body: body, Stream: q.prompt.Stream(), Connect: limits.Connect, Hidden: q.prompt.Secrets(),
	}
	if hide := q.cfg.Redactor(&q.turn.Agent).Unasked(); hide != nil {
		stored := memory.Lines(slices.Values(q.turn.Ledger()))
		call.Redact = func(said []byte) []byte { return redacted(hide, said, body, stored) }
	}
	a.call = call
	if q.client != nil {
		call.Client = q.client.header
	}
	now := q.cfg.Now()
	if limits.Total > 0 { // of the whole call, not of each attempt
		limits.Total = max(1, limits.Total-now.Sub(q.began))
	}
	if q.asked.IsZero() {
		q.client.whileSilent(func() { q.asked = now }) // a filler's headers report the times
		q.metrics.overhead.Observe(now.Sub(q.arrived).Seconds())
	}
	q.trace.asks(q.exchange, call, now)
	a.watch = llmadapter.NewWatch(limits, call.Stream, q.cfg.Now, cancel)
	return call
}

// setUpstream notes which upstream is asked, and tells the client.
func (x *exchange) setUpstream(t *target) {
	x.answer.relay.Mu.Lock()
	x.answer.upstream, x.answer.origin = t.name, t.to.Origin
	x.answer.relay.Mu.Unlock()
	if x.client != nil {
		x.client.whileSilent(func() { x.client.w.Header()[UpstreamHeader] = []string{t.name} })
	}
}

// check refuses a response that cannot be an answer. If something else could be said instead, by
// another upstream or with the failure message, it waits until the answer begins.
func (a *attempt) check(hold bool) error {
	if err := a.open(); err != nil || !hold {
		return err
	}
	wait := a.awaitWhole
	if a.events != nil {
		wait = a.awaitData
	}
	if err := wait(); err != nil {
		return err
	}
	a.answered()
	return nil
}

// open refuses a response that cannot be read, and begins to read a stream.
func (a *attempt) open() error {
	a.events = nil
	if err := readable(a.res); err != nil {
		return err
	}
	if a.isStream() {
		a.events = llmadapter.NewEvents(a.res.Body)
	}
	return nil
}

// readable refuses a 2xx whose body cannot be a chat completion: a compressed one, although no
// compression was asked for, or a web page.
func readable(res *http.Response) error {
	if enc := res.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return fault.New(fault.Upstream, "the LLM answered in an encoding that was not requested")
	}
	if strings.HasPrefix(strings.ToLower(res.Header.Get("Content-Type")), "text/html") {
		return fault.New(fault.Upstream, "the LLM answered 200 with a web page")
	}
	return nil
}

// isStream reports whether the response is a stream of server-sent events: its content type says
// so, or a stream was asked for and the content type is not JSON.
func (a *attempt) isStream() bool {
	typ, _, _ := strings.Cut(strings.ToLower(a.res.Header.Get("Content-Type")), ";")
	typ = strings.TrimSpace(typ)
	return typ == "text/event-stream" || a.call.Stream && !strings.HasSuffix(typ, "json")
}

// answered books that the upstream sent data: it works, whatever becomes of the rest.
func (a *attempt) answered() {
	if !a.booked {
		a.book(llmadapter.None, nil)
	}
}

// failed books that the response failed with err, if no data came before.
func (a *attempt) failed(err error) {
	if !a.booked {
		a.book(troubleAfter2xx(err), err)
	}
}

// book counts how an attempt ended, and returns that. An attempt that ended because the client left
// says nothing about the upstream.
func (a *attempt) book(trouble llmadapter.Trouble, err error) llmadapter.Trouble {
	a.booked = true
	cause := context.Cause(a.turn)
	timeout := errors.Is(cause, llmadapter.ErrFirstTokenTimeout) || errors.Is(cause, llmadapter.ErrTotalTimeout)
	if err != nil && cause != nil && !timeout {
		trouble = llmadapter.Left
	}
	a.metrics.attempts.WithLabelValues(a.target.label, string(trouble)).Inc()
	switch {
	case trouble == llmadapter.Left, trouble == llmadapter.Slow:
		a.ticket.Abandoned()
	case trouble.FallsOver():
		a.ticket.Failed(a.cfg.Now(), RetryAfter(err, a.cfg.Now()))
	default: // answered, or refused: it works
		a.ticket.Succeeded()
	}
	return trouble
}

// again sends the next request to the upstream that answered.
func (a *attempt) again(body []byte) error {
	_ = a.res.Body.Close() // nothing more is wanted of it
	call := *a.call
	call.Body = body
	res, err := a.cfg.Client.Do(a.ctx, &call)
	if err != nil {
		return err
	}
	res.Body, a.res = a.meter(res.Body), res
	return a.open()
}

// againStream sends the next request and returns the stream of its response.
func (a *attempt) againStream(body []byte) (llmadapter.Source, error) {
	if err := a.again(body); err != nil {
		return nil, err
	}
	if a.events == nil {
		return nil, fault.New(fault.Upstream, "the LLM answered without a stream after a tool")
	}
	return a.events, nil
}

// againWhole sends the next request and returns its response.
func (a *attempt) againWhole(body []byte) ([]byte, error) {
	if err := a.again(body); err != nil {
		return nil, err
	}
	return a.readWhole()
}

// close releases the connection.
func (a *attempt) close() {
	a.watch.Stop()
	_ = a.res.Body.Close() // nothing more is wanted of it
	if a.cancel != nil {
		a.cancel(nil)
	}
}

// hideSecrets removes the secrets of the call from a part of a stream.
func (a *attempt) hideSecrets(b []byte) []byte {
	secrets := a.call.Secrets()
	if secrets.Full() {
		return []byte("data: " + secret.Withheld + "\n\n")
	}
	return secrets.Hide(b)
}

// streamFault returns the error for an error object in the response: an object with a message, or a
// string.
func (a *attempt) streamFault(obj []byte) error {
	text, status := a.call.ErrorObject(obj)
	return &fault.Error{Code: fault.Upstream, Msg: text, Err: &statusError{status}}
}

// troubleAfter2xx classifies the failure of an upstream that had answered 2xx. An error object with
// a status other than 429 and 5xx means that the request is at fault.
func troubleAfter2xx(err error) llmadapter.Trouble {
	if s, ok := errors.AsType[*statusError](err); ok && !s.fallsOver() {
		return llmadapter.Refused
	}
	return llmadapter.TroubleOf(err).After2xx()
}

// RetryAfter returns how long the upstream that failed with err asks not to be called, or 0.
func RetryAfter(err error, now time.Time) time.Duration {
	if up, ok := errors.AsType[*llmadapter.UpstreamError](err); ok {
		return llmadapter.RetryAfter(up.Header, now)
	}
	return 0
}
