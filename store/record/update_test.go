package record_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/storetest"
)

// calls counts the calls to a store, and runs others before the first change.
type calls struct {
	record.Store
	reads, changes int
	first          func()
}

func (c *calls) Record(ctx context.Context, at record.Space, id string) (record.Record, error) {
	c.reads++
	return c.Store.Record(ctx, at, id)
}

func (c *calls) ChangeRecords(ctx context.Context, at record.Space, list []record.Change, limit record.Limit, events []memory.Event, nowMS int64) (record.State, error) {
	if c.changes++; c.changes == 1 && c.first != nil {
		c.first()
	}
	return c.Store.ChangeRecords(ctx, at, list, limit, events, nowMS)
}

// TestUpdate: what is decided by a record is stored in pieces, and decided again if the record was
// changed meanwhile.
func TestUpdate(t *testing.T) {
	t.Parallel()
	store := storetest.New(t)
	at := record.Space{Project: "p", Name: "s"}
	body := func(id string) string {
		r, err := store.Record(t.Context(), at, id)
		if err != nil && !fault.Is(err, fault.NotFound) {
			t.Fatal(err)
		}
		return string(r.Body)
	}
	// add returns an update that adds a text to the records with some IDs.
	add := func(text string, ids ...string) record.Update {
		return record.Update{Space: at, IDs: ids, What: "the records", NowMS: 1, Decide: func(_ int, old record.Record) ([]byte, bool, error) {
			return append(slices.Clone(old.Body), text...), true, nil
		}}
	}
	apply := func(c *calls, u record.Update) int {
		t.Helper()
		n, err := u.Apply(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}

	c := &calls{Store: store}
	c.first = func() { apply(&calls{Store: store}, add("other ", "b")) }
	if n := apply(c, add("x", "a", "b")); n != 2 || c.changes != 2 || body("a") != "x" || body("b") != "other x" {
		t.Errorf("%d were changed in %d calls: a is %q, b is %q", n, c.changes, body("a"), body("b"))
	}

	var many []string
	for i := range record.MaxChanges + 88 {
		many = append(many, fmt.Sprint(i))
	}
	c = &calls{Store: store}
	if n := apply(c, add("x", many...)); n != len(many) || c.changes != 2 {
		t.Errorf("%d of %d were changed in %d calls", n, len(many), c.changes)
	}
	c = &calls{Store: store}
	if n := apply(c, add(strings.Repeat("x", record.MaxBytes*2/5), many[:5]...)); n != 5 || c.changes != 3 || len(body("4")) != record.MaxBytes*2/5+1 {
		t.Errorf("%d large ones were changed in %d calls", n, c.changes)
	}

	c = &calls{Store: store}
	u := add("x", "new1", "new2")
	u.Absent = func(i int) bool { return i == 0 }
	if n := apply(c, u); n != 2 || c.reads != 1 {
		t.Errorf("%d were added after reading %d", n, c.reads)
	}

	keep := add("", "a", "b", "unknown")
	keep.Decide = func(i int, _ record.Record) ([]byte, bool, error) { return nil, i != 0, nil }
	if n := apply(&calls{Store: store}, keep); n != 1 || body("a") != "x" || body("b") != "" {
		t.Errorf("%d were deleted: a is %q, b is %q", n, body("a"), body("b"))
	}
	c = &calls{Store: store}
	keep.Decide = func(int, record.Record) ([]byte, bool, error) { return nil, false, nil }
	if n := apply(c, keep); n != 0 || c.changes != 0 {
		t.Errorf("nothing is to change, and %d did in %d calls", n, c.changes)
	}

	refused := errors.New("refused")
	keep.Decide = func(i int, _ record.Record) ([]byte, bool, error) { return []byte("x"), true, refused }
	if n, err := keep.Apply(t.Context(), store); n != 0 || !errors.Is(err, refused) || body("b") != "" {
		t.Errorf("a refusal: %d, %v", n, err)
	}
	full := add("x", "one more")
	full.Limit.Records = 1
	if _, err := full.Apply(t.Context(), store); !fault.Is(err, fault.Quota) {
		t.Errorf("over the limit: %v", err)
	}
}
