package memory

import (
	"context"
	"sync/atomic"
)

// commitsKey is the key of a context's commits.
type commitsKey struct{}

// WithCommits returns a context in which stores note that something was committed, and a function
// that reports whether that has happened. A call that has committed nothing and yet acknowledges
// something, such as a repeat, must know by other means that what it has read is safe.
func WithCommits(ctx context.Context) (_ context.Context, committed func() bool) {
	done := new(atomic.Bool)
	return context.WithValue(ctx, commitsKey{}, done), done.Load
}

// CountsCommits reports whether the context is one of WithCommits, and of no commit is known yet.
func CountsCommits(ctx context.Context) bool {
	done, ok := ctx.Value(commitsKey{}).(*atomic.Bool)
	return ok && !done.Load()
}

// Committed notes that something was committed.
func Committed(ctx context.Context) {
	if done, ok := ctx.Value(commitsKey{}).(*atomic.Bool); ok {
		done.Store(true)
	}
}
