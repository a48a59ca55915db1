package sqlite

import (
	"bytes"
	"database/sql/driver"

	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/seal"
)

// Package seal encrypts an agent's settings and properties, an endpoint's signing secrets, the
// store's own keys, and the values of package kv. A check value in table meta detects a wrong key
// at open.

// openSealer checks the key against the file. A file without a check value that is given a key gets
// one, and everything that was stored plain is sealed in the same transaction.
func openSealer(w *conn, key []byte) (s seal.Sealer, converted bool, err error) {
	row, err := w.first("SELECT value FROM meta WHERE key = 'seal'")
	switch {
	case err != nil:
		return seal.Sealer{}, false, err
	case row != nil:
		s, err := seal.Check(key, blob(row[0]))
		return s, false, err
	case len(key) == 0:
		return seal.Sealer{}, false, nil
	}
	s, err = sealAll(w, key)
	return s, true, err
}

func sealAll(w *conn, key []byte) (seal.Sealer, error) {
	s, check, err := seal.First(key)
	if err != nil {
		return seal.Sealer{}, err
	}
	// Overwritten secrets must not stay behind in free pages.
	if err := w.script("PRAGMA secure_delete = ON"); err != nil {
		return seal.Sealer{}, err
	}
	if _, err := w.run("BEGIN IMMEDIATE"); err != nil {
		return seal.Sealer{}, err
	}
	err = func() error {
		for _, t := range sealedTables {
			if err := t.seal(w, s); err != nil {
				return err
			}
		}
		_, err := w.run("INSERT INTO meta (key, value) VALUES ('seal', ?)", check)
		return err
	}()
	if err != nil {
		_, _ = w.run("ROLLBACK")
		return seal.Sealer{}, err
	}
	if _, err := w.run("COMMIT"); err != nil {
		return seal.Sealer{}, err
	}
	return s, nil
}

// sealedTable describes how the blobs of one table are read and written back, one at a time: they
// may be large.
type sealedTable struct {
	kind string // of the owner, see seal.Owner
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
}

func (t sealedTable) seal(w *conn, s seal.Sealer) error {
	var keys []driver.Value
	err := w.each(t.keys, nil, func(row []driver.Value) error {
		switch key := row[0].(type) {
		case int64:
			keys = append(keys, key)
		default:
			keys = append(keys, text(key))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range keys {
		row, err := w.first(t.get, key)
		if err != nil {
			return err
		}
		if row == nil { // its agent is gone, and it is about to be erased
			if _, err := w.run(t.set, []byte{}, key); err != nil {
				return err
			}
			continue
		}
		var names []string
		for _, name := range row[1:] {
			names = append(names, text(name))
		}
		owner := seal.Owner(t.kind, names...)
		plain, err := s.Open(bytes.Clone(blob(row[0])), owner)
		if err != nil {
			return err
		}
		if _, err := w.run(t.set, s.Seal(plain, owner), key); err != nil {
			return err
		}
	}
	return nil
}

func agentOwner(project, id string) string { return seal.Owner("agent", project, id) }
func kvOwner(space kv.Space, key string) string {
	return seal.Owner("kv", space.Project, space.Agent, key)
}
func keyOwner(name string) string    { return seal.Owner("key", name) }
func endpointOwner(id string) string { return seal.Owner("endpoint", id) }
