package handlers

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

const (
	// largeBody is the size in bytes from which on a JSON body makes a request large.
	largeBody = 64 << 10
	// largeWait limits how long a large request waits for its turn.
	largeWait = 10 * time.Second
)

// largeTurns lets a project have one large request in hand for every two CPUs, so that its large
// requests leave CPU to other projects. Further ones wait for their turn once their body is read.
type largeTurns struct {
	mu        sync.Mutex
	byProject map[string]*projectTurns
}

type projectTurns struct {
	places chan struct{} // holds a value for each request in hand
	users  int           // requests that hold or await a turn
}

// enter waits for the turn of a large request, which ends with the request or with leaveTurn.
func (l *largeTurns) enter(r *http.Request) error {
	info := infoOf(r)
	if info.endTurn != nil {
		return nil
	}
	l.mu.Lock()
	t := l.byProject[info.project]
	if t == nil {
		t = &projectTurns{places: make(chan struct{}, max(runtime.GOMAXPROCS(0)/2, 1))}
		l.byProject[info.project] = t
	}
	t.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(l.byProject, info.project)
		}
	}
	late := time.NewTimer(largeWait)
	defer late.Stop()
	select {
	case t.places <- struct{}{}:
	case <-r.Context().Done():
		leave()
		return fault.Wrap(fault.Canceled, context.Cause(r.Context()), "the call was given up")
	case <-late.C:
		leave()
		return fault.New(fault.Unavailable, "too many large requests of the project are waiting; try again")
	}
	info.endTurn = func() {
		<-t.places
		leave()
	}
	return nil
}

// leaveTurn ends the turn of a large request, if it has one.
func (i *requestInfo) leaveTurn() {
	if i.endTurn != nil {
		i.endTurn()
		i.endTurn = nil
	}
}
