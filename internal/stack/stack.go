// Package stack lends stacks: what needs a deep one for a moment runs on a lent one, so that the stack of a goroutine that waits long
// stays small. Go doubles a stack that is too short and halves it only where less than a quarter is in use, so that a thousand
// streams would each keep, for minutes, the room that their first and last millisecond took.
package stack

import (
	"iter"
	"sync"
)

// maxIdle is how many stacks wait for their next use. The collector takes from those what they do not use.
const maxIdle = 64

// Pool lends stacks. Its zero value is ready, and it is safe for concurrent use.
type Pool struct {
	mu   sync.Mutex
	idle []*lent // the one used last at the end: it has grown already
}

// lent is a stack: a coroutine, since changing over to one asks nothing of the scheduler and wakes no other thread.
type lent struct {
	next func() (struct{}, bool)
	stop func()
	do   func()
}

func newLent() *lent {
	s := &lent{}
	s.next, s.stop = iter.Pull(func(yield func(struct{}) bool) {
		for {
			s.do()
			s.do = nil // what it holds is not needed any more
			if !yield(struct{}{}) {
				return
			}
		}
	})
	return s
}

// Run runs do on a lent stack and returns when do has. A panic of do goes on in the caller, and so does runtime.Goexit. do may call Run.
func (p *Pool) Run(do func()) {
	s := p.take()
	s.do = do
	s.next() // a stack whose do did not return is over with it, and not given back
	p.give(s)
}

func (p *Pool) take() *lent {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return newLent()
	}
	s := p.idle[n-1]
	p.idle[n-1] = nil
	p.idle = p.idle[:n-1]
	return s
}

func (p *Pool) give(s *lent) {
	p.mu.Lock()
	if len(p.idle) < maxIdle {
		p.idle = append(p.idle, s)
		s = nil
	}
	p.mu.Unlock()
	if s != nil {
		s.stop()
	}
}

// Free ends the stacks that are not in use, and waits until they are gone. The pool goes on to work.
func (p *Pool) Free() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, s := range idle {
		s.stop()
	}
}
