package sqlite

import "database/sql/driver"

const (
	pageSize = 4096
	// checkpointPages is how many pages the write-ahead log has when it is moved into the database
	// file.
	checkpointPages = 1000
)

// SQLite makes its own checkpoints inside a commit, and all callers of that commit wait. Here
// another connection copies the log while commits go on, and then takes the writer's turn for what
// came meanwhile. The next commit starts the log from its beginning, so it stays bounded and is
// overwritten in place, which is cheaper to sync than a growing file.

// logGrew notes how many pages a commit has written; its caller has the turn.
func (s *Store) logGrew(pages int) {
	if s.logPages += pages; s.logPages < checkpointPages {
		return
	}
	select {
	case s.checkpointDue <- struct{}{}:
	default: // asked for already
	}
}

// checkpointLoop makes checkpoints until checkpointDue is closed.
func (s *Store) checkpointLoop() {
	defer close(s.checkpointsEnded)
	for range s.checkpointDue {
		_, _ = checkpoint(s.helper) // errors show in the second one
		s.writer.turn <- struct{}{}
		left, err := checkpoint(s.helper)
		if err != nil {
			left = 0 // tried again when the log has grown by as much; what is in it is safe there
		}
		s.logPages = left
		<-s.writer.turn
	}
}

// checkpoint copies what can be copied without waiting, and returns how many pages of
// the log are still needed.
func checkpoint(c *conn) (left int, err error) {
	err = c.each("PRAGMA wal_checkpoint(PASSIVE)", nil, func(row []driver.Value) error {
		// Both are -1 while another connection makes one.
		left = int(integer(row[1]) - integer(row[2]))
		return nil
	})
	return left, err
}
