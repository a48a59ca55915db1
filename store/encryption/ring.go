package encryption

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/heardlog/heardlog/internal/cache"
	"github.com/heardlog/heardlog/internal/fault"
)

const (
	// KeyLen is the length of a master key and of a data key, in bytes.
	KeyLen = 32
	// MaxAge is how long a data key seals. It opens what it has sealed for ever. AES-GCM with
	// random nonces must not seal more than 2^32 values with one key.
	MaxAge = 90 * 24 * time.Hour
	// ringKeys is how many unwrapped keys are kept in memory, of about 1 KB each.
	ringKeys = 8192
	// numberLen is the length of the number of a data key in a sealed value.
	numberLen = 4
)

// The errors of a master key.
var (
	ErrNoDataKey    = errors.New("the texts in this database are encrypted: it cannot be opened without the HEARDLOG_DATA_KEY that it was made with")
	ErrWrongDataKey = errors.New("HEARDLOG_DATA_KEY is not the key of this database")
)

// Of is the owner of a data key: it belongs to a project and, if User is not empty, to one of its
// callers.
type Of struct{ Project, User string }

func (o Of) owner() string { return Owner("data key", o.Project, o.User) }

// Wrapped is a data key as a store keeps it, in table data_key. Its number is not in use by another
// one, and never is again.
type Wrapped struct {
	Of
	No     int64
	MadeMS int64
	Key    []byte // sealed with the master key
}

// ring is the data keys of a store. They are made at random and wrapped by the master key. Some
// are in memory.
type ring struct {
	master  cipher.AEAD
	load    func(no int64) (Wrapped, bool, error)
	keys    *cache.Cache[uint32, cipher.AEAD]
	current *cache.Cache[Of, Key]
}

// Master returns what wraps data keys with a master key of KeyLen bytes. It fails for a key of
// another length.
func Master(key []byte) (Wrapper, error) {
	if len(key) != KeyLen {
		return Wrapper{}, fmt.Errorf("a data key has %d bytes, not %d", KeyLen, len(key))
	}
	k, err := hkdf.Key(sha256.New, key, nil, "heardlog data keys v1", KeyLen)
	if err != nil {
		return Wrapper{}, err
	}
	a, err := newGCM(k)
	return Wrapper{a}, err
}

// Wrapper wraps data keys with a master key. The zero value has none.
type Wrapper struct{ aead cipher.AEAD }

// Mark returns a new check value, which a database keeps that has data keys.
func (w Wrapper) Mark() []byte { return seal(w.aead, sealed, nil, []byte(checkText), checkOf) }

// Check compares the key with the check value of a database, nil if it has none. It fails with
// ErrNoDataKey or ErrWrongDataKey.
func (w Wrapper) Check(mark []byte) error {
	switch {
	case mark == nil:
		return nil
	case w.aead == nil:
		return ErrNoDataKey
	}
	if _, err := open(w.aead, mark, 1, checkOf); err != nil {
		return ErrWrongDataKey
	}
	return nil
}

// Rewrap returns a data key wrapped by another master key.
func (w Wrapper) Rewrap(k Wrapped, by Wrapper) ([]byte, error) {
	plain, err := open(w.aead, k.Key, 1, k.owner())
	if err != nil {
		return nil, err
	}
	return seal(by.aead, sealed, nil, plain, k.owner()), nil
}

// WithKeys returns a sealer that seals with data keys, and opens what s opens too. load returns the
// data key with a number, and whether there is one, as of now; it is called while rows are read.
func (s Sealer) WithKeys(w Wrapper, load func(no int64) (Wrapped, bool, error)) Sealer {
	s.ring = &ring{w.aead, load, cache.New[uint32, cipher.AEAD](ringKeys, nil), cache.New[Of, Key](ringKeys, nil)}
	return s
}

// Reading returns the sealer with another load, and without the keys in memory.
func (s Sealer) Reading(load func(no int64) (Wrapped, bool, error)) Sealer {
	if s.ring == nil {
		return s
	}
	return s.WithKeys(Wrapper{s.ring.master}, load)
}

// HasKeys reports whether texts are sealed, with data keys.
func (s Sealer) HasKeys() bool { return s.ring != nil }

// Seals reports whether what is stored is encrypted.
func (s Sealer) Seals() bool { return s.aead != nil || s.ring != nil }

// Current returns the key that seals for its owner, if it is known. Without data keys that is the
// secret key's, or one that seals nothing.
func (s Sealer) Current(of Of, nowMS int64) (Key, bool) {
	if s.ring == nil {
		return Key{aead: s.aead}, true
	}
	k, ok := s.ring.current.Get(of)
	return k, ok && nowMS < k.untilMS
}

// Fresh returns a new data key without a number.
func (s Sealer) Fresh(of Of, nowMS int64) Wrapped {
	key := make([]byte, KeyLen)
	rand.Read(key) // never fails
	return Wrapped{Of: of, MadeMS: nowMS, Key: seal(s.ring.master, sealed, nil, key, of.owner())}
}

// Key returns the key that a store keeps wrapped. From then on values that it has sealed can be
// opened, although the store may not have committed it yet.
func (s Sealer) Key(k Wrapped) (Key, error) {
	a, err := s.ring.unwrap(k)
	return Key{of: k.Of, no: uint32(k.No), aead: a, data: true, untilMS: k.MadeMS + MaxAge.Milliseconds()}, err
}

// Use makes a key the current one of its owner. The store has committed it.
func (s Sealer) Use(k Key) {
	if k.data {
		s.ring.current.Set(k.of, k)
	}
}

// Stale makes the current key of an owner be looked up again.
func (s Sealer) Stale(of Of) {
	if s.ring != nil {
		s.ring.current.Remove(of)
	}
}

// Forget removes keys that a store has destroyed from memory, and those with which it seals for
// callers of the project.
func (s Sealer) Forget(project string, nos []int64) {
	for _, no := range nos {
		s.ring.keys.Remove(uint32(no))
	}
	for _, of := range s.ring.current.Keys() {
		if of.Project == project && of.User != "" {
			s.ring.current.Remove(of)
		}
	}
}

func (r *ring) unwrap(k Wrapped) (cipher.AEAD, error) {
	if k.No < 1 || k.No > math.MaxUint32 {
		return nil, fmt.Errorf("data key %d: %w", k.No, ErrBroken)
	}
	if a, ok := r.keys.Get(uint32(k.No)); ok {
		return a, nil
	}
	plain, err := open(r.master, k.Key, 1, k.owner())
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the data keys of this database are wrapped by another HEARDLOG_DATA_KEY: restart the server with that one")
	}
	a, err := newGCM(plain)
	if err == nil {
		r.keys.Set(uint32(k.No), a)
	}
	return a, err
}

// open opens a value that a data key has sealed.
func (r *ring) open(stored []byte, owner string) ([]byte, error) {
	if r == nil || len(stored) < 1+numberLen {
		return nil, ErrBroken
	}
	no := binary.BigEndian.Uint32(stored[1:])
	a, ok := r.keys.Get(no)
	if !ok {
		k, there, err := r.load(int64(no))
		if err != nil {
			return nil, err
		}
		if !there {
			return nil, fault.New(fault.Unavailable, "data key %d is gone, with which this was encrypted: its caller was erased", no)
		}
		if a, err = r.unwrap(k); err != nil {
			return nil, err
		}
	}
	return open(a, stored, 1+numberLen, owner)
}

// Key seals. Which of the sealer's keys it is, a store decides: see Sealer.Current. The zero value
// seals nothing.
type Key struct {
	of      Of
	aead    cipher.AEAD
	no      uint32
	data    bool
	untilMS int64
}

// No returns the number of a caller's data key, which an erasure destroys; 0 for any other.
func (k Key) No() int64 {
	if k.of.User == "" {
		return 0
	}
	return int64(k.no)
}

// Seal returns the stored form of text, bound to its owner.
func (k Key) Seal(text []byte, owner string) []byte {
	switch {
	case k.aead == nil:
		return append([]byte{plain}, text...)
	case !k.data:
		return seal(k.aead, sealed, nil, text, owner)
	}
	return seal(k.aead, data, binary.BigEndian.AppendUint32(nil, k.no), text, owner)
}

// SealBody returns the stored form of the body of a message or an event, as package codec packs
// it. Only data keys seal bodies.
func (k Key) SealBody(packed []byte, owner string) []byte {
	if !k.data {
		return packed
	}
	return k.Seal(packed, owner)
}

// OpenBody returns the body that SealBody was given. It fails with ErrBroken, or as the store does
// that is asked for the key.
func (s Sealer) OpenBody(stored []byte, owner func() string) ([]byte, error) {
	if !IsData(stored) {
		return stored, nil
	}
	return s.ring.open(stored, owner())
}

// IsData reports whether a stored value or body was sealed with a data key.
func IsData[B string | []byte](stored B) bool { return len(stored) > 0 && stored[0] == data }

func newGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// seal returns a form, more of its head, a nonce and the sealed text.
func seal(a cipher.AEAD, form byte, more, text []byte, owner string) []byte {
	at := 1 + len(more)
	out := make([]byte, at+a.NonceSize(), at+a.NonceSize()+len(text)+a.Overhead())
	out[0] = form
	copy(out[1:], more)
	rand.Read(out[at:]) // never fails
	return a.Seal(out, out[at:], text, []byte(owner))
}

// open opens what seal returned, whose head has a length.
func open(a cipher.AEAD, stored []byte, head int, owner string) ([]byte, error) {
	if a == nil || len(stored) < head+a.NonceSize() {
		return nil, ErrBroken
	}
	n := head + a.NonceSize()
	text, err := a.Open(nil, stored[head:n], stored[n:], []byte(owner))
	if err != nil {
		return nil, ErrBroken
	}
	return text, nil
}
