package webhook

import (
	"context"
	"time"
)

// sweepEvery is how often old deliveries are looked for.
const sweepEvery = 10 * time.Minute

// Sweeper forgets deliveries that ended long ago, with their attempts and their events.
type Sweeper struct {
	Log  Log           // the log of deliveries, not the server's
	Keep time.Duration // how long they are kept after they ended; 0 = as long as their agent
	// KeepAgentless is how long events without an agent are kept if Keep is 0; 0 = for ever.
	KeepAgentless time.Duration
	Now           func() time.Time // nil is time.Now
	// Called after a sweep that failed; the next one does its work. May be nil.
	OnError func(error)
}

// Run sweeps at once and then periodically until ctx is done, and returns nil. A sweep is many
// small store calls, between which deliveries go on.
func (s *Sweeper) Run(ctx context.Context) error {
	keep, agentless := s.Keep, false
	if keep <= 0 {
		keep, agentless = s.KeepAgentless, true
	}
	if keep <= 0 {
		return nil
	}
	now := s.Now
	if now == nil {
		now = time.Now
	}
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		_, err := s.Log.ForgetDone(ctx, now().Add(-keep).UnixMilli(), agentless)
		if err != nil && ctx.Err() == nil && s.OnError != nil {
			s.OnError(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
