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

// Digest tells requests apart: two have the same one where they ask for the same, whatever the white space, the order of members and the time that a platform
// wrote at top level.
func (r *Request) Digest() [sha256.Size]byte {
	h := sha256.New()
	members := slices.Clone(r.members)
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	for _, m := range members {
		if m.name != "timestamp" {
			digestPart(h, []byte(m.name))
			digestPart(h, canonical(m.value))
		}
	}
	digestPart(h, nil)
	for i := range r.Messages {
		digestPart(h, canonical(r.Messages[i].Raw))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// digestPart adds a part with its length, so that no two lists of parts look the same.
func digestPart(h hash.Hash, b []byte) {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
	_, _ = h.Write(n[:]) // a hash cannot fail
	_, _ = h.Write(b)
}

// canonical gives the one form of a JSON value; what has none is taken as it stands.
func canonical(v []byte) []byte {
	c := jsontext.Value(bytes.Clone(v))
	if c.Canonicalize(lenient) != nil {
		return v
	}
	return c
}
