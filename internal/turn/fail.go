package turn

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// The reasons of a failed turn (reference/agora-api.md 1.9).
const (
	reasonLLM      = "LLM_REQUEST_ERR"
	reasonInternal = "INTERNAL_ERR"
)

// leaveGrace bounds how long the record of what a client was sent waits for the write that was under way when it left.
const leaveGrace = 250 * time.Millisecond

// clientLeft deals with a client that went away. What was sent is stored at once: the caller's next words come within
// milliseconds and must find it. The upstream call is ended, or read on if the agent wants that and the bounds allow.
func (x *exchange) clientLeft() {
	if x.llm.OnDisconnect != "drain" || !x.startDrain() {
		x.cancel(memory.ErrClientGone)
		return
	}
	select {
	case <-x.noted:
	case <-time.After(leaveGrace): // it does not take what it is sent, and does not refuse it either
	}
	_ = x.settle(memory.ErrClientGone, nil, "")
}

// startDrain takes a place among the drains; false if there is none, or the answer is being stored already.
func (x *exchange) startDrain() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.drained {
		return true
	}
	if x.settling || x.draining.Add(1) > x.cfg.Drain.Calls {
		if !x.settling {
			x.draining.Add(-1)
		}
		return false
	}
	if !x.start() {
		x.draining.Add(-1)
		return false
	}
	x.metrics.draining.Inc()
	x.drained = true
	x.noted = x.relay.Mute()
	timer := time.AfterFunc(x.cfg.Drain.Time, func() { x.cancel(errDrained) })
	context.AfterFunc(x.ctx, func() { timer.Stop() })
	stop := context.AfterFunc(x.life, func() { x.cancel(errShutdown) })
	context.AfterFunc(x.ctx, func() { stop() })
	return true
}

func (x *exchange) isSettling() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.settling
}

func (x *exchange) isDrained() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.drained
}

// finishDrain completes the record of an answer that was read to its end without a client.
func (x *exchange) finishDrain() {
	x.mu.Lock()
	drained, whole, text := x.drained, x.relay.Record.Complete(), x.relay.Record.Generated()
	x.mu.Unlock()
	if !drained {
		return
	}
	defer func() {
		x.draining.Add(-1)
		x.metrics.draining.Dec()
		x.running.Done()
	}()
	<-x.settled
	if !whole {
		return
	}
	if err := x.cfg.Turns.Complete(x.ctx, x.turn, text); err != nil {
		x.cfg.Log.Error().Err(err).Str("agent", x.turn.Agent.ID).Int64("turn_id", x.turn.TurnID).Msg("a drained answer could not be stored")
	}
}

// fail ends an exchange whose answer did not come to its end, and says what the handler has to answer, if anything.
func (x *exchange) fail(err error) error {
	x.unanswered(err)
	x.filler.end()
	if x.isDrained() { // nobody listens, and what was sent is stored
		return fault.New(fault.Canceled, "the client went away")
	}
	if wasCut(err) {
		return x.cut(err)
	}
	if errors.Is(err, memory.ErrClientGone) {
		_ = x.settle(memory.ErrClientGone, nil, "")
		return fault.New(fault.Canceled, "the client went away")
	}
	if errors.Is(err, errShutdown) {
		_ = x.settle(err, nil, "")
		return err
	}
	begun := x.out != nil && x.out.begun
	f := x.failure(err)
	if text := x.failureText(); text != "" && !x.spoke() {
		return x.speak(err, f, text)
	}
	_ = x.settle(err, f, "")
	switch {
	case x.w == nil:
		return err
	case begun:
		x.breakStream(err)
		return errors.Join(ErrAborted, err)
	}
	if up, ok := errors.AsType[*llmadapter.UpstreamError](err); ok {
		x.passError(up)
		return nil
	}
	return err
}

// cut ends an exchange that somebody asked to end.
func (x *exchange) cut(err error) error {
	_ = x.settle(err, nil, "")
	switch {
	case x.w == nil:
		return err
	case x.stream:
		x.endStream()
		return nil
	}
	return fault.New(fault.Conflict, "the answer was cut before it was complete: %s", err)
}

// spoke tells whether the client was sent any words.
func (x *exchange) spoke() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.relay.Record.FirstTokenAt.IsZero()
}

// failureText gives what the agent says when its LLM fails; "" for nothing.
func (x *exchange) failureText() string {
	return memory.FillTemplate(x.llm.FailureMessage, x.llm.Variables)
}

// failure gives the record of what went wrong. Its text holds no secret: it reaches webhooks.
func (x *exchange) failure(err error) *memory.Failure {
	f := &memory.Failure{Reason: reasonLLM, Code: http.StatusBadGateway, Message: "the LLM failed"}
	if up, ok := errors.AsType[*llmadapter.UpstreamError](err); ok {
		f.Code, f.Message = up.Status, up.Text
		return f
	}
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		f.Reason = reasonInternal
		return f
	}
	f.Message = e.Msg
	switch e.Code {
	case fault.UpstreamTimeout:
		f.Code = http.StatusGatewayTimeout
	case fault.Upstream:
		if s, ok := errors.AsType[*statusError](err); ok {
			f.Code = s.status
		}
	default:
		f.Reason, f.Code = reasonInternal, http.StatusInternalServerError
	}
	return f
}

// statusError is the status that an error object inside a stream names.
type statusError struct{ status int }

// Error gives the status.
func (e *statusError) Error() string { return "status " + strconv.Itoa(e.status) }

// fallsOver tells whether another upstream may do better.
func (e *statusError) fallsOver() bool {
	return e.status == http.StatusTooManyRequests || e.status >= http.StatusInternalServerError
}

// streamFault gives the error for an error object inside a stream: an object with a message, or a string.
func (x *exchange) streamFault(obj []byte) error {
	call := llmadapter.Call{APIKey: x.asking.key, Headers: reveal(x.asking.headers)}
	text, status := llmadapter.ErrorObject(obj, call.Secrets())
	return &fault.Error{Code: fault.Upstream, Msg: text, Err: &statusError{status}}
}

// speak gives the client the agent's failure message as if the model had said it (reference/agora-api.md 2.1).
func (x *exchange) speak(err error, f *memory.Failure, text string) error {
	if x.w == nil {
		_ = x.settle(err, f, text)
		return err
	}
	if !x.stream {
		_ = x.settle(err, f, text)
		x.writeWhole(x.completion(text))
		return nil
	}
	if werr := x.inject(x.event(text, "")); werr != nil {
		x.out.done()
		_ = x.settle(memory.ErrClientGone, f, "")
		return fault.New(fault.Canceled, "the client went away")
	}
	_ = x.settle(err, f, text)
	x.endStream()
	return nil
}

// completion gives a whole answer of our own.
func (x *exchange) completion(text string) []byte {
	b := append([]byte(`{"id":"chatcmpl-heardlog-`), x.turn.Agent.ID...)
	b = strconv.AppendInt(append(b, '-'), x.turn.TurnID, 10)
	b = strconv.AppendInt(append(b, `","object":"chat.completion","created":`...), x.arrived.Unix(), 10)
	b = appendJSON(append(b, `,"model":`...), x.modelName())
	b = appendJSON(append(b, `,"choices":[{"index":0,"message":{"role":"assistant","content":`...), text)
	return append(b, `},"finish_reason":"stop"}]}`...)
}

// passError passes an upstream's error on.
func (x *exchange) passError(e *llmadapter.UpstreamError) {
	h := x.w.Header()
	for k, v := range e.Header {
		h[k] = v
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(e.Body)))
	x.share.answer(e.Status, h, e.Body)
	x.timing.set(h)
	x.w.WriteHeader(e.Status)
	writeAll(x.w, e.Body, x.cfg.WriteTimeout)
}

// appendJSON appends a string as JSON.
func appendJSON(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // a string cannot fail
		return append(dst, `""`...)
	}
	return append(dst, b...)
}
