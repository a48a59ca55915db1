package postgres

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory"
)

// Secrets (an agent's settings and properties, an endpoint's signing secrets, the store's own keys) are stored as one byte that says how, and the
// bytes: plain, or AES-256-GCM with a random nonce in front. What a blob belongs to is bound to it as additional data, so that one row's secret
// cannot be moved to another. The key comes from Options.SealKey by HKDF-SHA256 with the database's own salt; a check value in table meta tells a
// wrong key at open, so that replicas cannot run with different ones.
const (
	plainBlob  = 0
	sealedBlob = 1
	saltLen    = 32
	checkText  = "heardlog"
)

var errUnsealable = fmt.Errorf("a secret cannot be decrypted: the key does not fit, or the row was changed: %w", errBadRow)

// sealer seals and opens; its zero value stores plain.
type sealer struct{ aead cipher.AEAD }

func newSealer(key, salt []byte) (sealer, error) {
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

// openSealer checks the key against the database. One without a check value that is given a key gets one, and everything that was stored
// plain is sealed, in the same transaction; a replica that runs on without the key cannot read it then.
func openSealer(ctx context.Context, tx pgx.Tx, key []byte) (sealer, error) {
	var check []byte
	err := tx.QueryRow(ctx, "SELECT value FROM meta WHERE key = 'seal'").Scan(&check)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && len(key) == 0:
		return sealer{}, nil
	case errors.Is(err, pgx.ErrNoRows):
		return sealAll(ctx, tx, key)
	case err != nil:
		return sealer{}, err
	case len(key) == 0:
		return sealer{}, errors.New("the secrets in this database are encrypted: it cannot be opened without the secret key that it was made with")
	case len(check) < saltLen:
		return sealer{}, errUnsealable
	}
	s, err := newSealer(key, check[:saltLen])
	if err != nil {
		return sealer{}, err
	}
	if _, err := s.open(check[saltLen:], "check"); err != nil {
		return sealer{}, errors.New("the secret key is not the one that this database was made with")
	}
	return s, nil
}

// sealAll seals what is there and leaves the check value.
func sealAll(ctx context.Context, tx pgx.Tx, key []byte) (sealer, error) {
	salt := make([]byte, saltLen)
	rand.Read(salt)
	s, err := newSealer(key, salt)
	if err != nil {
		return sealer{}, err
	}
	for _, t := range []struct{ get, set string }{
		{"SELECT 'agent ' || project || ' ' || id, no::text, settings FROM agent WHERE no > $1 ORDER BY no LIMIT 500", "UPDATE agent SET settings = $1 WHERE no = $2::bigint"},
		{"SELECT 'endpoint ' || id, no::text, secrets FROM endpoint WHERE no > $1 AND id IS NOT NULL ORDER BY no LIMIT 500", "UPDATE endpoint SET secrets = $1 WHERE no = $2::bigint"},
	} {
		for at := int64(-1 << 62); ; {
			n, last, err := sealSome(ctx, tx, s, t.get, t.set, at)
			if err != nil {
				return sealer{}, err
			}
			if n == 0 {
				break
			}
			at = last
		}
	}
	// By the row's address, since these have no number; nothing else changes while the migration's lock is held by whom we wait for.
	if _, _, err := sealSome(ctx, tx, s, "SELECT 'conversation ' || project || ' ' || id, project || chr(2) || id, body FROM conversation WHERE $1 < 0",
		"UPDATE conversation SET body = $1 WHERE project || chr(2) || id = $2", -1); err != nil {
		return sealer{}, err
	}
	if _, _, err := sealSome(ctx, tx, s, `SELECT 'working ' || a.project || ' ' || a.id || ' ' || w.key, w.agent_no || ' ' || w.key, w.body
		FROM working w JOIN agent a ON a.no = w.agent_no WHERE $1 < 0`, "UPDATE working SET body = $1 WHERE agent_no || ' ' || key = $2", -1); err != nil {
		return sealer{}, err
	}
	if _, _, err := sealSome(ctx, tx, s, "SELECT key, key, value FROM meta WHERE key LIKE 'key %' AND $1 < 0", "UPDATE meta SET value = $1 WHERE key = $2", -1); err != nil {
		return sealer{}, err
	}
	_, err = tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ('seal', $1)", append(salt, s.seal([]byte(checkText), "check")...))
	return s, err
}

// sealSome seals the blobs that a query gives as owner, key and blob, and gives their number and the last key where it is one.
func sealSome(ctx context.Context, tx pgx.Tx, s sealer, get, set string, at int64) (n int, last int64, err error) {
	type blob struct {
		Owner, Key string
		Value      []byte
	}
	rows, err := tx.Query(ctx, get, at)
	if err != nil {
		return 0, 0, err
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[blob])
	if err != nil {
		return 0, 0, err
	}
	for _, b := range list {
		plain, err := s.open(b.Value, b.Owner)
		if err != nil {
			return 0, 0, err
		}
		if _, err := tx.Exec(ctx, set, s.seal(plain, b.Owner), b.Key); err != nil {
			return 0, 0, err
		}
		_, _ = fmt.Sscan(b.Key, &last)
	}
	return len(list), last, nil
}

func agentOwner(project, id string) string { return "agent " + stored(project) + " " + stored(id) }
func conversationOwner(project, id string) string {
	return "conversation " + stored(project) + " " + stored(id)
}
func keyOwner(name string) string    { return "key " + name }
func endpointOwner(id string) string { return "endpoint " + stored(id) }

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
		return errors.Join(err, errBadRow)
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
