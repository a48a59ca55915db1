package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
)

// oldRows is how many rows a transaction of SealOld reads.
const oldRows = 256

// oldTable describes how the values of a table are read and written back.
type oldTable struct {
	kind string // of the owners, see encryption.Owner
	// get returns the next rows after a number: it, project and caller, the value, the owner's
	// names.
	get string
	set string // writes the value ?1 to the row with the number ?2
}

// caller selects the caller of an agent, by the tag by which the agent is found.
const caller = "coalesce((SELECT g.value FROM agent_tag g WHERE g.agent_no = %s AND g.name = ''), '')"

var oldTables = []oldTable{
	{
		"message", "SELECT m.id, a.project, " + fmt.Sprintf(caller, "m.agent_no") + ", m.body, m.agent_no, m.seq, m.rev, m.turn, m.client_id FROM message m JOIN agent a ON a.no = m.agent_no WHERE m.id > ? ORDER BY m.id LIMIT ?+0",
		"UPDATE message SET body = ?1 WHERE id = ?2",
	},
	{
		"event", "SELECT no, project, " + fmt.Sprintf(caller, "e.agent_no") + ", body, id FROM event e WHERE no > ? ORDER BY no LIMIT ?+0",
		"UPDATE event SET size = coalesce(size, length(body)), body = ?1 WHERE no = ?2",
	},
	{
		"agent", "SELECT a.no, a.project, " + fmt.Sprintf(caller, "a.no") + ", s.body, a.project, a.id FROM agent_settings s JOIN agent a ON a.no = s.agent_no WHERE s.agent_no > ? ORDER BY s.agent_no LIMIT ?+0",
		"UPDATE agent_settings SET body = ?1 WHERE agent_no = ?2",
	},
	{
		"endpoint", "SELECT no, project, '', secrets, id FROM endpoint WHERE no > ? AND id IS NOT NULL ORDER BY no LIMIT ?+0",
		"UPDATE endpoint SET secrets = ?1 WHERE no = ?2",
	},
	{
		"kv", `SELECT k.no, coalesce(a.project, k.project), '', k.body, coalesce(a.project, k.project), coalesce(a.id, ''), k.key FROM kv k LEFT JOIN agent a ON a.no = k.agent_no
			WHERE k.no > ? AND (k.agent_no = 0 OR a.no IS NOT NULL) ORDER BY k.no LIMIT ?+0`,
		"UPDATE kv SET body = ?1 WHERE no = ?2",
	},
	{
		"record", "SELECT r.no, s.project, s.user_id, r.body, s.project, s.name, s.user_id, r.id FROM record r JOIN record_space s ON s.no = r.space_no WHERE r.no > ? AND r.body IS NOT NULL ORDER BY r.no LIMIT ?+0",
		"UPDATE record SET body = ?1 WHERE no = ?2",
	},
}

// SealOld seals with data keys what a file holds that is not sealed with one, a few rows in each
// transaction, and returns how many values it has sealed. If it is interrupted, the next call goes
// on. It fails if another process has the file.
func SealOld(ctx context.Context, o Options) (n int, err error) {
	s, err := openStore(o.withDefaults())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.keys.close(), s.db.Release()) }()
	if !s.sealer.HasKeys() {
		return 0, fault.New(fault.Invalid, "HEARDLOG_DATA_KEY is not set")
	}
	if err := s.db.Writer().Script(boundLog); err != nil {
		return 0, dbfile.Classify(err, "open "+o.Path)
	}
	for _, table := range oldTables {
		for after, more := int64(0), true; more; {
			if ctx.Err() != nil {
				return n, fault.Ended(ctx)
			}
			t := &tx{s.db.OpenTx(), s}
			sealed := 0
			err := t.Conn.Transaction(func() (err error) {
				after, sealed, more, err = t.sealOld(table, after)
				return err
			})
			if err != nil {
				return n, dbfile.Classify(err, "encrypt")
			}
			n += sealed
		}
	}
	t := &tx{s.db.OpenTx(), s}
	err = t.Conn.Transaction(func() error {
		if _, err := t.Exec("INSERT INTO record_word (record_word) VALUES ('delete-all')"); err != nil {
			return err
		}
		sealed, err := t.sealServerKeys()
		n += sealed
		return err
	})
	return n, dbfile.Classify(err, "encrypt")
}

// sealOld seals the next rows of a table after a number. It returns the number of the last one, how
// many it has sealed, and whether there may be more.
func (t *tx) sealOld(table oldTable, after int64) (last int64, n int, more bool, err error) {
	type old struct {
		no     int64
		of     encryption.Of
		stored []byte
		row    dbfile.Row
	}
	var list []old
	rows := 0
	err = t.Conn.Each(table.get, []any{after, int64(oldRows)}, func(row dbfile.Row) error {
		rows, last = rows+1, row.Int(0)
		if stored := row.Raw(3); len(stored) > 0 && !encryption.IsData(stored) {
			list = append(list, old{last, statements.KeyOf(row.Text(1), row.Text(2)), append([]byte{}, stored...), append(dbfile.Row{}, row[4:]...)})
		}
		return nil
	})
	if err != nil {
		return after, 0, false, err
	}
	for _, r := range list {
		key, err := t.key(r.of)
		if err != nil {
			return after, 0, false, err
		}
		value, err := t.sealValue(table.kind, key, r.stored, r.row)
		if err == nil {
			_, err = t.Exec(table.set, value, r.no)
		}
		if err != nil {
			return after, 0, false, err
		}
	}
	return last, len(list), rows == oldRows, nil
}

// sealValue returns the new form of a stored value. row is the columns of its owner.
func (t *tx) sealValue(kind string, key encryption.Key, stored []byte, row dbfile.Row) ([]byte, error) {
	switch kind {
	case "message":
		no, m := row.Int(0), memory.Message{Seq: row.Int(1), Rev: row.Int(2), TurnID: row.Int(3), ID: row.Text(4)}
		body, err := checkSum(no, &m, stored)
		if err != nil {
			return nil, err
		}
		return withSum(no, &m, statements.MessageBody(key, no, m.Seq, body)), nil
	case "event":
		return key.SealBody(stored, statements.EventOwner(row.Text(0))), nil
	}
	var names []string
	for i := range row {
		names = append(names, row.Text(i))
	}
	owner := encryption.Owner(kind, names...)
	plain, err := t.s.sealer.Open(stored, owner)
	return key.Seal(plain, owner), err
}

// sealServerKeys seals the server's own keys.
func (t *tx) sealServerKeys() (n int, err error) {
	names, err := t.Conn.Texts("SELECT key FROM meta WHERE key LIKE 'key %'")
	for _, name := range names {
		row, err := t.Conn.First("SELECT value FROM meta WHERE key = ?", name)
		if err != nil {
			return n, err
		}
		if row == nil || encryption.IsData(row.Blob(0)) {
			continue
		}
		plain, err := t.s.sealer.Open(append([]byte{}, row.Blob(0)...), name)
		if err != nil {
			return n, err
		}
		key, err := t.key(encryption.Of{})
		if err == nil {
			_, err = t.Exec("UPDATE meta SET value = ? WHERE key = ?", key.Seal(plain, name), name)
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, err
}
