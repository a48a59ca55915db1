package realtime

import (
	"context"
	"encoding/json"
	"time"

	"github.com/coder/websocket"

	"github.com/heardlog/heardlog/internal/fault"
)

// reconnectPauses are the pauses before the attempts to connect again.
var reconnectPauses = [...]time.Duration{0, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}

// drainTimeout limits the wait for the ledger before it is read for a new connection.
const drainTimeout = 5 * time.Second

// reconnect replaces the connection to the model's server. The new one begins with the client's
// settings, with the conversation as it was heard, and with what the old one did not confirm.
func (x *session) reconnect(ctx context.Context) error {
	x.mu.Lock()
	lost := x.rec.lostAnswers()
	x.rec.finish(false)
	x.rec.reconnected()
	x.mu.Unlock()
	for _, l := range lost {
		if err := x.toClientNow(ctx, l.end()); err != nil {
			return err
		}
	}
	drain, stop := context.WithTimeout(ctx, drainTimeout)
	x.out.drain(drain)
	stop()
	var err error
	for _, pause := range reconnectPauses {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
		var up *websocket.Conn
		if up, err = x.dial(ctx, &x.call.Upstream); err == nil {
			if err = x.resume(ctx, up, lost); err == nil {
				x.cfg.Metrics.reconnects.WithLabelValues("ok").Inc()
				return nil
			}
			_ = up.CloseNow()
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if fault.Is(err, fault.Forbidden) {
			break
		}
	}
	x.cfg.Metrics.reconnects.WithLabelValues("failed").Inc()
	x.cfg.Log.Warn().Str("error", x.redacted(err.Error())).Str("agent", x.call.Agent).Msg("failed to connect to a realtime model again")
	return err
}

// resume sends what a new connection begins with, and puts it in the place of the old one.
func (x *session) resume(ctx context.Context, up *websocket.Conn, lost []lostAnswer) error {
	x.sending.Lock()
	defer x.sending.Unlock()
	x.mu.Lock()
	update, sent := x.settings.frame(), x.sent
	x.hidden, x.repeated = map[string]string{}, map[string]bool{}
	if x.muted = 0; update != nil {
		x.muted = 1
	}
	conversation := !x.rec.textOnly
	x.seeded = true
	x.mu.Unlock()
	frames := [][]byte{update}
	if conversation {
		before := ""
		for _, it := range x.memory(ctx, true) {
			x.mu.Lock()
			if x.rec.older[it.ID] != nil {
				before = it.ID
				x.repeated[it.ID] = true
			} else {
				x.hidden[it.ID] = before
			}
			x.mu.Unlock()
			frames = append(frames, it.frame())
		}
	}
	asked := false
	for _, u := range sent {
		frames = append(frames, u.frame)
		asked = asked || u.kind == respCreate
	}
	for _, l := range lost {
		if l.again && !asked {
			asked = true
			frames = append(frames, l.ask())
		}
	}
	for _, f := range frames {
		if err := x.write(up, f); err != nil {
			return err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.up, x.fresh = up, true
	close(x.ready)
	return nil
}

// lostAnswer is an answer that was being made when the connection broke.
type lostAnswer struct {
	id       string
	metadata json.RawMessage
	asked    []byte // the client's frame; nil for none
	again    bool   // the model is to be asked again
}

// lostAnswers returns the answers that are being made.
func (r *record) lostAnswers() (out []lostAnswer) {
	for _, resp := range r.responses {
		out = append(out, lostAnswer{id: resp.id, metadata: resp.metadata, asked: resp.asked, again: !resp.canceled && (!resp.aside || resp.asked != nil)})
	}
	return out
}

// end returns the event that ends the answer for the client, as an interruption would.
func (l lostAnswer) end() []byte {
	response := map[string]any{
		"object": "realtime.response", "id": l.id, "status": "cancelled", "output": []any{},
		"status_details": map[string]any{"type": "cancelled", "reason": "turn_detected"}, "usage": nil, "metadata": l.metadata,
	}
	raw, err := json.Marshal(map[string]any{"type": respDone, "event_id": newID(), "response": response})
	if err != nil {
		return nil
	}
	return raw
}

// ask returns the frame that asks for the answer again.
func (l lostAnswer) ask() []byte {
	if l.asked != nil {
		return l.asked
	}
	return []byte(`{"type":"response.create","event_id":"` + newID() + `"}`)
}

// stale returns what the client is answered if it truncates an item of a connection before this
// one: the model's server does not have its audio. It returns nil for other events.
func (x *session) stale(e *event) []byte {
	if e.kind != itemTruncate || x.rec.known[e.itemID] != nil || x.rec.older[e.itemID] == nil {
		return nil
	}
	raw, err := json.Marshal(map[string]any{
		"type": "conversation.item.truncated", "event_id": newID(), "item_id": e.itemID, "content_index": e.part, "audio_end_ms": e.audioEnd,
	})
	if err != nil {
		return nil
	}
	return raw
}
