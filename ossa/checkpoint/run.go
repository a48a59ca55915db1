package checkpoint

import (
	"context"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/job"
)

// Changed has the memory of an agent that has changed saved within so many seconds.
func (s *Service) Changed(project, id string, seconds int) {
	s.queue.Add(job.Key{Project: project, ID: id}, time.Duration(seconds)*time.Second)
}

func (s *Service) kind() job.Kind {
	return job.Kind{
		Name: job.Checkpoint, Do: s.saveDue, First: 30 * time.Second, Longest: 30 * time.Second,
		Final: func(err error) bool { return !fault.Is(err, fault.Unavailable) }, Frequent: true,
	}
}

const saveFor = 30 * time.Second

// saveDue saves one agent. What has begun is finished.
func (s *Service) saveDue(ctx context.Context, k job.Key) (job.Result, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), saveFor)
	defer stop()
	_, err := s.save(ctx, k.Project, k.ID, true)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Stopped) {
		return job.Done(job.Nothing), nil
	}
	return job.Done(job.OK), err
}
