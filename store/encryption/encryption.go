// Package encryption encrypts what stores keep, the same way in every store. A Sealer opens stored
// values, and has the Keys that seal them. A sealed value is one byte that says how it is stored,
// then the bytes:
//
//	0  plain
//	1  AES-256-GCM with the secret key: a random nonce of 12 bytes, the sealed text
//	2  AES-256-GCM with a data key: its number in 4 bytes, a nonce, the sealed text
//
// Bodies of messages and events are packed instead of plain; package codec begins these with
// another byte. The name of a value's owner is authenticated with it, so that what one row holds
// cannot be moved to another row.
//
// Data keys are made at random, one for each project and each caller, and stored wrapped by a
// master key. So the master key changes without sealing anything again, and what belongs to a
// caller cannot be read any more once the caller's key is destroyed.
package encryption

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"strings"
)

const (
	plain     = 0
	sealed    = 1
	data      = 2
	saltLen   = 32
	checkText = "heardlog"
	checkOf   = "check"
)

// The errors of Open and Check.
var (
	// ErrBroken means that a value cannot be decrypted.
	ErrBroken = errors.New("cannot be decrypted: the key does not fit, or what is stored was changed")
	// ErrNoKey and ErrWrongKey refuse a database.
	ErrNoKey    = errors.New("the secrets in this database are encrypted: it cannot be opened without the secret key that it was made with")
	ErrWrongKey = errors.New("the secret key is not the one that this database was made with")
)

// Sealer opens stored values. The zero value opens plain ones.
type Sealer struct {
	aead cipher.AEAD // of the secret key; nil for none
	ring *ring       // nil without data keys
}

// newSealer derives the encryption key from the secret key and the database's own salt with
// HKDF-SHA256 (RFC 5869). Without a key it returns the zero value.
func newSealer(key, salt []byte) (Sealer, error) {
	if len(key) == 0 {
		return Sealer{}, nil
	}
	k, err := hkdf.Key(sha256.New, key, salt, "heardlog store secrets v1", KeyLen)
	if err != nil {
		return Sealer{}, err
	}
	aead, err := newGCM(k)
	return Sealer{aead: aead}, err
}

// First returns a sealer with a new salt, and the check value that the database must keep.
func First(key []byte) (s Sealer, check []byte, err error) {
	salt := make([]byte, saltLen)
	rand.Read(salt) // never fails
	if s, err = newSealer(key, salt); err != nil {
		return Sealer{}, nil, err
	}
	return s, append(salt, s.Secret().Seal([]byte(checkText), checkOf)...), nil
}

// Check returns the sealer of a database that keeps a check value. It fails with ErrNoKey,
// ErrWrongKey or ErrBroken, before anything is read with a wrong key.
func Check(key, check []byte) (Sealer, error) {
	if len(key) == 0 {
		return Sealer{}, ErrNoKey
	}
	if len(check) < saltLen {
		return Sealer{}, ErrBroken
	}
	s, err := newSealer(key, check[:saltLen])
	if err != nil {
		return Sealer{}, err
	}
	if _, err := s.Open(check[saltLen:], checkOf); err != nil {
		return Sealer{}, ErrWrongKey
	}
	return s, nil
}

// Owner returns the name of a value's owner, such as an agent of a project.
func Owner(kind string, name ...string) string { return kind + " " + strings.Join(name, "\x00") }

// Secret returns what seals with the secret key, or stores plain if there is none.
func (s Sealer) Secret() Key { return Key{aead: s.aead} }

// Open returns the text that Key.Seal was given. Plain values open with or without a key. It fails
// with ErrBroken, or as the store does that is asked for a data key.
func (s Sealer) Open(stored []byte, owner string) ([]byte, error) {
	if len(stored) == 0 {
		return nil, ErrBroken
	}
	switch stored[0] {
	case plain:
		return stored[1:], nil
	case sealed:
		return open(s.aead, stored, 1, owner)
	case data:
		return s.ring.open(stored, owner)
	}
	return nil, ErrBroken
}
