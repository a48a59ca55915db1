package kv_test

import (
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
)

// TestPatterns: keys match as path.Match says, for a few thousand patterns.
func TestPatterns(t *testing.T) {
	t.Parallel()
	s := newShelf(t, memory.GC{})
	r := rand.New(rand.NewPCG(1, 2))
	random := func(from string, atMost int) string {
		var b strings.Builder
		for range 1 + r.IntN(atMost) {
			all := []rune(from)
			b.WriteRune(all[r.IntN(len(all))])
		}
		return b.String()
	}
	keys := map[string]bool{"a": true}
	for range 40 {
		keys[random(`abcé*?[]-^\`, 5)] = true
	}
	for key := range keys {
		if _, err := s.Set(t.Context(), "p", "n", kv.Value{Key: key, JSON: []byte("1")}); err != nil {
			t.Fatal(err)
		}
	}
	compared := 0
	for range 5000 {
		pattern := random(`abé*?[]-^\`, 7)
		if _, err := path.Match(pattern, ""); err != nil {
			continue
		}
		page, _, _, err := s.List(t.Context(), "p", "n", pattern, "", 100)
		if err != nil && strings.Contains(err.Error(), "wrong order") { // path.Match finds nothing with it
			continue
		} else if err != nil {
			t.Fatalf("%s: %v", pattern, err)
		}
		got := map[string]bool{}
		for _, k := range page.Keys {
			got[k.Key] = true
		}
		for key := range keys {
			want, err := path.Match(pattern, key)
			if err != nil {
				continue
			}
			if compared++; want != got[key] {
				t.Errorf("%s matches %s: %t, want %t", pattern, key, got[key], want)
			}
		}
	}
	if compared < 50_000 {
		t.Errorf("only %d were compared", compared)
	}
	// What path.Match does not know, or refuses.
	for pattern, want := range map[string]bool{`[!b]`: true, `[!a]`: false, `[-a]`: true, `[a-]`: true, `[!b-z]`: true} {
		page, _, _, err := s.List(t.Context(), "p", "n", pattern, "", 100)
		got := slices.ContainsFunc(page.Keys, func(k kv.Key) bool { return k.Key == "a" })
		if err != nil || got != want {
			t.Errorf("%s matches a: %t, want %t (%v)", pattern, got, want, err)
		}
	}
	for _, pattern := range []string{`[`, `a[b`, `[]`, `[^]`, `[b-a]`, `[\]`, `[a-`} {
		if _, _, _, err := s.List(t.Context(), "p", "n", pattern, "", 100); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}
