package sqlite

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/heardlog/heardlog/memory"
)

// Secrets (an agent's settings and properties, an endpoint's signing secrets, saved conversations, values of working memories) are stored as one byte that says how, and the bytes:
// plain, or AES-256-GCM with a random nonce in front. What a blob belongs to is bound to it as additional data, so that one
// row's secret cannot be moved to another. The key comes from Options.SealKey by HKDF-SHA256 with the file's own salt; a check
// value in table meta tells a wrong key at open, before anything is read with it.
const (
	plainBlob  = 0
	sealedBlob = 1
	saltLen    = 32
	checkText  = "heardlog"
)

var errUnsealable = errors.New("cannot be decrypted: the key does not fit, or the file was changed")

// sealer seals and opens; its zero value stores plain.
type sealer struct{ aead cipher.AEAD }

func newSealer(key, salt []byte) (sealer, error) {
	if len(key) == 0 {
		return sealer{}, nil
	}
	k, err := hkdf.Key(sha256.New, key, salt, "heardlog store secrets v1", 32)
	if err != nil {
		return sealer{}, err
	}
	block, err := aes.NewCipher(k)
	if err != nil {
		return sealer{}, err
	}
	aead, err := cipher.NewGCM(block)
	return sealer{aead: aead}, err
}

// seal gives the stored form of plain; owner names what it belongs to.
func (s sealer) seal(plain []byte, owner string) []byte {
	if s.aead == nil {
		return append([]byte{plainBlob}, plain...)
	}
	out := make([]byte, 1+s.aead.NonceSize(), 1+s.aead.NonceSize()+len(plain)+s.aead.Overhead())
	out[0] = sealedBlob
	rand.Read(out[1:]) // never fails
	return s.aead.Seal(out, out[1:], plain, []byte(owner))
}

// open reads what seal wrote, with or without a key.
func (s sealer) open(stored []byte, owner string) ([]byte, error) {
	switch {
	case len(stored) > 0 && stored[0] == plainBlob:
		return stored[1:], nil
	case s.aead == nil || len(stored) < 1+s.aead.NonceSize() || stored[0] != sealedBlob:
		return nil, errUnsealable
	}
	n := 1 + s.aead.NonceSize()
	plain, err := s.aead.Open(nil, stored[1:n], stored[n:], []byte(owner))
	if err != nil {
		return nil, errUnsealable
	}
	return plain, nil
}

// openSealer checks the key against the file. A file without a check value that is given a key gets one, and everything
// that was stored plain is sealed, in the same transaction.
func openSealer(w *conn, key []byte) (s sealer, converted bool, err error) {
	row, err := w.first("SELECT value FROM meta WHERE key = 'seal'")
	if err != nil {
		return sealer{}, false, err
	}
	if row == nil {
		if len(key) == 0 {
			return sealer{}, false, nil
		}
		s, err := sealAll(w, key)
		return s, true, err
	}
	if len(key) == 0 {
		return sealer{}, false, errors.New("the secrets in this database are encrypted: it cannot be opened without the secret key that it was made with")
	}
	check := blob(row[0])
	if len(check) < saltLen {
		return sealer{}, false, errUnsealable
	}
	s, err = newSealer(key, check[:saltLen])
	if err != nil {
		return sealer{}, false, err
	}
	if _, err := s.open(check[saltLen:], "check"); err != nil {
		return sealer{}, false, errors.New("the secret key is not the one that this database was made with")
	}
	return s, false, nil
}

func sealAll(w *conn, key []byte) (sealer, error) {
	salt := make([]byte, saltLen)
	rand.Read(salt)
	s, err := newSealer(key, salt)
	if err != nil {
		return sealer{}, err
	}
	// What is overwritten must not stay behind in free pages.
	if err := w.script("PRAGMA secure_delete = ON"); err != nil {
		return sealer{}, err
	}
	if _, err := w.run("BEGIN IMMEDIATE"); err != nil {
		return sealer{}, err
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
				plain, err := s.open(blob(row[0]), owner)
				if err != nil {
					return err
				}
				if _, err := w.run(t.set, s.seal(plain, owner), no); err != nil {
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
		_, err := w.run("INSERT INTO meta (key, value) VALUES ('seal', ?)", append(salt, s.seal([]byte(checkText), "check")...))
		return err
	}()
	if err != nil {
		_, _ = w.run("ROLLBACK")
		return sealer{}, err
	}
	if _, err := w.run("COMMIT"); err != nil {
		return sealer{}, err
	}
	return s, nil
}

// sealKeys seals the store's own keys: see Store.ServerKey.
func sealKeys(w *conn, s sealer) error {
	keys := map[string][]byte{}
	err := w.each("SELECT key, value FROM meta WHERE key LIKE 'key %'", nil, func(row []driver.Value) error {
		keys[text(row[0])] = bytes.Clone(blob(row[1]))
		return nil
	})
	if err != nil {
		return err
	}
	for key, value := range keys {
		plain, err := s.open(value, key)
		if err != nil {
			return err
		}
		if _, err := w.run("UPDATE meta SET value = ? WHERE key = ?", s.seal(plain, key), key); err != nil {
			return err
		}
	}
	return nil
}

// sealConversations seals saved conversations, one after the other: they are large.
func sealConversations(w *conn, s sealer) error {
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
		plain, err := s.open(blob(row[0]), owner)
		if err != nil {
			return err
		}
		sealed := s.seal(plain, owner)
		if _, err := w.run("UPDATE conversation SET body = ?, size = ? WHERE no = ?", sealed, int64(len(sealed)), no); err != nil {
			return err
		}
	}
	return nil
}

func agentOwner(no int64) string    { return fmt.Sprintf("agent %d", no) }
func keyOwner(name string) string   { return "key " + name }
func endpointOwner(no int64) string { return fmt.Sprintf("endpoint %d", no) }

// packAgent gives settings and properties as one blob: length of the settings, settings, properties.
func packAgent(a *memory.Agent) ([]byte, error) {
	settings, err := memory.EncodeSettings(a.Settings)
	if err != nil {
		return nil, err
	}
	b := binary.AppendUvarint(make([]byte, 0, len(settings)+len(a.Properties)+4), uint64(len(settings)))
	return append(append(b, settings...), a.Properties...), nil
}

func unpackAgent(b []byte, a *memory.Agent) (err error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || uint64(len(b)-used) < n {
		return errUnsealable
	}
	b = b[used:]
	if a.Settings, err = memory.DecodeSettings(b[:n]); err != nil {
		return err
	}
	if string(a.Settings.LLM.Params) == "null" { // encoding/json's word for none
		a.Settings.LLM.Params = nil
	}
	a.Properties = nil
	if p := b[n:]; len(p) > 0 {
		a.Properties = bytes.Clone(p)
	}
	return nil
}
