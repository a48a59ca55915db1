package sqlite

import (
	"bytes"
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/heardlog/heardlog/memory/seal"
)

// What is sealed (package seal): an agent's settings and properties, an endpoint's signing secrets, the store's own keys, saved conversations, values of working
// memories. A check value in table meta tells a wrong key at open.

// openSealer checks the key against the file. A file without a check value that is given a key gets one, and everything
// that was stored plain is sealed, in the same transaction.
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
	// What is overwritten must not stay behind in free pages.
	if err := w.script("PRAGMA secure_delete = ON"); err != nil {
		return seal.Sealer{}, err
	}
	if _, err := w.run("BEGIN IMMEDIATE"); err != nil {
		return seal.Sealer{}, err
	}
	err = func() error {
		for _, t := range []struct{ all, one, set string }{
			{"SELECT agent_no FROM agent_settings", "SELECT body, agent_no FROM agent_settings WHERE agent_no = ?", "UPDATE agent_settings SET body = ? WHERE agent_no = ?"},
			{"SELECT no FROM endpoint WHERE id IS NOT NULL", "SELECT secrets, no FROM endpoint WHERE no = ?", "UPDATE endpoint SET secrets = ? WHERE no = ?"},
		} {
			var nos []int64
			if err := w.each(t.all, nil, func(row []driver.Value) error { nos = append(nos, integer(row[0])); return nil }); err != nil {
				return err
			}
			for _, no := range nos {
				row, err := w.first(t.one, no)
				if err != nil {
					return err
				}
				owner := agentOwner(no)
				if strings.Contains(t.all, "FROM endpoint") {
					owner = endpointOwner(no)
				}
				plain, err := s.Open(blob(row[0]), owner)
				if err != nil {
					return err
				}
				if _, err := w.run(t.set, s.Seal(plain, owner), no); err != nil {
					return err
				}
			}
		}
		if err := sealKeys(w, s); err != nil {
			return err
		}
		if err := sealConversations(w, s); err != nil {
			return err
		}
		if err := sealWorking(w, s); err != nil {
			return err
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

// sealKeys seals the store's own keys: see Store.ServerKey.
func sealKeys(w *conn, s seal.Sealer) error {
	keys := map[string][]byte{}
	err := w.each("SELECT key, value FROM meta WHERE key LIKE 'key %'", nil, func(row []driver.Value) error {
		keys[text(row[0])] = bytes.Clone(blob(row[1]))
		return nil
	})
	if err != nil {
		return err
	}
	for key, value := range keys {
		plain, err := s.Open(value, key)
		if err != nil {
			return err
		}
		if _, err := w.run("UPDATE meta SET value = ? WHERE key = ?", s.Seal(plain, key), key); err != nil {
			return err
		}
	}
	return nil
}

// sealConversations seals saved conversations, one after the other: they are large.
func sealConversations(w *conn, s seal.Sealer) error {
	var rows []int64
	if err := w.each("SELECT no FROM conversation", nil, func(row []driver.Value) error { rows = append(rows, integer(row[0])); return nil }); err != nil {
		return err
	}
	for _, no := range rows {
		row, err := w.first("SELECT body, project, id FROM conversation WHERE no = ?", no)
		if err != nil {
			return err
		}
		owner := conversationOwner(text(row[1]), text(row[2]))
		plain, err := s.Open(blob(row[0]), owner)
		if err != nil {
			return err
		}
		sealed := s.Seal(plain, owner)
		if _, err := w.run("UPDATE conversation SET body = ?, size = ? WHERE no = ?", sealed, int64(len(sealed)), no); err != nil {
			return err
		}
	}
	return nil
}

func agentOwner(no int64) string    { return fmt.Sprintf("agent %d", no) }
func keyOwner(name string) string   { return "key " + name }
func endpointOwner(no int64) string { return fmt.Sprintf("endpoint %d", no) }
