package webhook

import (
	"context"
	"time"
)

// Sweeper forgets deliveries that ended long ago, with their attempts and their events.
type Sweeper struct {
	Log  Log           // the log of deliveries, not the server's
	Keep time.Duration // how long they are kept after they ended; 0 = as long as their agent
	// KeepAgentless is how long events without an agent are kept if Keep is 0; 0 = for ever.
	KeepAgentless time.Duration
	Now           func() time.Time
}

// Sweep forgets what is due, in many small store calls, between which deliveries go on.
func (s *Sweeper) Sweep(ctx context.Context) error {
	keep, agentless := s.Keep, false
	if keep <= 0 {
		keep, agentless = s.KeepAgentless, true
	}
	if keep <= 0 {
		return nil
	}
	_, err := s.Log.ForgetDone(ctx, s.Now().Add(-keep).UnixMilli(), agentless)
	return err
}
