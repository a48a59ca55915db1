package postgres

import "time"

// Another session may hold an agent's row for long, such as a server that was frozen inside a
// transaction. The writes of other agents must not wait for it. When a statement has waited too
// long for a lock, each of its writes gets a statement of its own, with less time for the lock. For
// a while, those of agents that are found held run like that, after the writes of the others.

const (
	// heldWait bounds the wait for the row of an agent that is held.
	heldWait = 200 * time.Millisecond
	// heldFor is how long an agent counts as held, unless its row is found free before.
	heldFor = 10 * time.Second
)

// isHeld reports whether an agent counts as held.
func (s *Store) isHeld(no int64) bool {
	s.holding.Lock()
	defer s.holding.Unlock()
	until, is := s.held[no]
	if is && time.Now().After(until) {
		delete(s.held, no)
		is = false
	}
	return is
}

// hold notes whether an agent is held.
func (s *Store) hold(no int64, is bool) {
	s.holding.Lock()
	defer s.holding.Unlock()
	if is {
		s.held[no] = time.Now().Add(heldFor)
	} else {
		delete(s.held, no)
	}
}
