package postgres

import (
	"context"
	"hash/fnv"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/hold"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/statements"
)

// A transaction that erases something of a project takes the project's lock of holds first, shared
// with others, and then looks for holds. One that sets a hold takes the lock alone. So a hold that
// was answered is seen by every erasure that has not been committed.

// holdsShared and holdsAlone take the lock whose number is their argument. Schemas of one database
// have locks of their own.
const (
	holdsShared = "SELECT pg_advisory_xact_lock_shared($1 # hashtext(current_schema())::bigint)"
	holdsAlone  = "SELECT pg_advisory_xact_lock($1 # hashtext(current_schema())::bigint)"
)

// holdsLock returns the number of the lock of a project's holds.
func holdsLock(project string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("holds\x00" + memories.ProjectOf(project)))
	return int64(h.Sum64())
}

// holds takes the shared lock of a project's holds and returns what checks them. It is the first
// statement of a transaction that erases.
func (s *Store) holds(ctx context.Context, tx pgx.Tx, project string) (statements.Holds, error) {
	_, err := tx.Exec(ctx, holdsShared, holdsLock(project))
	return s.checks(ctx, tx), err
}

// lockHolds takes the shared locks of projects, in their stored form, in their order.
func (s *Store) lockHolds(ctx context.Context, tx pgx.Tx, projects []string) error {
	for _, p := range projects {
		if _, err := s.holds(ctx, tx, pg.Shown(p)); err != nil {
			return err
		}
	}
	return nil
}

// checks returns what checks holds in a transaction that has the locks.
func (s *Store) checks(ctx context.Context, tx pgx.Tx) statements.Holds {
	return statements.Holds{DB: pg.NewStatements(ctx, tx), Sealer: s.sealer}
}

// checkWrites takes the locks of the projects of writes and checks them.
func (s *Store) checkWrites(ctx context.Context, tx pgx.Tx, list []*memory.Write) error {
	projects := pg.Column(list, func(w **memory.Write) string { return pg.Stored((*w).Project) })
	slices.Sort(projects)
	if err := s.lockHolds(ctx, tx, slices.Compact(projects)); err != nil {
		return err
	}
	for _, w := range list {
		if err := s.checks(ctx, tx).Write(w); err != nil {
			return err
		}
	}
	return nil
}

// holdRecords takes the lock that changes of a space of records need, and checks them.
func (s *Store) holdRecords(ctx context.Context, tx pgx.Tx, at record.Space, changes []record.Change) error {
	if at.Name == hold.Space {
		_, err := tx.Exec(ctx, holdsAlone, holdsLock(at.Project))
		return err
	}
	for i := range changes {
		if changes[i].Body == nil {
			h, err := s.holds(ctx, tx, at.Project)
			if err == nil {
				err = h.Changes(at, changes)
			}
			return err
		}
	}
	return nil
}
