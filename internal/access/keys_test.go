package access_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store/storetest"
)

// clock is a clock that the test moves on.
type clock struct{ ms atomic.Int64 }

func (c *clock) now() time.Time { return time.UnixMilli(1_780_000_000_000 + c.ms.Load()) }

func (c *clock) pass(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// slowStore is a store that holds what it has read for a key until it is released.
type slowStore struct {
	kv.Store
	read, release chan struct{}
}

func (s *slowStore) GetKeys(ctx context.Context, space kv.Space, keys []string, nowMS int64) ([]kv.Entry, error) {
	e, err := s.Store.GetKeys(ctx, space, keys, nowMS)
	s.read <- struct{}{}
	<-s.release
	return e, err
}

func newKey(t *testing.T, keys *access.Keys) access.NewKey {
	t.Helper()
	k, err := keys.Create(t.Context(), "p", access.Key{Name: "k", Scopes: []access.Scope{access.Read}})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestRevokedElsewhere: a key that another server revoked ends within a second, however often it is
// used.
func TestRevokedElsewhere(t *testing.T) {
	t.Parallel()
	store := storetest.New(t)
	var c clock
	here, there := access.NewKeys(store, c.now), access.NewKeys(store, c.now)
	for _, pause := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond} {
		k := newKey(t, here)
		use := func() error { _, err := there.Check(t.Context(), k.ID, k.Secret); return err }
		if err := use(); err != nil {
			t.Fatal(err)
		}
		c.pass(pause)
		if _, err := here.Revoke(t.Context(), "p", k.ID); err != nil {
			t.Fatal(err)
		}
		revoked := c.now()
		err := use()
		for err == nil && c.now().Sub(revoked) <= time.Second {
			c.pass(pause)
			err = use()
		}
		if !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("used every %v, it works after %v: %v", pause, c.now().Sub(revoked), err)
		}
	}
}

// TestRevokedDuringLookup: a key that was read before it was revoked, by a store that took long to
// answer, is not trusted from then on.
func TestRevokedDuringLookup(t *testing.T) {
	t.Parallel()
	store := storetest.New(t)
	slow := &slowStore{store, make(chan struct{}, 10), make(chan struct{})}
	var c clock
	here, there := access.NewKeys(store, c.now), access.NewKeys(slow, c.now)
	k := newKey(t, here)
	first := make(chan error, 1)
	go func() { _, err := there.Check(t.Context(), k.ID, k.Secret); first <- err }()
	<-slow.read
	if _, err := here.Revoke(t.Context(), "p", k.ID); err != nil {
		t.Fatal(err)
	}
	c.pass(3 * time.Second)
	slow.release <- struct{}{}
	if err := <-first; err != nil { // it began before the key ended
		t.Fatal(err)
	}
	close(slow.release)
	if _, err := there.Check(t.Context(), k.ID, k.Secret); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("it works three seconds later: %v", err)
	}
}
