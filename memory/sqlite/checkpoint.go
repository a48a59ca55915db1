package sqlite

import "database/sql/driver"

// Checkpoints move the write-ahead log into the database file. SQLite's own does it inside a commit, once the log has a
// thousand pages, and all callers of that commit wait. Here another connection copies most of the log while commits go on; only what came
// meanwhile is left for the committer, between two groups, which then starts the log from its beginning: so it stays
// bounded, and is overwritten in place, which is cheaper to sync than a growing file.
const (
	checkpointPages = 1000
	// With so many pages in the log the committer does it itself, however much that is: the helper does not keep up.
	checkpointHard = 16000
)

// checkpointNow runs between two groups, in the committer.
func (s *Store) checkpointNow() {
	switch {
	case s.walPages >= checkpointHard, s.walPages >= checkpointPages && s.copied.Load():
		s.copied.Store(false)
		left, err := checkpoint(s.writer)
		if err != nil {
			left = 0 // tried again when the log has grown by as much; what is in it is safe there
		}
		s.walPages = left
	case s.walPages >= checkpointPages:
		select {
		case s.copy <- struct{}{}:
		default:
		}
	}
}

// copyLoop is the helper.
func (s *Store) copyLoop() {
	defer close(s.copyEnded)
	for range s.copy {
		if s.copied.Load() {
			continue
		}
		_, _ = checkpoint(s.helper) // the committer's own tells of errors
		s.copied.Store(true)
	}
}

// checkpoint copies what can be copied without waiting for anybody and gives how many pages of the log are still needed.
func checkpoint(c *conn) (left int, err error) {
	err = c.each("PRAGMA wal_checkpoint(PASSIVE)", nil, func(row []driver.Value) error {
		left = int(integer(row[1]) - integer(row[2])) // both are -1 while another connection is at it
		return nil
	})
	return left, err
}
