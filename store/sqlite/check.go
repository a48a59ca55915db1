package sqlite

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
)

// How many messages, and how many bytes of them, are checked in one read transaction. While it
// lasts, the write-ahead log cannot start again.
const (
	checkRows  = 500
	checkBytes = 1 << 20
)

// errChecked ends a read transaction of the check.
var errChecked = errors.New("enough for one transaction")

// quickCheck calls each with signs of damage: of the structure of the file, and of messages. The
// messages are the largest table. The loop over the checksums reads all of them anyway, in slices;
// what it does not read, their indexes, is left to Probe. It calls rest after each step.
func quickCheck(ctx context.Context, c *dbfile.Conn, rest dbfile.Rest, each func(what string)) error {
	if err := c.CheckStructure(ctx, "message", rest, each); err != nil {
		return err
	}
	for at, more := int64(0), true; more && ctx.Err() == nil; {
		more = false
		began, size := time.Now(), 0
		err := c.Each("SELECT id, agent_no, seq, rev, turn, client_id, body FROM message WHERE id > ? ORDER BY id LIMIT ?+0", []any{at, int64(checkRows)}, func(row dbfile.Row) error {
			at, more = row.Int(0), true
			m := memory.Message{Seq: row.Int(2), Rev: row.Int(3), TurnID: row.Int(4), ID: row.Text(5)}
			if _, err := checkSum(row.Int(1), &m, row.Raw(6)); err != nil {
				each(errors.Unwrap(err).Error())
			}
			if size += len(row.Raw(6)); size > checkBytes {
				return errChecked
			}
			return nil
		})
		if err != nil && !errors.Is(err, errChecked) {
			return err
		}
		rest(ctx, time.Since(began))
	}
	return ctx.Err()
}

// Ping writes what takes room in the file, as a turn does, reads it back and deletes it. It fails
// too if the file is known to be damaged, or was overwritten.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.db.Damage(); err != nil {
		return err
	}
	if err := s.db.CheckFile(); err != nil {
		return err
	}
	note := make([]byte, pingBytes)
	copy(note, time.Now().UTC().Format(time.RFC3339Nano))
	return s.write(ctx, "ping", func(t *tx) error {
		if _, err := t.Exec("INSERT INTO meta (key, value) VALUES ('ping', ?) ON CONFLICT DO UPDATE SET value = excluded.value", note); err != nil {
			return err
		}
		row, err := t.Conn.Only("SELECT value FROM meta WHERE key = 'ping'")
		if err == nil && !bytes.Equal(row.Blob(0), note) {
			err = errors.New("what was written is not there")
		}
		if err == nil {
			_, err = t.Exec("DELETE FROM meta WHERE key = 'ping'")
		}
		return err
	})
}

// pingBytes is how much Ping writes: two pages of the file, and a part of one.
const pingBytes = 9 << 10
