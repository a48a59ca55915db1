package sqlite

import (
	"context"

	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
)

// eraseSpaces is how many spaces an erasure looks up at a time.
const eraseSpaces = 128

// EraseRecords implements record.Store. Of each space it deletes what was stored before it came to
// that space, so that it ends.
func (s *Store) EraseRecords(ctx context.Context, project, user, prefix string) (int, error) {
	n, err := statements.EraseRecords(func(after record.Space) (spaces []statements.SpaceRow, err error) {
		err = s.db.Read(ctx, "list spaces", func(c *dbfile.Conn) (err error) {
			spaces, err = statements.Spaces(reading{c}, project, user, prefix, after, 0, eraseSpaces)
			return err
		})
		return spaces, err
	}, func(spaces []statements.SpaceRow) (n int, left []statements.SpaceRow, err error) {
		err = s.write(ctx, "erase records", func(t *tx) (err error) {
			n, left, err = t.eraseRecords(spaces)
			return err
		})
		return n, left, err
	})
	if err == nil && prefix == "" {
		err = s.destroyKeys(ctx, project, user)
	}
	return n, err
}

// eraseRecords deletes a slice of the records of spaces. It returns how many were not deleted
// already, and the spaces that are left.
func (t *tx) eraseRecords(spaces []statements.SpaceRow) (erased int, left []statements.SpaceRow, err error) {
	if err := t.holds().Spaces(spaces); err != nil {
		return 0, nil, err
	}
	rows, size := sweepRows, int64(clearBytes)
	for len(spaces) > 0 && rows > 0 && size > 0 {
		d, err := t.dropRecords(spaces[0], rows, size)
		if err != nil {
			return 0, nil, err
		}
		erased, rows, size = erased+int(d.live), rows-max(d.rows, 1), size-d.bytes
		if d.all {
			spaces = spaces[1:]
		}
	}
	return erased, spaces, nil
}

// dropped is what dropRecords has deleted.
type dropped struct {
	rows        int
	live, bytes int64
	all         bool // nothing is left of the space as it was
}

// dropRecords deletes records of a space up to the revision that it was read with. A space that has
// nothing left is deleted too.
func (t *tx) dropRecords(was statements.SpaceRow, rows int, size int64) (d dropped, err error) {
	space, err := readSpace(t.Conn, was.At)
	if err != nil {
		return d, err
	}
	if space.no != was.No { // it was deleted meanwhile
		return dropped{all: true}, nil
	}
	var numbers []int64
	d.all = true
	err = t.Conn.Each("SELECT no, size, body IS NULL FROM record INDEXED BY record_rev WHERE space_no = ? AND rev <= ? LIMIT ?+0", []any{space.no, was.Rev, int64(rows) + 1}, func(row dbfile.Row) error {
		if len(numbers) == rows || len(numbers) > 0 && d.bytes+row.Int(1) > size {
			d.all = false
		}
		if d.all {
			numbers = append(numbers, row.Int(0))
			d.bytes += row.Int(1)
			d.live += 1 - row.Int(2)
		}
		return nil
	})
	if err != nil {
		return d, err
	}
	for _, no := range numbers {
		if _, err := t.Exec("DELETE FROM record WHERE no = ?", no); err != nil {
			return d, err
		}
	}
	d.rows = len(numbers)
	space.state.Rev++ // readers notice by CompactedRev
	_, err = t.Exec("UPDATE record_space SET rev = ?, n = n - ?, bytes = bytes - ?, whole = ? WHERE no = ?", space.state.Rev, d.live, d.bytes, space.state.Rev, space.no)
	if err != nil || !d.all {
		return d, err
	}
	return d, t.dropSpace(space.no)
}

// dropSpace deletes a space that has no rows. New spaces of the project begin with a higher
// revision.
func (t *tx) dropSpace(no int64) error {
	_, err := t.Exec(`INSERT INTO record_space (project, name, user_id, rev, n, bytes, whole)
		SELECT project, '', '', rev + 1, 0, 0, 0 FROM record_space s WHERE no = ? AND NOT EXISTS (SELECT 1 FROM record WHERE space_no = s.no)
		ON CONFLICT (project, name, user_id) DO UPDATE SET rev = max(rev, excluded.rev)`, no)
	if err == nil {
		_, err = t.Exec("DELETE FROM record_space WHERE no = ? AND NOT EXISTS (SELECT 1 FROM record WHERE space_no = record_space.no)", no)
	}
	return err
}

// SweepRecords implements record.Store.
func (s *Store) SweepRecords(ctx context.Context, beforeMS int64) error {
	_, err := s.writeSlices(ctx, "forget deletions", func(t *tx) (int, bool, error) {
		n, err := t.sweepRecords(beforeMS)
		return n, n > 0, err
	})
	return err
}

// sweepRecords forgets a slice of the deletions from before a time, and returns how many.
func (t *tx) sweepRecords(beforeMS int64) (int, error) {
	var numbers []int64
	whole := map[int64]int64{} // by space
	err := t.Conn.Each("SELECT no, space_no, rev FROM record INDEXED BY record_deleted WHERE body IS NULL AND updated_ms < ? LIMIT ?+0", []any{beforeMS, int64(sweepRows)}, func(row dbfile.Row) error {
		numbers = append(numbers, row.Int(0))
		whole[row.Int(1)] = max(whole[row.Int(1)], row.Int(2))
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, no := range numbers {
		if _, err := t.Exec("DELETE FROM record WHERE no = ?", no); err != nil {
			return 0, err
		}
	}
	for no, rev := range whole {
		if _, err := t.Exec("UPDATE record_space SET whole = max(whole, ?) WHERE no = ?", rev, no); err != nil {
			return 0, err
		}
		if err := t.dropSpace(no); err != nil {
			return 0, err
		}
	}
	return len(numbers), nil
}
