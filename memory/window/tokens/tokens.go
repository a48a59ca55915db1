// Package tokens counts exactly what messages cost a model, with the vocabularies of OpenAI's model
// families. Counters returns a window.Counter for a family. The vocabularies are part of the
// program, compressed; nothing is downloaded. One is loaded when it is first used, which takes some
// 15 ms and 10 MB.
package tokens

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/window"
)

// DefaultEntries is the default size of a cache, in texts: some 4 MB.
const DefaultEntries = 1 << 16

// Counters returns counters by family. Counters of a family share a cache, so that a text is
// encoded once, however many agents say it. They are safe for concurrent use.
type Counters struct {
	entries int
	mu      sync.Mutex
	byName  map[string]*counter
}

// New returns counters whose caches hold up to entries texts each; 0 or less is DefaultEntries.
func New(entries int) *Counters {
	if entries <= 0 {
		entries = DefaultEntries
	}
	return &Counters{entries: entries, byName: map[string]*counter{}}
}

// For returns the counter for a policy's field `tokens`: window.Estimate (or "") is the estimate,
// anything else one of window.Families. It returns fault.Invalid for other names.
func (c *Counters) For(name string) (window.Counter, error) {
	if name == "" || name == window.Estimate {
		return window.Estimated{}, nil
	}
	enc := encodingOf(name)
	if enc == "" {
		return nil, fault.At(fault.Invalid, "tokens", "must be one of %s, %s, not %.60q", window.Estimate, strings.Join(window.Families(), ", "), name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byName[enc] == nil {
		c.byName[enc] = newCounter(enc, c.entries)
	}
	return c.byName[enc], nil
}

const (
	o200k  = "o200k"
	cl100k = "cl100k"
)

// encodingOf returns the vocabulary of a family, or "".
func encodingOf(family string) string {
	if !slices.Contains(window.Families(), family) {
		return ""
	}
	switch family {
	case cl100k, "gpt-4", "gpt-3.5":
		return cl100k
	}
	return o200k
}

// counter counts by one vocabulary.
type counter struct {
	words   *vocabulary
	cache   cache
	encoded atomic.Int64 // texts; tests look at it
}

func newCounter(enc string, entries int) *counter {
	k := &counter{cache: newCache(entries)}
	if enc == cl100k {
		k.words = loadVocabulary(cl100kTokens, cl100kPieces)
	} else {
		k.words = loadVocabulary(o200kTokens, o200kPieces)
	}
	return k
}

// PerToken returns 1: units are tokens.
func (k *counter) PerToken() int { return 1 }

// text returns the tokens of a text.
func (k *counter) text(s string) int {
	if s == "" {
		return 0
	}
	key := k.cache.key(s)
	if n, ok := k.cache.get(key); ok {
		return n
	}
	n := k.encode(s)
	k.cache.put(key, n)
	return n
}

// json returns count of a JSON value. It is cached too, because parsing the value takes longer than
// finding its count. kind separates values that are counted in different ways.
func (k *counter) json(kind uint64, raw []byte, count func(json.RawMessage) int) int {
	key := k.cache.keyOf(kind, raw)
	if n, ok := k.cache.get(key); ok {
		return n
	}
	n := count(raw)
	k.cache.put(key, n)
	return n
}

func (k *counter) encode(s string) int {
	k.encoded.Add(1)
	n, err := k.words.count(s)
	if err != nil { // only of matches that time out, and none is set
		return len(s) / window.CharsPerToken
	}
	return n
}
