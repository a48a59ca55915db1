package postgres_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// TestWorkingSealedLater checks that values stored before the database got its key are still read,
// and that the database does not open without the key.
func TestWorkingSealedLater(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	a := agent(1)
	limit := kv.Limit{Keys: 10, Bytes: 1000}
	put := func(s *store.Postgres, key string) {
		t.Helper()
		if err := kv.Put(t.Context(), s, kv.Space{Project: a.Project, Agent: a.ID}, kv.Entry{Key: key, Value: []byte(`"` + key + `"`), ExpiresMS: 10}, limit, 1); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, postgres.Options{URL: url})
	create(t, s, a)
	put(s, "a b/c")
	put(s, "d")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, postgres.Options{URL: url, SealKey: []byte("key")})
	put(s, "e")
	for _, key := range []string{"a b/c", "d", "e"} {
		if got, err := kv.Get(t.Context(), s, kv.Space{Project: a.Project, Agent: a.ID}, key, 1); err != nil || string(got.Value) != `"`+key+`"` {
			t.Errorf("%s: %q, %v", key, got.Value, err)
		}
	}
	if _, err := store.OpenPostgres(t.Context(), postgres.Options{URL: url}, engine.Options{}); err == nil || !strings.Contains(err.Error(), "encrypted") {
		t.Errorf("opened without the key: %v", err)
	}
}

// TestWorkingOfReplicas checks that the limit holds across all replicas that write to one agent,
// and that each sees what the others have stored.
func TestWorkingOfReplicas(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	a := agent(1)
	stores := []*store.Postgres{open(t, postgres.Options{URL: url}), open(t, postgres.Options{URL: url})}
	create(t, stores[0], a)
	limit := kv.Limit{Keys: 15, Bytes: 1000}
	var wg sync.WaitGroup
	stored := make([]int, 4)
	for w := range stored {
		wg.Go(func() {
			for i := range 10 {
				e := kv.Entry{Key: fmt.Sprint(w, "-", i), Value: []byte("1"), ExpiresMS: 10}
				switch err := kv.Put(t.Context(), stores[w%2], kv.Space{Project: a.Project, Agent: a.ID}, e, limit, 1); {
				case err == nil:
					stored[w]++
				case !fault.Is(err, fault.Quota):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i, s := range stores {
		page, err := s.ListKeys(t.Context(), kv.Space{Project: a.Project, Agent: a.ID}, "", 100, 1)
		if sum := stored[0] + stored[1] + stored[2] + stored[3]; err != nil || sum != limit.Keys || page.Total != limit.Keys || len(page.Keys) != limit.Keys {
			t.Errorf("store %d: %d stored, %d counted, %v; want %d", i, sum, page.Total, err, limit.Keys)
		}
	}
}
