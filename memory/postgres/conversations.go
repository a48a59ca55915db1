package postgres

import (
	"context"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

var _ memory.ConversationStore = (*Store)(nil)

// SaveConversation stores a conversation. The project's count is the lock under which new ones are made.
func (s *Store) SaveConversation(ctx context.Context, project, id string, body []byte, limit int) error {
	p, name := stored(project), stored(id)
	sealed := s.sealer.Seal(body, conversationOwner(project, id))
	return s.transact(ctx, "save conversation", func(ctx context.Context, tx pgx.Tx) error {
		done, err := tx.Exec(ctx, "UPDATE conversation SET body = $3 WHERE project = $1 AND id = $2", p, name, sealed)
		if err != nil || done.RowsAffected() == 1 {
			return err
		}
		if limit <= 0 {
			limit = math.MaxInt
		}
		var n int64
		err = tx.QueryRow(ctx, "INSERT INTO conversation_count AS c (project, n) VALUES ($1, 1) ON CONFLICT (project) DO UPDATE SET n = c.n + 1 RETURNING n", p).Scan(&n)
		if err != nil {
			return err
		}
		done, err = tx.Exec(ctx, "INSERT INTO conversation (project, id, body) VALUES ($1, $2, $3) ON CONFLICT (project, id) DO NOTHING", p, name, sealed)
		if err != nil {
			return err
		}
		if done.RowsAffected() == 0 { // somebody else made it meanwhile
			if _, err := tx.Exec(ctx, "UPDATE conversation SET body = $3 WHERE project = $1 AND id = $2", p, name, sealed); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "UPDATE conversation_count SET n = n - 1 WHERE project = $1", p)
			return err
		}
		if n > int64(limit) {
			return memory.TooManyConversations(limit)
		}
		return nil
	})
}

// LoadConversation gives a conversation.
func (s *Store) LoadConversation(ctx context.Context, project, id string) (body []byte, err error) {
	err = s.read(ctx, "read conversation", func(ctx context.Context) error {
		var sealed []byte
		err := s.pool.QueryRow(ctx, "SELECT body FROM conversation WHERE project = $1 AND id = $2", stored(project), stored(id)).Scan(&sealed)
		if noRows(err) {
			return fault.New(fault.NotFound, "there is no conversation %q", id)
		}
		if err != nil {
			return err
		}
		body, err = s.sealer.Open(sealed, conversationOwner(project, id))
		return err
	})
	return body, err
}

// DeleteConversation takes a conversation away.
func (s *Store) DeleteConversation(ctx context.Context, project, id string) error {
	_, err := s.deleteConversations(ctx, "WHERE project = $1 AND id = $2", stored(project), stored(id))
	return err
}

// deleteConversations deletes those of a project ($1).
func (s *Store) deleteConversations(ctx context.Context, where string, args ...any) (n int64, err error) {
	err = s.transact(ctx, "delete conversations", func(ctx context.Context, tx pgx.Tx) error {
		// The count first: that is the order in which they are made, too.
		if _, err := tx.Exec(ctx, "SELECT 1 FROM conversation_count WHERE project = $1 FOR UPDATE", args[0]); err != nil {
			return err
		}
		done, err := tx.Exec(ctx, "DELETE FROM conversation "+where, args...)
		if err != nil {
			return err
		}
		n = done.RowsAffected()
		_, err = tx.Exec(ctx, "UPDATE conversation_count SET n = n - $2 WHERE project = $1", args[0], n)
		return err
	})
	return n, err
}

// ListConversations lists a project's ids.
func (s *Store) ListConversations(ctx context.Context, project, after string, limit int) (ids []string, total int, err error) {
	err = s.read(ctx, "list conversations", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, "SELECT id FROM conversation WHERE project = $1 AND id > $2 ORDER BY id LIMIT $3", stored(project), stored(after), max(limit, 1))
		if err != nil {
			return err
		}
		ids, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (id string, err error) {
			err = row.Scan(&id)
			return shown(id), err
		})
		if err != nil {
			return err
		}
		err = s.pool.QueryRow(ctx, "SELECT n FROM conversation_count WHERE project = $1", stored(project)).Scan(&total)
		if noRows(err) {
			total, err = 0, nil
		}
		return err
	})
	return ids, total, err
}

// clearRows is how many conversations a transaction takes away.
const clearRows = 64

// ClearConversations takes all of a project's conversations away, in slices.
func (s *Store) ClearConversations(ctx context.Context, project string) (int, error) {
	cleared := 0
	for {
		n, err := s.deleteConversations(ctx, "WHERE project = $1 AND id IN (SELECT id FROM conversation WHERE project = $1 LIMIT $2)", stored(project), clearRows)
		cleared += int(n)
		if err != nil || n < clearRows {
			return cleared, err
		}
	}
}
