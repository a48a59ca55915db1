// Package encryption encrypts secrets at rest, the same way in every store. A stored blob is one
// byte that says how it is stored, then the bytes: plain, or AES-256-GCM with a random nonce in
// front. The name of the blob's owner is authenticated with it, so that one row's secret cannot be
// moved to another row.
package encryption

import (
	"crypto/aes"
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
	saltLen   = 32
	checkText = "heardlog"
	checkOf   = "check"
)

// The errors of Open and Check.
var (
	// ErrBroken means that a blob cannot be decrypted.
	ErrBroken = errors.New("cannot be decrypted: the key does not fit, or what is stored was changed")
	// ErrNoKey and ErrWrongKey refuse a database.
	ErrNoKey    = errors.New("the secrets in this database are encrypted: it cannot be opened without the secret key that it was made with")
	ErrWrongKey = errors.New("the secret key is not the one that this database was made with")
)

// Sealer seals and opens blobs. The zero value seals nothing: it stores blobs plain.
type Sealer struct{ aead cipher.AEAD }

// newSealer derives the encryption key from the secret key and the database's own salt with
// HKDF-SHA256 (RFC 5869). Without a key it returns the zero value.
func newSealer(key, salt []byte) (Sealer, error) {
	if len(key) == 0 {
		return Sealer{}, nil
	}
	k, err := hkdf.Key(sha256.New, key, salt, "heardlog store secrets v1", 32)
	if err != nil {
		return Sealer{}, err
	}
	block, err := aes.NewCipher(k)
	if err != nil {
		return Sealer{}, err
	}
	aead, err := cipher.NewGCM(block)
	return Sealer{aead: aead}, err
}

// First returns a sealer with a new salt, and the check value that the database must keep.
func First(key []byte) (s Sealer, check []byte, err error) {
	salt := make([]byte, saltLen)
	rand.Read(salt) // never fails
	if s, err = newSealer(key, salt); err != nil {
		return Sealer{}, nil, err
	}
	return s, append(salt, s.Seal([]byte(checkText), checkOf)...), nil
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

// Owner returns the name of a blob's owner, such as an agent of a project.
func Owner(kind string, name ...string) string { return kind + " " + strings.Join(name, "\x00") }

// Seals reports whether what is stored is encrypted.
func (s Sealer) Seals() bool { return s.aead != nil }

// Seal returns the stored form of text, bound to its owner.
func (s Sealer) Seal(text []byte, owner string) []byte {
	if s.aead == nil {
		return append([]byte{plain}, text...)
	}
	out := make([]byte, 1+s.aead.NonceSize(), 1+s.aead.NonceSize()+len(text)+s.aead.Overhead())
	out[0] = sealed
	rand.Read(out[1:]) // never fails
	return s.aead.Seal(out, out[1:], text, []byte(owner))
}

// Open returns the text that Seal was given. Plain blobs open with or without a key. It fails with
// ErrBroken.
func (s Sealer) Open(stored []byte, owner string) ([]byte, error) {
	switch {
	case len(stored) > 0 && stored[0] == plain:
		return stored[1:], nil
	case s.aead == nil || len(stored) < 1+s.aead.NonceSize() || stored[0] != sealed:
		return nil, ErrBroken
	}
	n := 1 + s.aead.NonceSize()
	text, err := s.aead.Open(nil, stored[1:n], stored[n:], []byte(owner))
	if err != nil {
		return nil, ErrBroken
	}
	return text, nil
}
