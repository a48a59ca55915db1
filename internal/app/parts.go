package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/heardlog/heardlog/internal/summary"
	"github.com/heardlog/heardlog/longterm/replay"
	"github.com/heardlog/heardlog/ossa/checkpoint"
	"github.com/heardlog/heardlog/store/record"
)

// part is a piece of the server that works beside the requests until its context ends.
type part struct {
	name string
	run  func(ctx context.Context) error
}

// runs adds a part, which Run starts after those before it.
func (a *App) runs(name string, run func(ctx context.Context) error) {
	a.parts = append(a.parts, part{name, run})
}

// closes has something closed at the end of the server, or of a New that fails, before what was
// opened earlier.
func (a *App) closes(f func(ctx context.Context) error) { a.closers = append(a.closers, f) }

// close closes what was opened, the last first.
func (a *App) close(ctx context.Context) (err error) {
	for _, f := range slices.Backward(a.closers) {
		err = errors.Join(err, f(ctx))
	}
	return err
}

// start starts a part. Its error is passed to fail, too: without one of its parts, the server would
// lose data silently.
func (p part) start(ctx context.Context, group *errgroup.Group, fail context.CancelCauseFunc) {
	group.Go(func() error {
		err := p.run(ctx)
		if err != nil {
			err = fmt.Errorf("%s: %w", p.name, err)
			fail(err)
		}
		return err
	})
}

// The three events below connect nouns that do not know each other. Each function is called in the
// order in which it was added, while the server is made.

// onAgentEnded has f called when a call has ended. It must be quick.
func (a *App) onAgentEnded(f func(project, id string)) {
	a.whenAgentEnded = append(a.whenAgentEnded, f)
}

func (a *App) agentEnded(project, id string) {
	for _, f := range a.whenAgentEnded {
		f(project, id)
	}
}

// onAgentErased has f delete what is kept of an agent outside the ledger when that is erased.
func (a *App) onAgentErased(f func(ctx context.Context, project, id string) error) {
	a.whenAgentErased = append(a.whenAgentErased, f)
}

func (a *App) agentErased(ctx context.Context, project, id string) error {
	for _, f := range a.whenAgentErased {
		if err := f(ctx, project, id); err != nil {
			return err
		}
	}
	return nil
}

// ForgetAgent returns a function that deletes what a store keeps of an agent outside the ledger of
// the call: checkpoints, the summary of the call and results of replays.
func ForgetAgent(records record.Store, now func() time.Time) func(ctx context.Context, project, id string) error {
	calls := summary.Calls{Records: records, Now: now}
	return func(ctx context.Context, project, id string) error {
		at := now().UnixMilli()
		return errors.Join(checkpoint.Forget(ctx, records, project, id, at), calls.Forget(ctx, project, id), replay.Forget(ctx, records, project, id, at))
	}
}

// onCallerErased has f forget what is in memory of a caller that is erased.
func (a *App) onCallerErased(f func(project, user string)) {
	a.whenCallerErased = append(a.whenCallerErased, f)
}

func (a *App) callerErased(project, user string) {
	for _, f := range a.whenCallerErased {
		f(project, user)
	}
}
