package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

var _ memory.ConversationStore = (*Store)(nil)

// conversationOwner names what a conversation's sealed body belongs to.
// SaveConversation stores a conversation.
func (s *Store) SaveConversation(ctx context.Context, project, id string, body []byte, limit int) error {
	sealed := s.sealer.Seal(body, conversationOwner(project, id)) // here, and not while everybody waits for the committer
	return s.write(ctx, func(t *tx) error {
		no, err := t.conversation(project, id)
		if err != nil {
			return err
		}
		if no != 0 {
			_, _, err := t.exec("replace conversation", "UPDATE conversation SET size = ?, body = ? WHERE no = ?", int64(len(sealed)), sealed, no)
			return err
		}
		have, err := t.w.number("SELECT n FROM conversation_count WHERE project = ?", project)
		if err != nil {
			return classify(err, "count conversations")
		}
		if limit > 0 && have >= int64(limit) {
			return memory.TooManyConversations(limit)
		}
		if _, _, err := t.exec("insert conversation", "INSERT INTO conversation (project, id, size, body) VALUES (?, ?, ?, ?)", project, id, int64(len(sealed)), sealed); err != nil {
			return err
		}
		return t.countConversations(project, +1)
	})
}

// conversation gives a conversation's row, 0 if there is none.
func (t *tx) conversation(project, id string) (int64, error) {
	no, err := t.w.number("SELECT no FROM conversation WHERE project = ? AND id = ?", project, id)
	return no, classify(err, "look for the conversation")
}

// countConversations moves the number of a project's conversations.
func (t *tx) countConversations(project string, by int64) error {
	_, _, err := t.exec("count conversations", "INSERT INTO conversation_count (project, n) VALUES (?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n", project, by)
	return err
}

// LoadConversation gives a conversation.
func (s *Store) LoadConversation(ctx context.Context, project, id string) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	var out []byte
	err := s.readers.with(ctx, func(c *conn) error {
		row, err := c.first("SELECT body FROM conversation WHERE project = ? AND id = ?", project, id)
		if err != nil {
			return err
		}
		if row == nil {
			return fault.New(fault.NotFound, "there is no conversation %q", id)
		}
		plain, err := s.sealer.Open(blob(row[0]), conversationOwner(project, id))
		out = bytes.Clone(plain)
		return err
	})
	return out, classify(err, "read a conversation")
}

// DeleteConversation takes a conversation away.
func (s *Store) DeleteConversation(ctx context.Context, project, id string) error {
	return s.write(ctx, func(t *tx) error {
		no, err := t.conversation(project, id)
		if err != nil || no == 0 {
			return err
		}
		if _, _, err := t.exec("delete conversation", "DELETE FROM conversation WHERE no = ?", no); err != nil {
			return err
		}
		return t.countConversations(project, -1)
	})
}

// ListConversations lists a project's ids.
func (s *Store) ListConversations(ctx context.Context, project, after string, limit int) ([]string, int, error) {
	if ctx.Err() != nil {
		return nil, 0, ended(ctx)
	}
	var ids []string
	total := 0
	err := s.readers.do(ctx, func(c *conn) error {
		n, err := c.number("SELECT n FROM conversation_count WHERE project = ?", project)
		if err != nil {
			return err
		}
		total = int(n)
		return c.each("SELECT id FROM conversation WHERE project = ? AND id > ? ORDER BY id LIMIT ?+0", []driver.Value{project, after, int64(max(limit, 1))},
			func(row []driver.Value) error {
				ids = append(ids, text(row[0]))
				return nil
			})
	})
	return ids, total, classify(err, "list conversations")
}

// clearBytes is how much a slice of a clear takes away: to free a page costs little less than to write one.
const clearBytes = 2 << 20

// ClearConversations takes all of a project's conversations away, in slices between other calls.
func (s *Store) ClearConversations(ctx context.Context, project string) (int, error) {
	removed, last := 0, int64(0) // those that are saved while it runs have higher numbers: it ends, however many come
	err := s.readers.with(ctx, func(c *conn) (err error) {
		last, err = c.number("SELECT coalesce(max(no), 0) FROM conversation WHERE project = ?", project)
		return err
	})
	if err != nil {
		return 0, classify(err, "look for conversations")
	}
	for more := true; more; {
		n := 0
		err := s.write(ctx, func(t *tx) error {
			n, more = 0, false
			var rows []int64
			size := int64(0)
			err := t.w.each("SELECT no, size FROM conversation WHERE project = ? AND no <= ? LIMIT ?+0", []driver.Value{project, last, int64(sweepRows)}, func(row []driver.Value) error {
				if size += integer(row[1]); len(rows) == 0 || size <= clearBytes {
					rows = append(rows, integer(row[0]))
				}
				return nil
			})
			if err != nil {
				return classify(err, "look for conversations")
			}
			for _, no := range rows {
				if _, _, err := t.exec("delete conversation", "DELETE FROM conversation WHERE no = ?", no); err != nil {
					return err
				}
			}
			n, more = len(rows), size > clearBytes || len(rows) == sweepRows
			if n == 0 {
				return nil
			}
			return t.countConversations(project, -int64(n))
		})
		if err != nil {
			return removed, err
		}
		removed += n
	}
	return removed, nil
}
