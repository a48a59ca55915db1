package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/statements"
)

var _ memory.ColdStore = (*Store)(nil)

// EndedCalls implements memory.ColdStore.
func (s *Store) EndedCalls(ctx context.Context, beforeMS, afterMS, afterNo int64, limit int) (list []memory.EndedCall, err error) {
	err = s.db.Read(ctx, "find calls for the archive", func(ctx context.Context) (err error) {
		list, err = statements.EndedCalls(pg.NewStatements(ctx, s.db.Pool), beforeMS, afterMS, afterNo, limit)
		return err
	})
	return list, err
}

// NoteObject implements memory.ColdStore.
func (s *Store) NoteObject(ctx context.Context, o memory.ColdObject, nowMS int64) error {
	return s.db.Transact(ctx, "note an object", func(ctx context.Context, tx pgx.Tx) error {
		return statements.NoteObject(pg.NewStatements(ctx, tx), o, nowMS)
	})
}

// Freeze implements memory.ColdStore.
func (s *Store) Freeze(ctx context.Context, m memory.Move) error {
	return s.move(ctx, "archive a call", &m, func(ctx context.Context, tx pgx.Tx, _ encryption.Key) error {
		if err := s.checks(ctx, tx).Agent(m.No); err != nil {
			return err
		}
		return statements.Freeze(pg.NewStatements(ctx, tx), &m)
	})
}

// Thaw implements memory.ColdStore.
func (s *Store) Thaw(ctx context.Context, m memory.Move) error {
	return s.move(ctx, "bring a call back", &m, func(ctx context.Context, tx pgx.Tx, key encryption.Key) error {
		if err := statements.Thaw(pg.NewStatements(ctx, tx), key, &m); err != nil {
			return err
		}
		all, b := writes{}, &pgx.Batch{}
		for i := range m.Append {
			all.inserted.set(-1, m.No, key, &m.Append[i], m.Bodies[i])
		}
		all.queueNew(b, m.No)
		return tx.SendBatch(ctx, b).Close()
	})
}

// move compares the version of an agent, sets the next one and its settings, and calls rest.
func (s *Store) move(ctx context.Context, what string, m *memory.Move, rest func(context.Context, pgx.Tx, encryption.Key) error) error {
	return s.db.Transact(ctx, what, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := s.holds(ctx, tx, m.Project); err != nil {
			return err
		}
		done, err := tx.Exec(ctx, "UPDATE agent_head SET ver = ver + 1, rev = rev + 1 WHERE agent_no = $1 AND ver = $2", m.No, m.Ver)
		if err == nil && done.RowsAffected() != 1 {
			err = memory.ErrStale
		}
		if err != nil {
			return err
		}
		key, err := s.key(ctx, tx, statements.KeyOf(m.Project, m.User))
		if err == nil {
			_, err = tx.Exec(ctx, "UPDATE agent SET settings = $2 WHERE no = $1", m.No, key.Seal(m.Private, statements.AgentOwner(m.Project, m.ID)))
		}
		if err == nil {
			err = rest(ctx, tx, key)
		}
		return err
	})
}

// Unneeded implements memory.ColdStore.
func (s *Store) Unneeded(ctx context.Context, beforeMS int64, limit int) (list []memory.ColdObject, err error) {
	err = s.db.Transact(ctx, "find objects to delete", func(ctx context.Context, tx pgx.Tx) (err error) {
		list, err = statements.Unneeded(pg.NewStatements(ctx, tx), beforeMS, limit)
		return err
	})
	return list, err
}

// ForgetObject implements memory.ColdStore.
func (s *Store) ForgetObject(ctx context.Context, o memory.ColdObject) error {
	return s.db.Transact(ctx, "forget an object", func(ctx context.Context, tx pgx.Tx) error {
		return statements.ForgetObject(pg.NewStatements(ctx, tx), o)
	})
}
