package turn

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/heardlog/heardlog/internal/breaker"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
)

// attempt is an upstream that has begun to answer.
type attempt struct {
	res    *http.Response
	ctx    context.Context // of the upstream's connection; the call's own where no other upstream could take over
	watch  *llmadapter.Watch
	cancel context.CancelCauseFunc // of ctx, if that is its own

	label  string         // of metrics
	ticket breaker.Ticket // of the upstream's breaker
	booked bool           // how it went is in the books
}

// close ends what is left of the attempt.
func (a *attempt) close() {
	a.watch.Stop()
	_ = a.res.Body.Close() // nothing more is wanted of it
	if a.cancel != nil {
		a.cancel(nil)
	}
}

// ask asks the call's upstreams in their order until one begins to answer; if all fail, once more where that may help. After the first data of an
// answer there is no way back: words that a client may have cannot be said by somebody else (reference/proxies.md rule 8).
func (x *exchange) ask() (*attempt, error) {
	targets := x.targets()
	began := x.cfg.Now()
	body := bodyOf{}
	for round := 0; ; round++ {
		var last error
		for t, ticket := x.next(targets); t != nil; t, ticket = x.next(targets) {
			t.tried = true
			more := slices.ContainsFunc(targets, func(o target) bool { return !o.tried && !o.spent })
			if !body.fits(t) {
				body = bodyOf{t.custom, t.model, x.assemble(t, len(targets) == 1)}
			}
			x.setUpstream(t)
			x.trying = attempt{ctx: x.ctx, label: t.label, ticket: ticket} // the one before is over
			a := &x.trying
			trouble, err := x.attempt(a, body.bytes, t, began, len(targets) > 1, more)
			if err == nil {
				x.release()
				return a, nil
			}
			if trouble = x.book(a, trouble, err); x.isDrained() || !trouble.FallsOver() {
				return nil, x.ended(err)
			}
			t.spent = !trouble.Repeats()
			t.wait = x.retryAfter(err)
			last = err
		}
		if !x.again(targets, round, began) {
			return nil, x.ended(last)
		}
	}
}

// ended gives what ended a call whose last attempt failed with err: somebody who left or cut in between two attempts, or else that failure.
func (x *exchange) ended(err error) error {
	return llmadapter.CauseFault(context.Cause(x.ctx), err)
}

// bodyOf is what an assembled body depends on.
type bodyOf struct {
	custom bool
	model  string
	bytes  []byte
}

func (b bodyOf) fits(t *target) bool {
	return b.bytes != nil && b.custom == t.custom && b.model == t.model
}

// next gives the first upstream of this round that its breaker lets through; where none does, the first that is left: there is nobody better.
func (x *exchange) next(targets []target) (*target, breaker.Ticket) {
	var shut *target
	var ticket breaker.Ticket
	for i := range targets {
		t := &targets[i]
		switch {
		case t.tried || t.spent:
		case t.breaker == nil:
			return t, breaker.Ticket{}
		default:
			admitted, ok := t.breaker.Admit(x.cfg.Now())
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

// again waits before another round, and tells whether there is to be one.
func (x *exchange) again(targets []target, round int, began time.Time) bool {
	if round >= x.cfg.Retries.Times {
		return false
	}
	pause, wait := llmadapter.Backoff(round), time.Duration(-1)
	for i := range targets {
		if t := &targets[i]; !t.spent {
			t.wait = max(t.wait, pause)
			if wait < 0 || t.wait < wait {
				wait = t.wait
			}
		}
	}
	if wait < 0 || x.cfg.Now().Sub(began)+wait > x.cfg.Retries.Budget {
		return false
	}
	for i := range targets {
		targets[i].tried = targets[i].wait > wait // one that asked for more time is left alone
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return !x.isDrained()
	case <-x.ctx.Done():
		return false
	}
}

// attempt asks one upstream. several tells that the call has others, more that one of them is left to ask after this.
func (x *exchange) attempt(a *attempt, body []byte, t *target, began time.Time, several, more bool) (llmadapter.Trouble, error) {
	call := x.prepare(a, body, t, began, several, more)
	trouble, err := x.reach(a, call, more)
	if err != nil {
		x.trace.failed(x, err)
		a.watch.Stop()
		if a.cancel != nil {
			a.cancel(nil)
		}
	}
	return trouble, err
}

// prepare makes the call of an attempt and starts its clocks.
func (x *exchange) prepare(a *attempt, body []byte, t *target, began time.Time, several, more bool) *llmadapter.Call {
	limits := x.limits()
	if several && !more && x.llm.FailureMessage == "" {
		limits.FirstToken = 0 // to give up the last one would leave the caller with nothing (rule 8)
	}
	end := x.cancel
	if more {
		a.ctx, a.cancel = context.WithCancelCause(x.ctx)
		end = a.cancel
	}
	call := x.call(body, t, limits)
	now := x.cfg.Now()
	if limits.Total > 0 { // of the whole call, not of each attempt
		limits.Total = max(1, limits.Total-now.Sub(began))
	}
	if x.asked.IsZero() {
		x.filler.guarded(func() { x.asked = now }) // its headers tell the times
		x.metrics.overhead.Observe(now.Sub(x.arrived).Seconds())
	}
	x.trace.asks(x, call, now)
	a.watch = llmadapter.NewWatch(limits, call.Stream, x.cfg.Now, end)
	return call
}

// reach makes the call and, where another upstream could take over, waits for the first data of its answer.
func (x *exchange) reach(a *attempt, call *llmadapter.Call, more bool) (llmadapter.Trouble, error) {
	res, err := x.cfg.Client.Do(a.ctx, call)
	if err != nil {
		return llmadapter.TroubleOf(err), err
	}
	x.body = meter{res.Body, &x.timing, x.cfg.Now}
	res.Body = &x.body
	a.res = res
	if err = readable(res); err == nil && more {
		if isStream(res, call.Stream) {
			err = x.firstData(a)
		} else {
			err = x.wholeBody(a)
		}
	}
	if err != nil {
		_ = x.body.Close() // the error is what matters
		x.first.Store(0)
		x.bytes.Store(0)
		return llmadapter.TroubleOf(err).After2xx(), err
	}
	if more {
		x.answered(a)
	}
	return llmadapter.None, nil
}

// answered books the first data of an upstream: it works, whatever becomes of the rest.
func (x *exchange) answered(a *attempt) {
	if !a.booked {
		x.book(a, llmadapter.None, nil)
	}
}

// unanswered books an attempt that ended without any data.
func (x *exchange) unanswered(err error) {
	if a := x.attempted; a != nil && !a.booked {
		x.book(a, troubleAfter2xx(err), err)
	}
}

// troubleAfter2xx classifies what an upstream failed with that had answered 2xx. An error object that names another status than 429 and 5xx says that
// the request is at fault.
func troubleAfter2xx(err error) llmadapter.Trouble {
	if s, ok := errors.AsType[*statusError](err); ok && !s.fallsOver() {
		return llmadapter.Refused
	}
	return llmadapter.TroubleOf(err).After2xx()
}

// book enters how an attempt went, and gives what it was: a client's leaving says nothing of an upstream, whatever it looks like.
func (x *exchange) book(a *attempt, trouble llmadapter.Trouble, err error) llmadapter.Trouble {
	a.booked = true
	if gone := context.Cause(x.ctx); err != nil && gone != nil && !errors.Is(gone, llmadapter.ErrFirstTokenTimeout) && !errors.Is(gone, llmadapter.ErrTotalTimeout) {
		trouble = llmadapter.Left
	}
	x.metrics.attempts.WithLabelValues(a.label, string(trouble)).Inc()
	switch {
	case trouble == llmadapter.Left, trouble == llmadapter.Slow:
		a.ticket.Abandoned()
	case trouble.FallsOver():
		a.ticket.Failed(x.cfg.Now(), x.retryAfter(err))
	default: // answered, or refused: it works
		a.ticket.Succeeded()
	}
	return trouble
}

// retryAfter gives how long the upstream asks to be left alone; 0 if it does not.
func (x *exchange) retryAfter(err error) time.Duration {
	if up, ok := errors.AsType[*llmadapter.UpstreamError](err); ok {
		return llmadapter.RetryAfter(up.Header, x.cfg.Now())
	}
	return 0
}

// setUpstream tells whom the call is going to.
func (x *exchange) setUpstream(t *target) {
	x.mu.Lock()
	x.upstream = t.name
	x.mu.Unlock()
	x.asking = t
	if x.w != nil {
		x.filler.guarded(func() { x.w.Header()[UpstreamHeader] = []string{t.name} })
	}
}

// call gives the call of an upstream with its body.
func (x *exchange) call(body []byte, t *target, limits llmadapter.Limits) *llmadapter.Call {
	call := &llmadapter.Call{
		URL: t.url, APIKey: t.key, Azure: t.azure, Stream: x.wantsStream, Body: body, Connect: limits.Connect, Headers: reveal(t.headers),
	}
	if x.req != nil {
		call.Client = x.req.Header
	}
	return call
}

// release lets go of what bodies are made of.
func (x *exchange) release() {
	x.plan = nil
	x.turn.Release()
}

// maxHeldBack is how many bytes are held back while the first data is waited for.
const maxHeldBack = 64 << 10

// firstData reads a stream up to its first data event and puts what was read in front again. An error object there, before any word, is a failure like
// one with a status. What an upstream sends without ever sending data is not waited for beyond maxHeldBack bytes.
func (x *exchange) firstData(a *attempt) error {
	var sse llmadapter.SSE
	var first *llmadapter.Record
	event := func(data []byte) {
		if head := (llmadapter.Record{}); first == nil {
			if head.Chunk(data); head.Begun() { // else it only says how the answer is to be spoken
				first = &head
			}
		}
	}
	buf := make([]byte, 0, 1<<10)
	for first == nil && len(buf) < maxHeldBack {
		buf = slices.Grow(buf, 1<<10)
		n, err := a.res.Body.Read(buf[len(buf):cap(buf)])
		sse.Feed(buf[len(buf):len(buf)+n], func(data []byte, _ int) { event(data) })
		buf = buf[:len(buf)+n]
		if err == nil {
			continue
		}
		sse.End(event)
		if first != nil {
			break // the rest of the stream says the same again when it is relayed
		}
		if context.Cause(a.ctx) == nil && errors.Is(err, io.EOF) {
			return errNoWords
		}
		return llmadapter.ReadFault(a.ctx, err)
	}
	if first != nil && first.Error != nil && !first.Spoke() {
		if err := x.streamFault(first.Error); troubleAfter2xx(err).FallsOver() {
			return err
		}
	}
	a.res.Body = &prefixed{a.res.Body, buf}
	return nil
}

// wholeBody reads an answer in one piece, and puts it back. One that is none, or an error object, is a failure as within a stream.
func (x *exchange) wholeBody(a *attempt) error {
	body, err := readWhole(a.res)
	if err != nil {
		if fault.Is(err, fault.Upstream) {
			return err
		}
		return llmadapter.ReadFault(a.ctx, err)
	}
	var rec llmadapter.Record
	if !rec.Unary(body) {
		return errNoAnswer
	}
	if rec.Error != nil && !rec.Spoke() {
		if err := x.streamFault(rec.Error); troubleAfter2xx(err).FallsOver() {
			return err
		}
	}
	a.res.ContentLength = int64(len(body))
	a.res.Body = &prefixed{a.res.Body, body}
	return nil
}

// prefixed is a body of which the beginning was read before.
type prefixed struct {
	io.ReadCloser
	head []byte
}

// Read implements io.Reader.
func (p *prefixed) Read(b []byte) (int, error) {
	if p.head == nil {
		return p.ReadCloser.Read(b)
	}
	n := copy(b, p.head)
	if p.head = p.head[n:]; len(p.head) == 0 {
		p.head = nil
	}
	return n, nil
}
