package checkpoint

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/heardlog/heardlog/internal/fault"
)

const (
	lookEvery = time.Second // how often Run looks for agents that are due
	atOnce    = 4           // how many are saved at a time
	saveFor   = 30 * time.Second
)

type agentKey struct{ project, id string }

// due holds when agents that have changed are to be saved.
type due struct {
	mu sync.Mutex
	at map[agentKey]time.Time
}

// Changed notes that an agent has changed whose memory is to be saved within so many seconds.
func (s *Service) Changed(project, id string, seconds int) {
	k, at := agentKey{project, id}, s.cfg.Now().Add(time.Duration(seconds)*time.Second)
	s.due.mu.Lock()
	defer s.due.mu.Unlock()
	if _, ok := s.due.at[k]; !ok {
		s.due.at[k] = at
	}
}

// take removes and returns the agents that are due.
func (d *due) take(now time.Time) (out []agentKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, at := range d.at {
		if !at.After(now) {
			out = append(out, k)
			delete(d.at, k)
		}
	}
	return out
}

// Run saves the memories of agents that have changed, until ctx is done; then it finishes what has
// begun and returns nil.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var group errgroup.Group
		group.SetLimit(atOnce)
		for _, k := range s.due.take(s.cfg.Now()) {
			group.Go(func() error { s.saveDue(ctx, k); return nil })
		}
		_ = group.Wait() // saveDue reports its errors
	}
}

// retrySeconds is when a checkpoint that failed is tried again.
const retrySeconds = 30

// saveDue saves one agent. What has begun is finished.
func (s *Service) saveDue(ctx context.Context, k agentKey) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), saveFor)
	defer stop()
	_, err := s.save(ctx, k.project, k.id, true)
	switch {
	case err == nil, fault.Is(err, fault.NotFound), fault.Is(err, fault.Stopped):
		return
	case fault.Is(err, fault.Unavailable):
		s.Changed(k.project, k.id, retrySeconds)
	}
	s.cfg.OnError("save a checkpoint of agent "+k.id, err)
}
