package tail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Why a stream is ended by us: the reason in the event "dropped" and in the metric.
const (
	droppedSlow     = "slow"
	droppedShutdown = "shutdown"
	droppedErased   = "erased"
	droppedError    = "error" // the store does not answer, or the topic panicked
)

// Writer is a client's connection.
type Writer interface {
	io.Writer
	SetWriteDeadline(deadline time.Time) error
	Flush() error
}

// Reader is one open stream of an agent's events. Open returns it.
type Reader struct {
	hub   *Hub
	sub   *subscription
	kinds Kinds
	first *memory.Agent // sent first, if not nil
	sent  position      // last ID that was sent
	w     Writer
	// caughtUp is true once the reader was up to date; behind is since when it is not any more.
	caughtUp bool
	behind   time.Time
}

// Close ends the stream and waits until the agent is no longer followed if it was the last one.
func (r *Reader) Close() { r.hub.unsubscribe(r.sub) }

// Stream sends events to w until the agent ends, the client leaves, the server stops or the client
// is too slow. A stream that ends for one of the last two reasons ends with the event "dropped".
func (r *Reader) Stream(ctx context.Context, w Writer) {
	r.w = w
	var first [][]byte
	if r.first != nil {
		if data, err := json.Marshal(newAgentEvent(r.first)); err == nil {
			first = append(first, frame("agent", &r.sent, data))
		}
	}
	if r.write(first, nil) != nil {
		return
	}
	if why := r.run(ctx, r.sub.topic.begin(r.sent)); why != "" {
		r.hub.Metrics.dropped.WithLabelValues(why).Inc()
		r.hub.Log.Debug().Str("agent", r.sub.topic.key.ID).Str("reason", why).Msg("live tail dropped")
	}
}

// run sends until the stream is over. It returns the reason if we ended it, and "" if the agent
// ended or the client left.
func (r *Reader) run(ctx context.Context, have progress) (dropped string) {
	beat := time.NewTicker(r.hub.Limits.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-r.hub.Done:
			return r.drop(droppedShutdown)
		default:
		}
		b := r.sub.topic.next(have, r.kinds)
		if b.dropped != "" {
			return r.drop(b.dropped)
		}
		if b.behind {
			at, why, ok := r.catchUp(ctx, have.at)
			if have.at = at; !ok {
				return why
			}
			continue
		}
		if err := r.write(b.extra, b.events); err != nil {
			return reasonOf(err)
		}
		if have = b.next; b.more {
			if r.late() {
				return r.drop(droppedSlow)
			}
			continue
		}
		r.caughtUp, r.behind = true, time.Time{}
		if b.ended {
			return ""
		}
		select {
		case <-ctx.Done():
			return ""
		case <-r.hub.Done:
		case <-r.sub.wake:
		case <-beat.C:
			if err := r.heartbeat(have.at); err != nil {
				return reasonOf(err)
			}
		}
	}
}

// catchUp sends the events after a position from the store, or the first part of them, and returns
// the position after those. ok is false if the stream is over, for the reason it returns.
func (r *Reader) catchUp(ctx context.Context, at position) (next position, dropped string, ok bool) {
	if r.late() {
		return at, r.drop(droppedSlow), false
	}
	select {
	case r.hub.catchUps <- struct{}{}:
	case <-ctx.Done():
		return at, "", false
	case <-r.hub.Done:
		return at, "", true // run ends the stream
	}
	defer func() { <-r.hub.catchUps }()
	c, _, err := r.hub.load(ctx, r.sub.topic.key, at, r.kinds)
	switch {
	case ctx.Err() != nil:
		return at, "", false
	case fault.Is(err, fault.NotFound):
		return at, r.drop(droppedErased), false
	case err != nil:
		return at, r.drop(droppedError), false
	}
	r.hub.Metrics.reads.WithLabelValues("reader").Inc()
	events, next := c.finish()
	if next.compare(at) < 0 {
		next = at
	}
	if err := r.write(nil, events); err != nil {
		return at, reasonOf(err), false
	}
	return next, "", true
}

// late notes that the reader is behind. It reports whether a reader that was up to date has been
// behind for too long.
func (r *Reader) late() bool {
	now := r.hub.Now()
	if r.behind.IsZero() {
		r.behind = now
	}
	return r.caughtUp && now.Sub(r.behind) > r.hub.Limits.Behind
}

// reasonOf returns why a write failed: the client took nothing for too long, or it left, which is
// not a reason.
func reasonOf(err error) string {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return droppedSlow
	}
	return ""
}

// drop sends the reason why the stream ends, and when to reconnect: not all readers at once.
func (r *Reader) drop(why string) string {
	if b := frameOf("dropped", droppedEvent{Reason: why}); b != nil {
		retry := fmt.Appendf(nil, "retry: %d\n", 500+rand.IntN(2500))
		_ = r.write([][]byte{append(retry, b...)}, nil)
	}
	return why
}

// heartbeat sends a comment and, if no event that the client wants carried it, the current ID.
func (r *Reader) heartbeat(at position) error {
	b := []byte(": still here\n")
	if at.compare(r.sent) > 0 {
		b = append(at.appendID(append(b, "id: "...)), '\n')
		r.sent = at
	}
	return r.write([][]byte{append(b, '\n')}, nil)
}

// write sends events and then extra, and flushes once.
func (r *Reader) write(extra [][]byte, events []event) error {
	if err := r.w.SetWriteDeadline(time.Now().Add(r.hub.Limits.Write)); err != nil {
		return err
	}
	for i := range events {
		if _, err := r.w.Write(events[i].bytes); err != nil {
			return err
		}
		r.sent = events[i].at
	}
	for _, b := range extra {
		if _, err := r.w.Write(b); err != nil {
			return err
		}
	}
	r.hub.Metrics.sent.Add(float64(len(events) + len(extra)))
	return r.w.Flush()
}
