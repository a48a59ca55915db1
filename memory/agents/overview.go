package agents

import (
	"context"

	"github.com/heardlog/heardlog/memory"
)

// Overview counts the calls of a project that started in a time; see memory.ReadOverview.
func (s *Service) Overview(ctx context.Context, project string, fromMS, toMS int64) (memory.Overview, error) {
	return memory.ReadOverview(ctx, s.cfg.Ledger, project, fromMS, toMS)
}
