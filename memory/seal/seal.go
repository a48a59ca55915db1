// Package seal is the at-rest encryption that stores share: what a database holds of secrets is one byte that says how, and the bytes: plain, or AES-256-GCM with
// a random nonce in front. What a blob belongs to is bound to it as additional data, so that one row's secret cannot be moved to another.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
)

const (
	plain  = 0
	sealed = 1
	// SaltLen is how many bytes of salt a database has.
	SaltLen   = 32
	checkText = "heardlog"
	checkOf   = "check"
)

// Errors of Open and Check.
var (
	// ErrBroken tells that a blob cannot be decrypted.
	ErrBroken = errors.New("cannot be decrypted: the key does not fit, or what is stored was changed")
	// ErrNoKey and ErrWrongKey refuse a database.
	ErrNoKey    = errors.New("the secrets in this database are encrypted: it cannot be opened without the secret key that it was made with")
	ErrWrongKey = errors.New("the secret key is not the one that this database was made with")
)

// Sealer seals and opens; its zero value stores plain.
type Sealer struct{ aead cipher.AEAD }

// New gives the sealer of a key and a database's own salt: the key is derived by HKDF-SHA256 (RFC 5869). No key gives the zero value.
func New(key, salt []byte) (Sealer, error) {
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

// First gives a sealer with a new salt, and the check value that the database is to keep.
func First(key []byte) (s Sealer, check []byte, err error) {
	var salt [SaltLen]byte
	rand.Read(salt[:]) // never fails
	return FirstOf(key, salt)
}

// FirstOf is First with a given salt, for a database that may lose its check value and go on.
func FirstOf(key []byte, salt [SaltLen]byte) (s Sealer, check []byte, err error) {
	if s, err = New(key, salt[:]); err != nil {
		return Sealer{}, nil, err
	}
	return s, append(salt[:], s.Seal([]byte(checkText), checkOf)...), nil
}

// Check gives the sealer of a database that keeps a check value; a wrong key is told before anything is read with it. It fails with ErrNoKey, ErrWrongKey
// or ErrBroken.
func Check(key, check []byte) (Sealer, error) {
	if len(key) == 0 {
		return Sealer{}, ErrNoKey
	}
	if len(check) < SaltLen {
		return Sealer{}, ErrBroken
	}
	s, err := New(key, check[:SaltLen])
	if err != nil {
		return Sealer{}, err
	}
	if _, err := s.Open(check[SaltLen:], checkOf); err != nil {
		return Sealer{}, ErrWrongKey
	}
	return s, nil
}

// Seal gives the stored form of text; owner names what it belongs to.
func (s Sealer) Seal(text []byte, owner string) []byte {
	if s.aead == nil {
		return append([]byte{plain}, text...)
	}
	out := make([]byte, 1+s.aead.NonceSize(), 1+s.aead.NonceSize()+len(text)+s.aead.Overhead())
	out[0] = sealed
	rand.Read(out[1:]) // never fails
	return s.aead.Seal(out, out[1:], text, []byte(owner))
}

// Open reads what Seal wrote, with or without a key. It fails with ErrBroken.
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
