package statements

import (
	"hash/fnv"

	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/record"
)

// Words are the words by which records are found, as hashes: of a fixed size, and different in each
// space, so that a search reads nothing of others.
type Words struct {
	Terms  record.Terms // nil for a store that finds nothing
	Sealer encryption.Sealer
}

// Of returns the hashes of a record's words, nil if it is not found by words. Nothing of what is
// encrypted is kept beside it.
func (w Words) Of(at record.Space, body []byte) []int64 {
	if w.Terms == nil || body == nil || w.Sealer.Seals() {
		return nil
	}
	return HashWords(at, w.Terms(at, body))
}

// HashWords returns the hashes of words of a space, each once.
func HashWords(at record.Space, words []string) (out []int64) {
	seen := map[int64]bool{}
	for _, word := range words {
		h := fnv.New64a()
		for _, part := range []string{at.Project, at.Name, at.User, word} {
			h.Write([]byte(part + "\x00")) // never fails
		}
		if n := int64(h.Sum64()); !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}
