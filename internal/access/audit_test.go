package access_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store/storetest"
)

// small is a store with room for 100 acts, which fills sooner than one for access.MaxActs.
type small struct{ kv.Store }

const room = 100

func (s small) PutKeys(ctx context.Context, space kv.Space, e []kv.Entry, limit kv.Limit, nowMS int64) error {
	if limit.Keys == access.MaxActs {
		limit.Keys = room
	}
	return s.Store.PutKeys(ctx, space, e, limit, nowMS)
}

// TestEndpointsPushNothingOut: however often endpoints are changed, acts on keys stay.
func TestEndpointsPushNothingOut(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_780_000_000, 0)
	audit := &access.Audit{Store: small{storetest.New(t)}, Now: func() time.Time { now = now.Add(time.Millisecond); return now }}
	record := func(what string) {
		t.Helper()
		if err := audit.Record(t.Context(), "p", access.Act{What: what}); err != nil {
			t.Fatal(err)
		}
	}
	record("key.create")
	for range room + 15 {
		record("endpoint.update")
	}
	record("key.revoke")
	var got []string
	for cursor, first := "", true; first || cursor != ""; first = false {
		acts, next, err := audit.List(t.Context(), "p", cursor, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range acts {
			got = append(got, a.What)
		}
		cursor = next
	}
	if n := len(got); n > room+2 || n < room-8 || got[0] != "key.revoke" || got[1] != "endpoint.update" || got[n-1] != "key.create" {
		t.Errorf("%q", got)
	}
}

// TestAuditIsBounded: the newest acts are kept.
func TestAuditIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_780_000_000, 0)
	audit := &access.Audit{Store: small{storetest.New(t)}, Now: func() time.Time { now = now.Add(time.Millisecond); return now }}
	for i := range room + 15 {
		if err := audit.Record(t.Context(), "p", access.Act{What: "key.create", On: fmt.Sprint(i)}); err != nil {
			t.Fatal(i, err)
		}
	}
	n, last := 0, ""
	for cursor, first := "", true; first || cursor != ""; first = false {
		acts, next, err := audit.List(t.Context(), "p", cursor, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range acts {
			if want := fmt.Sprint(room + 14 - n); a.On != want {
				t.Fatalf("act %d is %s, want %s", n, a.On, want)
			}
			n, last = n+1, a.On
		}
		cursor = next
	}
	if n > room || n < room-10 {
		t.Errorf("%d acts are kept, the last is %s", n, last)
	}
}
