package postgres

import (
	"context"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// Another session may hold an agent's row for long, such as a server that was frozen inside a
// transaction. The writes of other agents must not wait for it. When a statement has waited too
// long for a lock, the store finds the agent whose row is held. For a while, that agent's writes
// run in statements of their own, after the writes of the others.

const (
	// maxLockWait bounds the wait for a lock, heldWait that of the writes of an agent that is held.
	maxLockWait = 2 * time.Second
	heldWait    = 200 * time.Millisecond
	// heldFor is how long an agent counts as held, unless its row is found free before.
	heldFor = 10 * time.Second
)

// lockWait is maxLockWait for connections, or less where calls have less time.
func lockWait(timeout time.Duration) time.Duration { return min(maxLockWait, timeout/4) }

// apart takes out of a group the writes of held agents, as one list for each agent.
func (a *applying) apart(list []int) (together []int, held [][]int) {
	s := a.s
	s.holding.Lock()
	defer s.holding.Unlock()
	if len(s.held) == 0 {
		return list, nil
	}
	now := time.Now()
	at := map[int64]int{}
	for _, i := range list {
		no := a.batch[i].No
		until, is := s.held[no]
		if is && now.After(until) {
			delete(s.held, no)
			is = false
		}
		if !is {
			together = append(together, i)
			continue
		}
		n, ok := at[no]
		if !ok {
			n = len(held)
			at[no], held = n, append(held, nil)
		}
		held[n] = append(held[n], i)
	}
	return together, held
}

// findHeld notes which of the agents are held, and reports whether any is.
func (s *Store) findHeld(ctx context.Context, nos []int64) bool {
	free := map[int64]bool{}
	rows, err := s.pool.Query(ctx, "SELECT no FROM (SELECT agent_no AS no FROM agent_head WHERE agent_no = ANY($1) FOR UPDATE SKIP LOCKED) f", nos)
	if err != nil {
		return false
	}
	defer rows.Close()
	for rows.Next() {
		var no int64
		if rows.Scan(&no) != nil {
			return false
		}
		free[no] = true
	}
	if rows.Err() != nil {
		return false
	}
	s.holding.Lock()
	defer s.holding.Unlock()
	found := false
	for _, no := range nos {
		if !free[no] { // or gone, which its own statement finds out
			s.held[no] = time.Now().Add(heldFor)
			found = true
		}
	}
	return found
}

// held stores the writes of one held agent.
func (a *applying) held(list []int) {
	err := a.store(list, heldWait)
	if lockedOut(err) {
		a.fail(list, fault.Wrap(fault.Unavailable, err, "another server holds the agent; nothing was written; try again"))
		return
	}
	a.s.holding.Lock()
	delete(a.s.held, a.batch[list[0]].No)
	a.s.holding.Unlock()
	if err != nil {
		a.together(list)
	}
}
