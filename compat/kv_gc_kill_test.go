package compat_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestKillGarbageCollection kills the server while full namespaces evict keys. No pinned key that
// was acknowledged is lost, and what the namespace counts is what it holds.
func TestKillGarbageCollection(t *testing.T) {
	t.Parallel()
	model := memoryModel(t, "short_term: {enabled: true}", "long_term: {enabled: false}",
		"lifecycle: {garbage_collection: {strategy: lru, max_memory_percent: 80, target_memory_percent: 60}}")
	env := []string{"HEARDLOG_STORE=sqlite:" + filepath.Join(t.TempDir(), "heardlog.db"), model, "HEARDLOG_MAX_WORKING_MB=1"}
	value := fmt.Sprintf("%q", strings.Repeat("x", 20_000))
	pinned, evicted := 0, 0
	for round := range 6 {
		s := start(t, env...)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				c := kvClient{}
				for n := 0; ; n++ {
					if _, ok := c.call(s.url, "PUT", fmt.Sprintf("full/%d-%d-%d", round, i, n), `{"value":`+value+`}`); !ok {
						return
					}
				}
			})
		}
		c := kvClient{}
		for n := 0; n < 3; {
			if _, ok := c.call(s.url, "PUT", fmt.Sprintf("full/pinned-%d", pinned), `{"pinned":true,"value":1}`); !ok {
				t.Fatal("a pinned key is refused")
			}
			pinned++
			answer, ok := c.call(s.url, "POST", "full/gc", `{"max_memory_percent":50,"target_memory_percent":10}`)
			var done struct {
				Count int `json:"evicted_count"`
			}
			if err := json.Unmarshal([]byte(answer), &done); !ok || err != nil {
				t.Fatal(answer, err)
			}
			if done.Count > 0 {
				n, evicted = n+1, evicted+done.Count
			}
		}
		s.kill()
		wg.Wait()
		s = start(t, env...)
		for i := range pinned {
			if got, ok := c.call(s.url, "GET", fmt.Sprintf("full/pinned-%d", i), ""); !ok || !strings.Contains(got, `"pinned":true`) {
				t.Errorf("pinned-%d is lost: %s", i, got)
			}
		}
		var page struct {
			Keys         []struct{ Bytes int64 }
			Total, Bytes int64
		}
		got, _ := c.call(s.url, "GET", "full?limit=1000", "")
		if err := json.Unmarshal([]byte(got), &page); err != nil {
			t.Fatal(got, err)
		}
		sum := int64(0)
		for _, k := range page.Keys {
			sum += k.Bytes
		}
		if page.Total != int64(len(page.Keys)) || page.Bytes != sum || sum > 1<<20 {
			t.Errorf("%d keys of %d bytes are counted, and %d of %d held", page.Total, page.Bytes, len(page.Keys), sum)
		}
		s.kill()
	}
	if evicted == 0 {
		t.Error("nothing was evicted")
	}
}
