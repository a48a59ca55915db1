package turn

import (
	"context"
	"time"

	"github.com/heardlog/heardlog/memory/agents"
)

// leaveGrace limits how long storing waits for the write that was under way when the client left.
const leaveGrace = 250 * time.Millisecond

// watchClient reacts when the client of ctx goes away. The returned function ends that, and waits
// for a reaction that has begun.
func (x *exchange) watchClient(ctx context.Context) (stop func()) {
	handled := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(handled)
		if !x.share.firstLeft() {
			x.clientLeft()
		}
	})
	return func() {
		if !cancel() {
			<-handled
		}
	}
}

// clientLeft handles a client that went away. What it was sent is stored at once, since its next
// call comes within milliseconds and must find it. The upstream call is cancelled, or read on if
// the agent wants that and the limits allow it.
func (x *exchange) clientLeft() {
	if x.llm.OnDisconnect != "drain" || !x.startDrain() {
		x.cancel(agents.ErrClientGone)
		return
	}
	select {
	case <-x.answer.sentAll:
	case <-time.After(leaveGrace): // the client's connection neither takes nor refuses the write
	}
	_ = x.settle(agents.ErrClientGone, nil, "")
}

// startDrain reports whether the upstream is read on. It is not if too many are already, or if the
// answer is being stored.
func (x *exchange) startDrain() bool {
	x.answer.relay.Mu.Lock()
	defer x.answer.relay.Mu.Unlock()
	switch {
	case x.answer.drained:
		return true
	case x.answer.settling:
		return false
	case x.draining.Add(1) > x.cfg.Drain.Calls || !x.start():
		x.draining.Add(-1)
		return false
	}
	x.metrics.draining.Inc()
	x.answer.drained = true
	x.answer.sentAll = x.answer.relay.Mute()
	timer := time.AfterFunc(x.cfg.Drain.Time, func() { x.cancel(errDrained) })
	stop := context.AfterFunc(x.life, func() { x.cancel(errShutdown) })
	context.AfterFunc(x.ctx, func() {
		timer.Stop()
		stop()
	})
	return true
}

// finishDrain adds the full text to an answer that was read to its end without a client.
func (x *exchange) finishDrain() {
	x.answer.relay.Mu.Lock()
	if !x.answer.drained {
		x.answer.relay.Mu.Unlock()
		return
	}
	rec := &x.answer.relay.Record
	whole, text := rec.Complete(), rec.Generated()
	x.answer.relay.Mu.Unlock()
	defer func() {
		x.draining.Add(-1)
		x.metrics.draining.Dec()
		x.running.Done()
	}()
	<-x.answer.settled
	if !whole {
		return
	}
	if err := x.cfg.Turns.Complete(x.ctx, x.turn, text); err != nil {
		x.cfg.Log.Error().Err(err).Str("agent", x.turn.Agent.ID).Int64("turn_id", x.turn.TurnID).Msg("a drained answer could not be stored")
	}
}
