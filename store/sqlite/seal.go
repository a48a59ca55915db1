package sqlite

import (
	"bytes"

	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
)

// openSealer returns what encrypts an agent's settings and properties, an endpoint's signing
// secrets, the store's own keys, and the values of packages kv and record. A check value in table
// meta detects a wrong key. openSealer checks the key against the file. A file without a check
// value that is given a key gets one, and everything that was stored plain is sealed in the same
// transaction.
func openSealer(w *dbfile.Conn, key []byte) (s encryption.Sealer, err error) {
	row, err := w.First("SELECT value FROM meta WHERE key = 'seal'")
	switch {
	case err != nil:
		return s, err
	case row != nil:
		return encryption.Check(key, row.Blob(0))
	case len(key) == 0:
		return s, nil
	}
	if s, err = sealAll(w, key); err != nil {
		return s, err
	}
	// Until here the log may still hold the plain text.
	return s, w.Script("PRAGMA wal_checkpoint(TRUNCATE)")
}

func sealAll(w *dbfile.Conn, key []byte) (encryption.Sealer, error) {
	s, check, err := encryption.First(key)
	if err != nil {
		return encryption.Sealer{}, err
	}
	// Overwritten secrets must not stay behind in free pages.
	if err := w.Script("PRAGMA secure_delete = ON"); err != nil {
		return encryption.Sealer{}, err
	}
	return s, w.Transaction(func() error {
		for _, t := range sealedTables {
			if err := t.seal(w, s); err != nil {
				return err
			}
		}
		if _, err := w.Run("INSERT INTO record_word (record_word) VALUES ('delete-all')"); err != nil {
			return err
		}
		_, err := w.Run("INSERT INTO meta (key, value) VALUES ('seal', ?)", check)
		return err
	})
}

// sealedTable describes how the blobs of one table are read and written back, one at a time: they
// may be large.
type sealedTable struct {
	kind string // of the owner, see encryption.Owner
	keys string // the keys of all rows
	get  string // the blob and the names of its owner, by the row's key
	set  string // writes the sealed blob ?1 to the row with the key ?2
}

var sealedTables = []sealedTable{
	{
		"agent", "SELECT agent_no FROM agent_settings",
		"SELECT s.body, a.project, a.id FROM agent_settings s JOIN agent a ON a.no = s.agent_no WHERE s.agent_no = ?",
		"UPDATE agent_settings SET body = ?1 WHERE agent_no = ?2",
	},
	{
		"endpoint", "SELECT no FROM endpoint WHERE id IS NOT NULL",
		"SELECT secrets, id FROM endpoint WHERE no = ?", "UPDATE endpoint SET secrets = ?1 WHERE no = ?2",
	},
	{
		"key", "SELECT key FROM meta WHERE key LIKE 'key %'",
		"SELECT value, substr(key, 5) FROM meta WHERE key = ?", "UPDATE meta SET value = ?1 WHERE key = ?2",
	},
	{
		"kv", "SELECT no FROM kv",
		`SELECT k.body, coalesce(a.project, k.project), coalesce(a.id, ''), k.key FROM kv k LEFT JOIN agent a ON a.no = k.agent_no
			WHERE k.no = ? AND (k.agent_no = 0 OR a.no IS NOT NULL)`,
		"UPDATE kv SET body = ?1 WHERE no = ?2",
	},
	{
		"record", "SELECT no FROM record WHERE body IS NOT NULL",
		"SELECT r.body, s.project, s.name, s.user_id, r.id FROM record r JOIN record_space s ON s.no = r.space_no WHERE r.no = ?",
		"UPDATE record SET body = ?1 WHERE no = ?2",
	},
}

func (t sealedTable) seal(w *dbfile.Conn, s encryption.Sealer) error {
	keys, err := dbfile.Collect(w, func(row dbfile.Row) (any, error) { return row[0], nil }, t.keys)
	if err != nil {
		return err
	}
	for _, key := range keys {
		row, err := w.First(t.get, key)
		if err != nil {
			return err
		}
		if row == nil { // its agent is gone, and it is about to be erased
			if _, err := w.Run(t.set, []byte{}, key); err != nil {
				return err
			}
			continue
		}
		var names []string
		for i := 1; i < len(row); i++ {
			names = append(names, row.Text(i))
		}
		owner := encryption.Owner(t.kind, names...)
		if encryption.IsData(row.Blob(0)) {
			continue
		}
		plain, err := s.Open(bytes.Clone(row.Blob(0)), owner)
		if err != nil {
			return err
		}
		if _, err := w.Run(t.set, s.Secret().Seal(plain, owner), key); err != nil {
			return err
		}
	}
	return nil
}
