package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/heardlog/heardlog/store/record"
)

// follower is a reader by record.Follow.
type follower struct {
	s      record.Store
	at     record.Space
	known  record.State
	bodies map[string]string
	resets int
}

// follow brings the follower up to date. It fails the test unless it then has n records, and was
// told so many times in all to forget what it had.
func (f *follower) follow(t *testing.T, ctx context.Context, n, resets int) {
	t.Helper()
	err := record.Follow(ctx, f.s, f.at, &f.known, f.take, func() { clear(f.bodies); f.resets++ })
	if err != nil || len(f.bodies) != n || f.resets != resets || f.known.Count != int64(n) {
		t.Fatalf("%v, %d records (%d by the state), %d resets; want %d and %d", err, len(f.bodies), f.known.Count, f.resets, n, resets)
	}
}

func (f *follower) take(list []record.Record, _ record.State) error {
	for _, r := range list {
		if delete(f.bodies, r.ID); !r.Deleted {
			f.bodies[r.ID] = string(r.Body)
		}
	}
	return nil
}

// testRecordFollow: a follower sees changes, deletions, sweeps and erasures.
func testRecordFollow(t *testing.T, ctx context.Context, s RecordStore) {
	f := follower{s: s, at: factsOf("ann"), bodies: map[string]string{}}
	f.follow(t, ctx, 0, 0)
	for i := range 450 { // three pages
		changeRecords(t, ctx, s, f.at, 1, setRecord(fmt.Sprint(i), "old"))
	}
	f.follow(t, ctx, 450, 0)
	changeRecords(t, ctx, s, f.at, 2, setRecord("0", "new"), deleteRecord("1"))
	f.follow(t, ctx, 449, 0)
	wantSame(t, "the changed record", f.bodies["0"], "new")

	late := follower{s: s, at: f.at, bodies: map[string]string{}}
	refused, parts := errors.New("refused"), 0
	err := record.Follow(ctx, s, f.at, &late.known, func(list []record.Record, now record.State) error {
		wantSame(t, "the count", now.Count, int64(449))
		if parts++; parts == 2 {
			return refused
		}
		return late.take(list, now)
	}, func() { late.resets++ })
	if !errors.Is(err, refused) || late.known.Rev == 0 || late.known.Rev >= f.known.Rev {
		t.Fatalf("%v, at revision %d of %d", err, late.known.Rev, f.known.Rev)
	}
	late.follow(t, ctx, 449, 0)

	changeRecords(t, ctx, s, f.at, 3, deleteRecord("2"))
	if err := s.SweepRecords(ctx, 4); err != nil { // forgets the deletions
		t.Fatal(err)
	}
	f.follow(t, ctx, 448, 1)
	f.follow(t, ctx, 448, 1)
	if _, err := s.EraseRecords(ctx, project, f.at.User, ""); err != nil {
		t.Fatal(err)
	}
	f.follow(t, ctx, 0, 2)
	changeRecords(t, ctx, s, f.at, 5, setRecord("a", "x"))
	late.follow(t, ctx, 1, 1)
	f.follow(t, ctx, 1, f.resets)
}
