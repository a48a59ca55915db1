package turn

import (
	"context"
	"errors"

	"net/http"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// relayStream passes on a stream, byte for byte, and stores the answer before the client learns
// that it is complete.
func (x *exchange) relayStream(a *attempt) error {
	relay := &x.answer.relay
	rec := &relay.Record
	speaking := false
	relay.Alive = func(*llmadapter.Record) {
		a.hear(rec)
		if rec.Thinks() { // a phrase of ours would be taken for a thought
			x.client.endFiller()
		}
		// This comes before the client has the words: its next call must find the agent speaking.
		if !speaking && (rec.Spoke() || rec.Calls()) {
			speaking = true
			x.client.endFiller()
			x.cfg.Turns.Progress(x.turn, memory.Speaking)
		}
	}
	relay.Ending = func() error { return x.settleEnd(a) }
	relay.CleanError = a.hideSecrets
	relay.StopOnError = x.failureText() != ""
	if c := x.client; c != nil {
		c.whileSilent(func() { c.open(a.res.Header.Get("Content-Type"), a.res.Header) })
		relay.Out = c
		defer c.done()
	}
	var src llmadapter.Source = a.events
	if a.tools != nil {
		src = a.tools.Stream(a.ctx, src, a.againStream)
	}
	err := relay.Run(src)
	if gone, ok := errors.AsType[*llmadapter.WriteError](err); ok {
		x.cfg.Log.Debug().Err(gone).Str("agent", x.turn.Agent.ID).Msg("a client could not be written to")
		x.clientLeft()
		err = agents.ErrClientGone
		if x.answer.isDrained() {
			err = relay.Run(src)
		}
	}
	return x.endRelay(a, err)
}

// endRelay ends a call whose relay returned err.
func (x *exchange) endRelay(a *attempt, err error) error {
	rec := &x.answer.relay.Record
	if err != nil && !errors.Is(err, errNotStored) && !errors.Is(err, llmadapter.ErrStream) && a.finished(rec) {
		err = x.answer.relay.End()
	}
	switch {
	case errors.Is(err, errNotStored):
		a.answered()
		return x.failStored(err)
	case errors.Is(err, llmadapter.ErrStream):
		return x.broke(a, a.streamFault(rec.Error))
	case err != nil:
		return x.broke(a, a.readFault(rec, err))
	}
	if rec.Error != nil {
		a.failed(a.streamFault(rec.Error))
	}
	a.answered() // a last event without its blank line is only read at the end
	return nil
}

// finished reports whether a stream that could not be read on was whole all the same: the upstream
// had marked the end of the answer, and then kept the connection open or broke it.
func (a *attempt) finished(rec *llmadapter.Record) bool {
	cause := context.Cause(a.ctx)
	return rec.Ended() && (cause == nil || errors.Is(cause, llmadapter.ErrGrace))
}

// readFault returns the error for a stream that could not be read to its end.
func (a *attempt) readFault(rec *llmadapter.Record, err error) error {
	if errors.Is(err, llmadapter.ErrTruncated) && !rec.HasChunks() && context.Cause(a.ctx) == nil {
		return errNoWords
	}
	return llmadapter.ReadFault(a.ctx, err)
}

// hear notes a data event of the response.
func (a *attempt) hear(rec *llmadapter.Record) {
	a.watch.Event(rec)
	if rec.Error == nil && rec.Begun() {
		a.answered()
	}
}

// settleEnd stores an answer that the upstream ended, perhaps without words, or with an error
// object that the client was sent.
func (x *exchange) settleEnd(a *attempt) error {
	x.answer.relay.Mu.Lock()
	rec := &x.answer.relay.Record
	broken, empty, unsent := rec.Error, rec.Empty(), x.answer.drained && rec.Sent() != rec.Generated()
	x.answer.relay.Mu.Unlock()
	switch {
	case unsent: // it ended before what the client was sent of it was stored
		return x.settle(agents.ErrClientGone, nil, "")
	case broken != nil:
		err := a.streamFault(broken)
		return x.settle(err, failureOf(err), "")
	case empty:
		return x.settle(errNoWords, failureOf(errNoWords), "")
	}
	return x.settle(nil, nil, "")
}

// relayWhole passes on an answer in one piece, unchanged, once it is stored.
func (x *exchange) relayWhole(a *attempt) error {
	body, err := a.readWhole()
	if err == nil && a.tools != nil {
		body, err = a.tools.Whole(a.ctx, body, a.againWhole)
	}
	if err != nil {
		return x.broke(a, err)
	}
	x.answer.relay.Mu.Lock()
	rec := &x.answer.relay.Record
	isAnswer := rec.Unary(body)
	broken := rec.Error
	drained := x.answer.drained
	x.answer.relay.Mu.Unlock()
	switch {
	case !isAnswer:
		err = noAnswer(body)
		a.failed(err)
	case broken != nil:
		err, body = a.streamFault(broken), a.call.Secrets().Hide(body)
		a.failed(err)
	default:
		a.answered()
	}
	if drained {
		return errClientLeft()
	}
	if !isAnswer || broken != nil && x.failureText() != "" {
		return x.fail(err)
	}
	x.answer.relay.Mu.Lock()
	if !x.answer.settling { // else the client left meanwhile
		rec.Delivered(x.cfg.Now())
	}
	x.answer.relay.Mu.Unlock()
	if err := x.settleEnd(a); err != nil {
		return x.failStored(err)
	}
	if x.client == nil {
		return nil
	}
	if x.client.endFiller(); x.client.opened { // a filler has begun a stream
		return x.wholeAsStream(rec)
	}
	x.markPassed() // the answer alone may not be stored
	h := x.client.w.Header()
	if typ := a.res.Header.Get("Content-Type"); typ != "" {
		h.Set("Content-Type", typ)
	}
	llmadapter.CopyRateLimits(h, a.res.Header)
	x.client.writeBody(http.StatusOK, body)
	return nil
}

// wholeAsStream sends an answer that came in one piece to a client whose stream has begun. A tool
// call cannot be sent that way.
func (x *exchange) wholeAsStream(rec *llmadapter.Record) error {
	if rec.Calls() {
		err := fault.New(fault.Upstream, "the LLM called a tool without a stream, after a filler")
		x.client.breakStream(err)
		return errors.Join(ErrAborted, err)
	}
	_ = x.client.say(rec.Generated()) // the client may be gone
	x.client.endStream()
	return nil
}
