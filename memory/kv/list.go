package kv

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
)

// listPage is how many keys are read from the store at a time.
const listPage = 1000

// List returns up to limit keys after the given one that match a glob pattern, with the sums of the
// whole namespace, and the key after which the next page begins, "" at the end. A pattern is one as
// Redis has it; "" matches all.
func (s *Service) List(ctx context.Context, project, name, pattern, after string, limit int) (page Page, most Limit, next string, err error) {
	if n := utf8.RuneCountInString(pattern); n > MaxKey || !utf8.ValidString(pattern) {
		return page, most, "", fault.At(fault.Invalid, "pattern", "has %d characters or is not valid UTF-8; at most %d are allowed", n, MaxKey)
	}
	wanted, err := parseGlob(pattern)
	if err != nil {
		return page, most, "", err
	}
	p, err := s.open(ctx, project, name)
	if err != nil {
		return page, most, "", err
	}
	prefix := prefixOf(pattern)
	if _, size := utf8.DecodeLastRuneInString(prefix); after < prefix {
		after = max(after, prefix[:len(prefix)-size]) // all keys with the prefix follow it
	}
	var keys []Key
	for {
		part, err := s.Store.ListKeys(ctx, p.Space, after, listPage, s.nowMS())
		if err != nil {
			return page, p.limit, "", err
		}
		page.Total, page.Bytes = part.Total, part.Bytes
		for _, k := range part.Keys {
			after = k.Key
			if pattern != "" && !wanted.match(k.Key) {
				if k.Key > prefix && !strings.HasPrefix(k.Key, prefix) {
					part.Keys = nil // no later key has the prefix
					break
				}
				continue
			}
			if keys = append(keys, k); len(keys) > limit {
				page.Keys = keys[:limit]
				return page, p.limit, keys[limit-1].Key, nil
			}
		}
		if len(part.Keys) < listPage {
			page.Keys = keys
			return page, p.limit, "", nil
		}
	}
}

// Bounds of a search, which reads a whole namespace.
const (
	MaxSearchKeys  = 10_000
	MaxSearchBytes = 16 << 20
	MaxSearchQuery = 1000 // characters
	searchPage     = 100
)

// Found is an entry that a search has found. Score is the share of the query's words that are in
// it, from 0 to 1.
type Found struct {
	Entry
	Score float64
}

// Search returns up to topK entries whose key or value has words of the query, best first and then
// by key. Each filter names a member of values that are objects, and the JSON that it must equal.
// Without a query all entries match. A word is found in any case and inside of others. It fails
// with fault.Quota if the namespace is larger than a search reads.
func (s *Service) Search(ctx context.Context, project, name, query string, topK int, filters map[string]json.RawMessage) ([]Found, error) {
	if n := utf8.RuneCountInString(query); n > MaxSearchQuery {
		return nil, fault.At(fault.Invalid, "query", "has %d characters, at most %d are allowed", n, MaxSearchQuery)
	}
	p, err := s.open(ctx, project, name)
	if err != nil {
		return nil, err
	}
	words := strings.Fields(strings.ToLower(query))
	var found []Found
	for after := ""; ; {
		page, err := s.Store.ListKeys(ctx, p.Space, after, searchPage, s.nowMS())
		if err != nil {
			return nil, err
		}
		if page.Total > MaxSearchKeys || page.Bytes > MaxSearchBytes {
			return nil, fault.New(fault.Quota, "the namespace holds %d keys of %d bytes; a search reads at most %d of %d bytes: list the keys instead", page.Total, page.Bytes, MaxSearchKeys, MaxSearchBytes)
		}
		keys := make([]string, len(page.Keys))
		for i, k := range page.Keys {
			keys[i], after = k.Key, k.Key
		}
		entries, err := s.Store.GetKeys(ctx, p.Space, keys, s.nowMS())
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if score := scoreOf(&e, words); score > 0 && passes(e.Value, filters) {
				found = append(found, Found{e, score})
			}
		}
		slices.SortStableFunc(found, func(a, b Found) int { return cmp.Compare(b.Score, a.Score) })
		found = found[:min(len(found), topK)]
		if len(page.Keys) < searchPage {
			return found, nil
		}
	}
}

func scoreOf(e *Entry, words []string) float64 {
	if len(words) == 0 {
		return 1
	}
	var v any
	n, within := 0, strings.ToLower(e.Key)
	if json.Unmarshal(e.Value, &v) == nil { // escaped letters are found, too
		b, _ := json.Marshal(v)
		within += "\n" + strings.ToLower(string(b))
	}
	for _, w := range words {
		if strings.Contains(within, w) {
			n++
		}
	}
	return float64(n) / float64(len(words))
}

// passes reports whether a value is an object whose members equal those of the filters.
func passes(value []byte, filters map[string]json.RawMessage) bool {
	if len(filters) == 0 {
		return true
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(value, &members) != nil {
		return false
	}
	for name, want := range filters {
		if got, ok := members[name]; !ok || !bytes.Equal(compact(got), compact(want)) {
			return false
		}
	}
	return true
}

func compact(raw []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}
