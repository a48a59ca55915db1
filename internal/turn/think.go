package turn

import (
	"context"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Think runs a turn without a client: the message is durable and the turn begun when it returns, the answer is made in the
// background and stored. Whoever wants it follows the agent's events. fault.Unavailable when the server is going down;
// otherwise it fails as memory.Turns.Begin does.
func (r *Runner) Think(ctx context.Context, project, agentID string, m memory.Message) error {
	if !r.start() {
		return fault.New(fault.Unavailable, "the server is going down")
	}
	x := r.exchange(context.WithoutCancel(ctx))
	x.stream = true
	x.trace = r.traced(nil, project, agentID, x.arrived)
	err := x.begin(project, agentID, func(head memory.Head, _ []memory.Message) (memory.Plan, error) {
		return memory.Plan{Append: []memory.Message{m}}, r.speaks(head.Agent.Settings.LLM)
	})
	if err == nil {
		if err = r.cfg.Turns.Durable(x.turn); err != nil {
			_ = x.settle(err, nil, "")
		}
	}
	if err != nil {
		x.trace.end(x, err)
		x.cancel(nil)
		r.running.Done()
		return err
	}
	stop := context.AfterFunc(r.life, func() { x.cancel(errShutdown) })
	go func() { // Close waits for it
		defer r.running.Done()
		defer x.cancel(nil)
		defer x.trace.end(x, nil)
		defer stop()
		if err := x.run(); err != nil && !wasCut(err) {
			r.cfg.Log.Warn().Err(err).Str("agent", agentID).Int64("turn_id", x.turn.TurnID).Msg("a turn without a client failed")
		}
	}()
	return nil
}
