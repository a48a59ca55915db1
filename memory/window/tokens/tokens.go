// Package tokens counts what messages cost a model exactly, by the vocabularies of OpenAI's model families. The vocabularies are in the program: nothing is
// fetched. One is read when it is first asked for, which takes some 20 ms and 7 MB.
package tokens

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tiktoken-go/tokenizer/codec"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/window"
)

// DefaultEntries is how many texts a cache remembers where nobody says: some 4 MB.
const DefaultEntries = 1 << 16

// Counters gives counters by family. All of one family share a cache of counts, so that a text is encoded once however many agents say it and however often
// their memory is read. Counters are safe for concurrent use.
type Counters struct {
	entries int
	mu      sync.Mutex
	byName  map[string]*counter
}

// New makes counters that each remember up to entries texts; 0 or less is DefaultEntries.
func New(entries int) *Counters {
	if entries <= 0 {
		entries = DefaultEntries
	}
	return &Counters{entries: entries, byName: map[string]*counter{}}
}

// For gives the counter that a policy's field `tokens` names: window.Estimate (or "") is the estimate, anything else one of window.Families. It fails with fault.Invalid.
func (c *Counters) For(name string) (window.Counter, error) {
	if name == "" || name == window.Estimate {
		return window.Estimated{}, nil
	}
	enc := encodingOf(name)
	if enc == "" {
		return nil, fault.At(fault.Invalid, "tokens", "%.60q is not one of %s, %s", name, window.Estimate, strings.Join(window.Families(), ", "))
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

// encodingOf gives the vocabulary of a family; "" if there is none.
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
	codec   *codec.Codec
	cache   cache
	encoded atomic.Int64 // texts; tests look at it
}

func newCounter(enc string, entries int) *counter {
	k := &counter{cache: newCache(entries)}
	if enc == cl100k {
		k.codec = codec.NewCl100kBase()
	} else {
		k.codec = codec.NewO200kBase()
	}
	return k
}

// PerToken gives 1: units are tokens.
func (k *counter) PerToken() int { return 1 }

// text gives the tokens of a text.
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

// json gives what count makes of a JSON value, which is remembered too: reading it takes longer than finding its count. kind keeps values apart that are
// counted in different ways.
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
	n, err := k.codec.Count(s)
	if err != nil { // only of matches that time out, and none is set
		return len(s) / window.CharsPerToken
	}
	return n
}
