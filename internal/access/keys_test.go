package access_test

import (
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/storetest"
)

// TestRevokedElsewhere: a key that another server revoked ends within a second, however often it is
// used.
func TestRevokedElsewhere(t *testing.T) {
	t.Parallel()
	store := storetest.New()
	here, there := access.NewKeys(store, time.Now), access.NewKeys(store, time.Now)
	for _, pause := range []time.Duration{0, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond} {
		k, err := here.Create(t.Context(), "p", access.Key{Name: "k", Scopes: []access.Scope{access.Read}})
		if err != nil {
			t.Fatal(err)
		}
		tick := time.NewTicker(max(pause, 1))
		use := func() error { <-tick.C; _, err := there.Check(t.Context(), k.ID, k.Secret); return err }
		if err := use(); err != nil {
			t.Fatal(err)
		}
		if _, err := here.Revoke(t.Context(), "p", k.ID); err != nil {
			t.Fatal(err)
		}
		revoked := time.Now()
		asked := revoked
		for err = use(); err == nil; err = use() {
			if asked = time.Now(); asked.Sub(revoked) > time.Second {
				break
			}
		}
		tick.Stop()
		if !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("used every %v, it works after %v", pause, asked.Sub(revoked))
		}
	}
}
