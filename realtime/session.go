package realtime

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/memory"
)

// session is one client's socket, and the connections to the model's server that it has in turn.
type session struct {
	*Server
	call   Call
	client *websocket.Conn
	out    *writer
	// allowed is closed when the client may no longer be connected.
	allowed <-chan struct{}
	stop    context.CancelCauseFunc
	// io is done once both sockets are closed: the end of a context of a socket breaks it.
	io context.Context

	// sending is held while a frame of the client goes to the model's server and is noted, so that
	// a new connection repeats what the old one did not confirm, and nothing twice.
	sending sync.Mutex

	mu       sync.Mutex
	rec      *record
	up       *websocket.Conn // nil while there is none
	ready    chan struct{}   // closed once there is one again
	settings settings        // of the client's session.update
	sent     []*unconfirmed
	hidden   map[string]string // our items by ID, with the client's item before it
	repeated map[string]bool   // items of the client's that were made again
	muted    int               // how many session.updated are answers to us
	seeded   bool
	fresh    bool // the connection has not brought anything for the client yet
	active   atomic.Bool
}

// The reasons why a socket ends.
var (
	errClientGone = errors.New("the client has closed the socket")
	errStopping   = errors.New("the server is stopping")
	errAgentOver  = errors.New("the call has ended")
)

// closed is the end of the connection to the model's server, which the client is told as it came.
type closed struct{ websocket.CloseError }

func (s *Server) newSession(c Call, client, up *websocket.Conn) *session {
	x := &session{Server: s, call: c, client: client, up: up, hidden: map[string]string{}, repeated: map[string]bool{}, ready: make(chan struct{})}
	close(x.ready)
	x.out = &writer{
		memory: s.cfg.Memory, project: c.Project, agent: c.Agent, log: s.cfg.Log,
		lost: func(n int) { s.cfg.Metrics.lost.Add(float64(n)) },
		over: func(error) { x.stop(errAgentOver) },
		ops:  make(chan func(context.Context) error, queued), finished: make(chan struct{}),
		renamed: map[string]string{}, suffix: func() string { return strings.TrimPrefix(newID(), ours) },
	}
	x.rec = newRecord(s.cfg.Now, s.cfg.Prices, x.out)
	return x
}

// run relays until the socket ends, and stores the rest.
func (x *session) run(base context.Context) {
	ctx, stop := context.WithCancelCause(base)
	defer stop(nil)
	x.stop = stop
	var closeIO context.CancelFunc
	x.io, closeIO = context.WithCancel(base)
	defer closeIO()
	var parts sync.WaitGroup
	go x.out.run(base)
	parts.Go(func() { x.watch(ctx) })
	parts.Go(func() { stop(x.toClient(ctx)) })
	if x.call.Session != nil {
		x.keep(x.call.Session)
		_ = x.write(x.up, x.settings.frame()) // a failure shows when it is read from
	}
	if x.call.Sideband {
		x.seed(ctx)
	}
	parts.Go(func() { stop(x.fromClient(ctx)) })
	<-ctx.Done()
	x.close(context.Cause(ctx))
	closeIO()
	parts.Wait()
	x.end(base)
}

// close closes both sockets.
func (x *session) close(why error) {
	code, reason := websocket.StatusNormalClosure, ""
	var c closed
	switch {
	case errors.Is(why, errStopping):
		code, reason = websocket.StatusGoingAway, why.Error()
	case errors.Is(why, errAgentOver):
		reason = why.Error()
	case errors.As(why, &c):
		code, reason = c.Code, c.Reason
	case !errors.Is(why, errClientGone) && why != nil:
		code, reason = websocket.StatusInternalError, "the connection to the realtime model was lost"
		if fault.Is(why, fault.Unavailable) {
			code, reason = websocket.StatusTryAgainLater, "the client takes too long to receive"
		}
	}
	x.mu.Lock()
	up := x.up
	x.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { _ = x.client.Close(code, reason) })
	if up != nil {
		both.Go(func() { _ = up.Close(websocket.StatusNormalClosure, "") })
	}
	both.Wait()
}

// end stores what is left, and ends the agent if it was the socket's.
func (x *session) end(base context.Context) {
	ctx, stop := context.WithTimeout(base, endTimeout)
	defer stop()
	defer context.AfterFunc(x.cfg.Sockets.Cut(), stop)()
	x.mu.Lock()
	x.rec.finish(true)
	x.mu.Unlock()
	x.out.drain(ctx)
	close(x.out.ops)
	<-x.out.finished
	if x.call.Ends {
		if err := x.cfg.Memory.Agents.End(ctx, x.call.Project, x.call.Agent, memory.EndOK); err != nil && !fault.Is(err, fault.NotFound) {
			x.cfg.Log.Error().Err(err).Str("agent", x.call.Agent).Msg("failed to end a realtime call")
		}
	}
}

// watch ends the socket with the server or the agent, and finds clients that are gone.
func (x *session) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-x.cfg.Sockets.Stopping():
			x.stop(errStopping)
			return
		case <-x.allowed:
			x.stop(closed{websocket.CloseError{Code: websocket.StatusPolicyViolation, Reason: "the credential has ended"}})
			return
		case <-tick.C:
		}
		a, err := x.cfg.Memory.Agents.Agent(ctx, x.call.Project, x.call.Agent)
		if fault.Is(err, fault.NotFound) || err == nil && a.Status.Ended() {
			x.stop(errAgentOver)
			return
		}
		if x.active.Swap(false) {
			x.cfg.Memory.Messages.Touch(x.call.Project, x.call.Agent)
		}
		ping, done := context.WithTimeout(x.io, pingTimeout)
		if err := x.client.Ping(ping); err != nil && ctx.Err() == nil {
			x.stop(errClientGone)
		}
		done()
	}
}

// buffers hold frames while they pass.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// keptBuffer is how large a buffer may be that is used again.
const keptBuffer = 256 << 10

// read reads a frame into a buffer, which the caller must give back with release.
func read(ctx context.Context, c *websocket.Conn) (websocket.MessageType, *bytes.Buffer, error) {
	kind, r, err := c.Reader(ctx)
	if err != nil {
		return 0, nil, err
	}
	b := buffers.Get().(*bytes.Buffer)
	b.Reset()
	if _, err := b.ReadFrom(r); err != nil {
		release(b)
		return 0, nil, err
	}
	return kind, b, nil
}

func release(b *bytes.Buffer) {
	if b.Cap() <= keptBuffer {
		buffers.Put(b)
	}
}

// fromClient passes the client's frames on.
func (x *session) fromClient(ctx context.Context) error {
	for {
		kind, b, err := read(x.io, x.client)
		if err != nil {
			return errClientGone
		}
		x.active.Store(true)
		err = x.passOn(ctx, kind, b.Bytes())
		release(b)
		if err != nil {
			return err
		}
	}
}

// passOn sends a frame of the client's to the model's server. While there is no connection to it,
// the frame waits.
func (x *session) passOn(ctx context.Context, kind websocket.MessageType, frame []byte) error {
	var e event
	if kind == websocket.MessageText {
		e = readEvent(frame)
	}
	if e.kind != "" && e.kind != sessionUpdate {
		x.begin(ctx, &e)
	}
	x.mu.Lock()
	x.rec.fromClient(&e)
	reply := x.stale(&e)
	if e.kind == sessionUpdate && e.session.IsObject() {
		x.settings.merge(e.session)
	}
	x.mu.Unlock()
	if reply != nil {
		return x.toClientNow(ctx, reply)
	}
	for {
		up, err := x.upstream(ctx)
		if err != nil {
			return err
		}
		if err = x.send(up, kind, frame, &e); err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		x.broken(up)
	}
}

// send sends a frame of the client's, and notes it until the server confirms it.
func (x *session) send(up *websocket.Conn, kind websocket.MessageType, frame []byte, e *event) error {
	x.sending.Lock()
	defer x.sending.Unlock()
	x.mu.Lock()
	gone := x.up != up
	x.mu.Unlock()
	if gone {
		return errors.New("the connection was replaced")
	}
	if e.kind != itemCreate && e.kind != respCreate {
		return up.Write(x.io, kind, frame)
	}
	// Noted first: the confirmation may come before Write returns.
	u := &unconfirmed{kind: e.kind, item: e.itemID, event: e.eventID, frame: bytes.Clone(frame)}
	x.mu.Lock()
	if x.sent = append(x.sent, u); len(x.sent) > maxUnconfirmed {
		x.sent = x.sent[1:]
	}
	x.mu.Unlock()
	err := up.Write(x.io, kind, frame)
	if err != nil { // it is sent again
		x.mu.Lock()
		x.sent = slices.DeleteFunc(x.sent, func(o *unconfirmed) bool { return o == u })
		x.mu.Unlock()
	}
	return err
}

// unconfirmed is a frame of the client's that the server has not answered yet.
type unconfirmed struct {
	kind, item, event string
	frame             []byte
}

const maxUnconfirmed = 64

// confirm forgets the frame that an event answers.
func (x *session) confirm(e *event) (frame []byte) {
	for i, u := range x.sent {
		ok := false
		switch e.kind {
		case itemAdded, itemDone:
			ok = u.kind == itemCreate && (u.item == e.itemID || u.item == "" && !strings.HasPrefix(e.itemID, ours) && e.item.At("status").Str() != "in_progress")
		case respCreated:
			ok = u.kind == respCreate
		case "error":
			id := e.failure.At("event_id").Str()
			ok = id != "" && u.event == id
		}
		if ok {
			x.sent = append(x.sent[:i:i], x.sent[i+1:]...)
			return u.frame
		}
	}
	return nil
}

// upstream returns the connection to the model's server. It waits while there is none.
func (x *session) upstream(ctx context.Context) (*websocket.Conn, error) {
	for {
		x.mu.Lock()
		up, ready := x.up, x.ready
		x.mu.Unlock()
		if up != nil {
			return up, nil
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// broken has the connection replaced.
func (x *session) broken(up *websocket.Conn) {
	x.mu.Lock()
	if x.up == up {
		x.up, x.ready = nil, make(chan struct{})
	}
	x.mu.Unlock()
	_ = up.CloseNow()
}

// toClient passes the frames of the model's server on, over one connection after the other.
func (x *session) toClient(ctx context.Context) error {
	failures := 0
	for {
		up, err := x.upstream(ctx)
		if err != nil {
			return err
		}
		kind, b, err := read(x.io, up)
		if err == nil {
			err = x.deliver(ctx, kind, b.Bytes())
			release(b)
			if err != nil {
				return err
			}
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		x.broken(up)
		if final(err) || x.call.Sideband {
			var c websocket.CloseError
			if errors.As(err, &c) {
				return closed{c}
			}
			return err
		}
		x.mu.Lock()
		if failures++; !x.fresh {
			failures = 1
		}
		x.mu.Unlock()
		if failures > maxFailures {
			return err
		}
		if err := x.reconnect(ctx); err != nil {
			return err
		}
	}
}

// maxFailures is how many connections in a row may end before they bring anything.
const maxFailures = 5

// final reports whether a connection ended in a way that another would, too.
func final(err error) bool {
	switch code := websocket.CloseStatus(err); code {
	case websocket.StatusPolicyViolation, websocket.StatusUnsupportedData, websocket.StatusInvalidFramePayloadData, websocket.StatusMessageTooBig:
		return true
	default:
		return code >= 3000
	}
}

// deliver passes a frame of the model's server on to the client, unless it answers something that
// the client has not sent.
func (x *session) deliver(ctx context.Context, kind websocket.MessageType, frame []byte) error {
	var e event
	if kind == websocket.MessageText {
		e = readEvent(frame)
	}
	x.mu.Lock()
	hide := x.hides(&e)
	if !hide {
		frame = x.withoutOurs(frame, &e)
	}
	x.mu.Unlock()
	if hide {
		return nil
	}
	err := x.toClientFrame(ctx, kind, frame)
	x.mu.Lock()
	defer x.mu.Unlock()
	if e.kind != "session.created" && e.kind != "session.updated" && e.kind != "error" {
		x.fresh = false
	}
	if asked := x.confirm(&e); e.kind == respCreated {
		x.rec.fromServer(&e)
		if resp := x.rec.responses[e.respID]; resp != nil {
			resp.asked = asked
		}
	} else {
		x.rec.fromServer(&e)
	}
	if e.kind == "error" {
		x.cfg.Metrics.errors.Inc()
	}
	return err
}

// toClientFrame writes a frame to the client, which has its time to take it.
func (x *session) toClientFrame(ctx context.Context, kind websocket.MessageType, frame []byte) error {
	limit, stop := context.WithTimeout(x.io, writeTimeout)
	defer stop()
	err := x.client.Write(limit, kind, frame)
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil && limit.Err() != nil:
		return fault.Wrap(fault.Unavailable, err, "the client takes too long to receive")
	}
	return errClientGone
}

func (x *session) toClientNow(ctx context.Context, frame []byte) error {
	return x.toClientFrame(ctx, websocket.MessageText, frame)
}

// hides reports whether an event is not for the client: it answers our own frames.
func (x *session) hides(e *event) bool {
	switch e.kind {
	case itemAdded, itemDone:
		_, own := x.hidden[e.itemID]
		return own || x.repeated[e.itemID]
	case "session.created", "conversation.created":
		return x.rec.connection > 0
	case "session.updated":
		if x.muted > 0 {
			x.muted--
			return true
		}
	case "error":
		if id := e.failure.At("event_id").Str(); strings.HasPrefix(id, ours) {
			x.cfg.Metrics.errors.Inc()
			x.cfg.Log.Warn().Str("agent", x.call.Agent).Str("error", x.redacted(e.failure.At("message").Str())).Msg("a realtime model did not accept what is remembered")
			return true
		}
		// The next connection takes its place.
		return e.failure.At("code").Str() == "session_expired" && !x.call.Sideband
	}
	return false
}

// redacted returns a text of the model's server without personal data, for the log.
func (x *session) redacted(text string) string {
	a, err := x.cfg.Memory.Agents.Agent(x.io, x.call.Project, x.call.Agent)
	if err != nil { // its rules are not known
		return "(not shown)"
	}
	return x.cfg.Memory.Messages.Redactor(&a).Unasked().Text(text)
}

// withoutOurs returns the frame without the name of an item of ours, which the client does not
// know.
func (x *session) withoutOurs(frame []byte, e *event) []byte {
	if !e.previous.IsString() {
		return frame
	}
	before, own := x.hidden[e.prev()]
	if !own {
		return frame
	}
	value := "null"
	if before != "" {
		value = strconv.Quote(before)
	}
	e.previous = peek.Value(value)
	return peek.Replace(frame, peek.At(frame, "previous_item_id"), value)
}
