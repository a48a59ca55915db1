package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/statements"
)

// eraseSpaces is how many spaces an erasure looks up at a time.
const eraseSpaces = 64

// EraseRecords implements record.Store. Of each space it deletes what was stored before it came to
// that space, so that it ends.
func (s *Store) EraseRecords(ctx context.Context, project, user, prefix string) (int, error) {
	n, err := statements.EraseRecords(func(after record.Space) (spaces []statements.SpaceRow, err error) {
		err = s.db.Read(ctx, "list spaces", func(ctx context.Context) (err error) {
			spaces, err = statements.Spaces(pg.NewStatements(ctx, s.db.Pool), project, user, prefix, after, 0, eraseSpaces)
			return err
		})
		return spaces, err
	}, func(spaces []statements.SpaceRow) (n int, left []statements.SpaceRow, err error) {
		err = s.db.Transact(ctx, "erase records", func(ctx context.Context, tx pgx.Tx) (err error) {
			h, err := s.holds(ctx, tx, project)
			if err == nil {
				err = h.Spaces(spaces)
			}
			if err == nil {
				n, left, err = eraseRecords(ctx, tx, spaces)
			}
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
func eraseRecords(ctx context.Context, tx pgx.Tx, spaces []statements.SpaceRow) (erased int, left []statements.SpaceRow, err error) {
	nos := pg.Column(spaces, func(space *statements.SpaceRow) int64 { return space.No })
	// All at once and in one order, so that erasures beside each other cannot wait for each other.
	if _, err := tx.Exec(ctx, "SELECT 1 FROM record_space WHERE no = ANY($1) ORDER BY no FOR UPDATE", nos); err != nil {
		return 0, nil, err
	}
	rows := sliceRows
	var touched []int64
	for ; len(spaces) > 0 && rows > 0; spaces = spaces[1:] {
		space := spaces[0]
		var n, live int
		err := tx.QueryRow(ctx, `WITH gone AS (DELETE FROM record WHERE space_no = $1 AND rev <= $2 AND id <= (SELECT max(id) FROM (SELECT id FROM record WHERE space_no = $1 AND rev <= $2 ORDER BY id LIMIT $3) r) RETURNING size, body IS NOT NULL AS live),
			sum AS (SELECT count(*) AS rows, count(*) FILTER (WHERE live) AS live, coalesce(sum(size), 0)::bigint AS bytes FROM gone),
			counted AS (UPDATE record_space s SET rev = s.rev + 1, whole = s.rev + 1, n = s.n - sum.live, bytes = s.bytes - sum.bytes FROM sum WHERE s.no = $1 RETURNING s.project),
			used AS (INSERT INTO project_use (project, bytes) SELECT counted.project, -sum.bytes FROM counted, sum WHERE sum.bytes <> 0)
			SELECT rows, live FROM sum`, space.No, space.Rev, rows).Scan(&n, &live)
		if err != nil {
			return 0, nil, err
		}
		touched, erased = append(touched, space.No), erased+live
		if rows -= n; rows == 0 && n > 0 {
			break // there may be more of this space
		}
	}
	return erased, spaces, dropSpaces(ctx, tx, touched)
}

// dropSpaces deletes those of locked spaces that have no rows. New spaces of their project begin
// with a higher revision.
func dropSpaces(ctx context.Context, tx pgx.Tx, nos []int64) error {
	_, err := tx.Exec(ctx, `WITH gone AS (DELETE FROM record_space s WHERE no = ANY($1) AND NOT EXISTS (SELECT 1 FROM record r WHERE r.space_no = s.no) RETURNING project, rev)
		INSERT INTO record_space AS f (project, name, user_id, rev, n, bytes, whole) SELECT project, '', '', max(rev) + 1, 0, 0, max(rev) + 1 FROM gone GROUP BY project ORDER BY project
		ON CONFLICT (project, name, user_id) DO UPDATE SET rev = greatest(f.rev, excluded.rev), whole = greatest(f.whole, excluded.whole)`, nos)
	return err
}

// SweepRecords implements record.Store. It leaves spaces that another transaction has locked.
func (s *Store) SweepRecords(ctx context.Context, beforeMS int64) error {
	for n := sliceRows; n == sliceRows; {
		err := s.db.Transact(ctx, "forget deletions", func(ctx context.Context, tx pgx.Tx) error {
			nos, err := pg.Collect(ctx, tx, pgx.RowTo[int64], `SELECT no FROM record_space WHERE no IN (SELECT space_no FROM record WHERE body IS NULL AND updated_ms < $1 LIMIT $2) ORDER BY no FOR UPDATE SKIP LOCKED`, beforeMS, sliceRows)
			if err != nil {
				return err
			}
			err = tx.QueryRow(ctx, `WITH due AS (SELECT space_no, id, updated_ms FROM record WHERE body IS NULL AND updated_ms < $1 AND space_no = ANY($2) LIMIT $3),
				gone AS (DELETE FROM record WHERE body IS NULL AND updated_ms = ANY(ARRAY(SELECT updated_ms FROM due)) AND (space_no, id) IN (SELECT space_no, id FROM due)
					RETURNING space_no, rev),
				noted AS (UPDATE record_space s SET whole = greatest(s.whole, g.rev) FROM (SELECT space_no, max(rev) AS rev FROM gone GROUP BY space_no) g WHERE s.no = g.space_no)
				SELECT count(*) FROM gone`, beforeMS, nos, sliceRows).Scan(&n)
			if err != nil {
				return err
			}
			return dropSpaces(ctx, tx, nos)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
