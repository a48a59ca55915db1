package sqlite

import (
	"context"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
)

var _ memory.ColdStore = (*Store)(nil)

// EndedCalls implements memory.ColdStore.
func (s *Store) EndedCalls(ctx context.Context, beforeMS, afterMS, afterNo int64, limit int) (list []memory.EndedCall, err error) {
	err = s.db.Read(ctx, "find calls for the archive", func(c *dbfile.Conn) (err error) {
		list, err = statements.EndedCalls(reading{c}, beforeMS, afterMS, afterNo, limit)
		return err
	})
	return list, err
}

// NoteObject implements memory.ColdStore.
func (s *Store) NoteObject(ctx context.Context, o memory.ColdObject, nowMS int64) error {
	return s.write(ctx, "note an object", func(t *tx) error { return statements.NoteObject(t.writing(), o, nowMS) })
}

// Freeze implements memory.ColdStore.
func (s *Store) Freeze(ctx context.Context, m memory.Move) error {
	return s.move(ctx, "archive a call", &m, func(t *tx, _ encryption.Key) error {
		if err := t.holds().Agent(m.No); err != nil {
			return err
		}
		return statements.Freeze(t.writing(), &m)
	})
}

// Thaw implements memory.ColdStore.
func (s *Store) Thaw(ctx context.Context, m memory.Move) error {
	return s.move(ctx, "bring a call back", &m, func(t *tx, key encryption.Key) error {
		if err := statements.Thaw(t.writing(), key, &m); err != nil {
			return err
		}
		for i := range m.Append {
			if err := t.insertMessage(m.No, key, &m.Append[i], codec.Pack(m.Bodies[i])); err != nil {
				return err
			}
		}
		return nil
	})
}

// move compares the version of an agent, sets the next one and its settings, and calls rest.
func (s *Store) move(ctx context.Context, what string, m *memory.Move, rest func(*tx, encryption.Key) error) error {
	defer s.changed.note(m.No)
	return s.write(ctx, what, func(t *tx) error {
		key, err := t.key(statements.KeyOf(m.Project, m.User))
		if err != nil {
			return err
		}
		n, err := t.Exec("UPDATE agent SET head_rev = head_rev + 1 WHERE no = ? AND head_rev = ?", m.No, m.Rev)
		if err == nil && n != 1 {
			err = memory.ErrStale
		}
		if err == nil {
			_, err = t.Exec("UPDATE agent_settings SET body = ? WHERE agent_no = ?", key.Seal(m.Private, statements.AgentOwner(m.Project, m.ID)), m.No)
		}
		if err == nil {
			err = rest(t, key)
		}
		return err
	})
}

// Unneeded implements memory.ColdStore.
func (s *Store) Unneeded(ctx context.Context, beforeMS int64, limit int) (list []memory.ColdObject, err error) {
	err = s.write(ctx, "find objects to delete", func(t *tx) (err error) {
		list, err = statements.Unneeded(t.writing(), beforeMS, limit)
		return err
	})
	return list, err
}

// ForgetObject implements memory.ColdStore.
func (s *Store) ForgetObject(ctx context.Context, o memory.ColdObject) error {
	return s.write(ctx, "forget an object", func(t *tx) error { return statements.ForgetObject(t.writing(), o) })
}
