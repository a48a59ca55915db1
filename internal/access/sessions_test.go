package access_test

import (
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/storetest"
)

// TestSessionIdle: a session ends when it is not used on any server for its idle limit, and makes
// room then. One in use goes on to its end.
func TestSessionIdle(t *testing.T) {
	t.Parallel()
	store := storetest.New(t)
	var c clock
	here, there := access.NewSessions(store, c.now, time.Hour), access.NewSessions(store, c.now, time.Hour)
	begin := func() string {
		t.Helper()
		k, err := here.Create(t.Context(), "p", access.Key{Name: "k", Scopes: []access.Scope{access.Read}, ExpiresMS: c.now().Add(12 * time.Hour).UnixMilli()})
		if err != nil {
			t.Fatal(err)
		}
		return k.Secret
	}
	check := func(ks *access.Keys, secret string) error {
		_, err := ks.Check(t.Context(), "", secret)
		return err
	}
	used, unused := begin(), begin()
	for hours := 0.0; hours < 11.5; hours += 0.5 {
		c.pass(30 * time.Minute)
		if err := check(there, used); err != nil {
			t.Fatalf("in use for %v hours: %v", hours, err)
		}
	}
	if err := check(here, unused); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("not used for hours: %v", err)
	}
	c.pass(time.Hour)
	if err := check(here, used); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("after its end: %v", err)
	}
	for range access.MaxKeys - 2 {
		begin()
	}
	begin() // in place of one that has ended
	last := begin()
	if _, err := here.Revoke(t.Context(), "p", access.KeyID(last)); err != nil {
		t.Fatal(err)
	}
	c.pass(time.Second)
	if err := check(there, last); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("revoked: %v", err)
	}
}
