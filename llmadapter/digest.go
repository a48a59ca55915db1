package llmadapter

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Digest returns a hash that identical requests share. White space, the order of members and the
// top-level timestamp do not count.
func (r *Request) Digest() [sha256.Size]byte {
	h := sha256.New()
	members := slices.Clone(r.members)
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	for _, m := range members {
		if m.Name != "timestamp" {
			digestPart(h, []byte(m.Name))
			digestPart(h, canonical(m.Value))
		}
	}
	digestPart(h, nil)
	for i := range r.Messages {
		digestPart(h, canonical(r.Messages[i].Raw))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// digestPart adds a part with its length, so that no two lists of parts have the same hash.
func digestPart(h hash.Hash, b []byte) {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
	_, _ = h.Write(n[:]) // a hash cannot fail
	_, _ = h.Write(b)
}

// canonical returns the canonical form of a JSON value, or v if it has none.
func canonical(v []byte) []byte {
	c := jsontext.Value(bytes.Clone(v))
	if c.Canonicalize(lenient) != nil {
		return v
	}
	return c
}
