package turn

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// client is the client's side of a stream: an llmadapter.StreamWriter that sends the headers with the first byte, so that a
// failure before it can still have a status of its own.
type client struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	flush   func() error
	timeout time.Duration
	now     func() time.Time
	timing  *timing
	share   *share    // who else gets it; nil for nobody
	due     time.Time // the deadline that is set
	begun   bool
}

func newClient(x *exchange) *client {
	return &client{w: x.w, rc: http.NewResponseController(x.w), flush: flusher(x.w), timeout: x.cfg.WriteTimeout, now: x.cfg.Now, timing: &x.timing, share: x.share}
}

// flusher finds the Flush that reports errors: wrappers of a ResponseWriter often offer one that does not, and only an
// error tells that words did not leave the socket.
func flusher(w http.ResponseWriter) func() error {
	for inner := w; ; {
		switch f := inner.(type) {
		case interface{ FlushError() error }:
			return f.FlushError
		case interface{ Unwrap() http.ResponseWriter }:
			inner = f.Unwrap()
			continue
		}
		return http.NewResponseController(w).Flush
	}
}

// streamHeaders sets the headers of a stream; contentType is the upstream's, "" if it gave none.
func (c *client) headers(contentType string, from http.Header) {
	h := c.w.Header()
	if contentType == "" {
		contentType = "text/event-stream"
	}
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	rateLimits(h, from)
}

// rateLimits passes on what an upstream says about its limits.
func rateLimits(h, from http.Header) {
	for k, v := range from {
		if strings.HasPrefix(k, "X-Ratelimit-") {
			h[k] = v
		}
	}
}

// Write implements io.Writer: to the client, and to those who follow the answer.
func (c *client) Write(b []byte) (int, error) {
	if c.share != nil {
		return c.share.write(c, b)
	}
	return c.write(b)
}

// write writes to the client. One that does not read cannot hold a stream for longer than the timeout.
func (c *client) write(b []byte) (int, error) {
	if now := c.now(); c.due.Sub(now) < c.timeout*3/4 { // setting it each time would cost more than the write
		c.due = now.Add(c.timeout)
		_ = c.rc.SetWriteDeadline(c.due) // a writer without deadlines has none
	}
	if c.begun {
		return c.w.Write(b)
	}
	c.begun = true
	c.timing.set(c.w.Header())
	c.w.WriteHeader(http.StatusOK)
	return c.w.Write(b)
}

// Flush implements llmadapter.StreamWriter.
func (c *client) Flush() error {
	if c.share != nil {
		return c.share.flush(c)
	}
	return c.flush()
}

// done takes the deadline off the connection, which may serve another request.
func (c *client) done() {
	if !c.due.IsZero() {
		_ = c.rc.SetWriteDeadline(time.Time{})
	}
}

// relayStream passes a stream on.
func (x *exchange) relayStream(a *attempt) error {
	res := a.res
	text := x.failureText()
	progress := false
	x.relay.Alive = func(rec *llmadapter.Record) {
		a.watch.Event(rec)
		if !a.booked && rec.Error == nil && rec.Begun() {
			x.answered(a)
		}
		if !progress && (rec.Spoke() || rec.Calls()) { // before the client has the words: what he asks for next must find the agent speaking
			progress = true
			x.filler.end()
			x.cfg.Turns.Progress(x.turn, memory.Speaking)
		}
	}
	x.relay.Ending = func() error {
		if rec := &x.relay.Record; !rec.Spoke() && !rec.Complete() && rec.Error == nil && rec.ID == "" && !rec.Cut() {
			return errNoWords
		}
		return x.settleEnd()
	}
	x.relay.StopOnError = text != ""
	if x.w != nil {
		x.filler.guarded(func() { x.openOut(res.Header.Get("Content-Type"), res.Header) })
		x.relay.Out = x.out
		if x.filler != nil {
			x.relay.Out = &fillerOut{x.filler, x.out}
		}
		defer x.out.done()
	}
	src := &bounded{Reader: res.Body, x: x}
	err := x.relay.Run(src)
	if gone, ok := errors.AsType[*llmadapter.WriteError](err); ok {
		x.cfg.Log.Debug().Err(gone).Str("agent", x.turn.Agent.ID).Msg("a client could not be written to")
		x.clientLeft()
		if x.isDrained() {
			err = x.relay.Run(src)
		} else {
			err = memory.ErrClientGone
		}
	}
	switch {
	case err == nil: // settled by Ending
		if broken := x.relay.Record.Error; broken != nil {
			x.unanswered(x.streamFault(broken))
		}
		x.answered(a) // a last event without its blank line is read at the end only
		return nil
	case errors.Is(err, llmadapter.ErrStream):
		return x.fail(x.streamFault(x.relay.Record.Error))
	}
	if !isNotStored(err) && !errors.Is(err, errNoWords) {
		err = llmadapter.ReadFault(a.ctx, err)
	}
	if errors.Is(err, llmadapter.ErrGrace) {
		err = x.relay.End()
		if err == nil {
			return nil
		}
	}
	if lost, ok := errors.AsType[*notStored](err); ok {
		x.answered(a)
		return x.failStored(lost)
	}
	return x.fail(err)
}

// errNoWords is a stream that ended without a single chunk: no answer at all, however well it ended.
var errNoWords = fault.New(fault.Upstream, "the LLM ended its answer without a chunk of it")

// settleEnd stores an answer that the upstream finished, or that it finished with an error object, which the client got.
func (x *exchange) settleEnd() error {
	x.mu.Lock()
	rec := &x.relay.Record
	broken, unsent := rec.Error, x.drained && rec.Sent() != rec.Generated()
	x.mu.Unlock()
	switch {
	case unsent: // it came to its end before what the client got of it was stored
		return x.settle(memory.ErrClientGone, nil, "")
	case broken == nil:
		return x.settle(nil, nil, "")
	}
	err := x.streamFault(broken)
	return x.settle(err, x.failure(err), "")
}

// bounded reads an upstream and gives up when a drain takes too much.
type bounded struct {
	io.Reader
	x *exchange
	n int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.x.isDrained() {
		if b.n += int64(n); b.n > b.x.cfg.Drain.Bytes {
			b.x.cancel(errDrained)
		}
	}
	return n, err
}

// event gives one chunk of a stream of our own.
func (x *exchange) event(text, finish string) []byte {
	b := append([]byte(`data: {"id":"chatcmpl-heardlog-`), x.turn.Agent.ID...)
	b = strconv.AppendInt(append(b, '-'), x.turn.TurnID, 10)
	b = strconv.AppendInt(append(b, `","object":"chat.completion.chunk","created":`...), x.arrived.Unix(), 10)
	b = appendJSON(append(b, `,"model":`...), x.modelName())
	b = append(b, `,"choices":[{"index":0,"delta":{`...)
	if text != "" {
		b = append(appendJSON(append(b, `"role":"assistant","content":`...), text), `},"finish_reason":null}]}`...)
	} else {
		b = append(appendJSON(append(b, `},"finish_reason":`...), finish), `}]}`...)
	}
	return append(b, "\n\n"...)
}

func (x *exchange) modelName() string {
	if x.model != "" {
		return x.model
	}
	if x.llm.Model != "" {
		return x.llm.Model
	}
	return "heardlog"
}

// openOut makes the client's side of the stream ready, with the headers of the upstream's answer as long as none are sent.
func (x *exchange) openOut(contentType string, from http.Header) {
	if x.out == nil {
		x.out = newClient(x)
	}
	if !x.out.begun {
		x.out.headers(contentType, from)
	}
}

// inject writes something of our own between two events of a stream.
func (x *exchange) inject(b []byte) error {
	x.filler.end()
	if x.out == nil {
		x.openOut("", nil)
	}
	if x.relay.Torn() {
		b = append([]byte("\n\n"), b...)
	}
	if _, err := x.out.Write(b); err != nil {
		return err
	}
	return x.out.Flush()
}

// endStream ends the client's stream in good order, because somebody asked for the end.
func (x *exchange) endStream() {
	_ = x.inject(append(x.event("", "stop"), "data: [DONE]\n\n"...)) // one who is gone does not need it
	x.out.done()
}

// breakStream tells the client that the stream broke; the caller aborts the connection behind it.
func (x *exchange) breakStream(err error) {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		e = &fault.Error{Code: fault.Upstream, Msg: "the LLM broke off within its answer"}
	}
	b := appendJSON([]byte(`data: {"error":{"message":`), e.Msg)
	b = append(b, `,"type":"upstream_error","param":null,"code":`...)
	b = append(appendJSON(b, string(e.Code)), "}}\n\n"...)
	_ = x.inject(b)
	x.out.done()
}
