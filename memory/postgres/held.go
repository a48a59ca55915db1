package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// A row that somebody holds, such as a replica that was frozen inside its transaction, must not keep others waiting who only share a group with it: where a group has
// waited for a lock for too long, it is looked whose row that is, and that agent's calls get transactions of their own for a while, after the group.

const (
	// maxLockWait bounds the wait for a lock, of the whole group; heldWait that of a held agent's calls.
	maxLockWait = 2 * time.Second
	heldWait    = 200 * time.Millisecond
	// heldFor is how long an agent counts as held that is not found free before.
	heldFor = 10 * time.Second
)

// lockWait is maxLockWait for connections, or less where calls have less time.
func lockWait(timeout time.Duration) time.Duration { return min(maxLockWait, timeout/4) }

// holds gives the held agents of a group's queue, and until when they count; only its committer looks at them.
func (s *Store) holds(batch []*item) map[int64]time.Time {
	return s.held[uint64(batch[0].no)%uint64(len(s.shards))]
}

// apart takes the calls of held agents out of a group.
func (s *Store) apart(batch []*item) (together []*item, apart [][]*item) {
	if len(batch) == 0 {
		return batch, nil
	}
	holds := s.holds(batch)
	if len(holds) == 0 {
		return batch, nil
	}
	now := time.Now()
	at := map[int64]int{}
	for _, it := range batch {
		until, held := holds[it.no]
		if held && now.After(until) {
			delete(holds, it.no)
			held = false
		}
		if !held {
			together = append(together, it)
			continue
		}
		i, ok := at[it.no]
		if !ok {
			i = len(apart)
			at[it.no], apart = i, append(apart, nil)
		}
		apart[i] = append(apart[i], it)
	}
	return together, apart
}

// hold looks whose rows are held, and tells whether any are.
func (s *Store) hold(batch []*item) bool {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout/4)
	defer cancel()
	var nos []int64
	for _, it := range batch {
		nos = append(nos, it.no)
	}
	slices.Sort(nos)
	nos = slices.Compact(nos)
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
	holds := s.holds(batch)
	found := false
	for _, no := range nos {
		if !free[no] { // or gone, which is told when it is looked for
			holds[no] = time.Now().Add(heldFor)
			found = true
		}
	}
	return found
}

// serveHeld runs the calls of one held agent.
func (s *Store) serveHeld(batch []*item) {
	if batch = s.inTime(batch); len(batch) == 0 {
		return
	}
	err := s.shared(batch, heldWait)
	if lockedOut(err) {
		for _, it := range batch {
			it.answer(fault.Wrap(fault.Unavailable, err, "another server holds the agent; nothing was written; try again"))
		}
		return
	}
	delete(s.holds(batch), batch[0].no)
	if err == nil {
		return
	}
	for _, it := range batch {
		if len(batch) == 1 || !retriable(err) {
			it.answer(err)
		} else if err := s.shared([]*item{it}, 0); err != nil {
			it.answer(err)
		}
	}
}
