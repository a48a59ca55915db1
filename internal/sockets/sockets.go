// Package sockets keeps account of the WebSockets that are open: how many there are, how many of
// each project, and that all of them have ended when the server stops.
package sockets

import (
	"context"
	"errors"
	"sync"

	"github.com/heardlog/heardlog/internal/fault"
)

// ErrCut is the cause of Cut's context.
var ErrCut = errors.New("the server is going down")

// Account counts sockets. It is safe for concurrent use.
type Account struct {
	limit, perProject int
	stopping          chan struct{}
	cut               context.Context
	end               context.CancelCauseFunc

	mu        sync.Mutex
	byProject map[string]int
	open      int
	empty     chan struct{} // closed once none is open after Close
}

// New returns an Account that lets limit sockets be open at a time, and perProject of one project.
// 0 is any number.
func New(limit, perProject int) *Account {
	a := &Account{limit: limit, perProject: perProject, stopping: make(chan struct{}), byProject: map[string]int{}, empty: make(chan struct{})}
	a.cut, a.end = context.WithCancelCause(context.Background())
	return a
}

// Stopping is closed by Close: sockets end once their answers are sent.
func (a *Account) Stopping() <-chan struct{} { return a.stopping }

// Cut ends, with ErrCut, when sockets must end at once.
func (a *Account) Cut() context.Context { return a.cut }

// Enter counts a socket of a project until leave is called. It fails with fault.RateLimited if the
// project has too many, and with fault.Unavailable if the server has or is going down.
func (a *Account) Enter(project string) (leave func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.stopping:
		return nil, fault.New(fault.Unavailable, "the server is going down")
	default:
	}
	switch {
	case a.limit > 0 && a.open >= a.limit:
		return nil, fault.New(fault.Unavailable, "the server has %d open WebSockets, which is its limit (HEARDLOG_SOCKETS)", a.limit)
	case a.perProject > 0 && a.byProject[project] >= a.perProject:
		return nil, fault.New(fault.RateLimited, "the project has %d open WebSockets, which is its limit (HEARDLOG_PROJECT_SOCKETS)", a.perProject)
	}
	a.byProject[project]++
	a.open++
	return func() { a.leave(project) }, nil
}

func (a *Account) leave(project string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byProject[project]--; a.byProject[project] == 0 {
		delete(a.byProject, project)
	}
	a.open--
	select {
	case <-a.stopping:
		if a.open == 0 {
			close(a.empty)
		}
	default:
	}
}

// Close asks all sockets to end, and waits for them. Those that have not ended when ctx does are
// cut; what their clients were sent is stored. It is called once.
func (a *Account) Close(ctx context.Context) error {
	a.mu.Lock()
	close(a.stopping)
	if a.open == 0 {
		close(a.empty)
	}
	a.mu.Unlock()
	select {
	case <-a.empty:
		return nil
	case <-ctx.Done():
	}
	a.end(ErrCut)
	<-a.empty
	return context.Cause(ctx)
}
