package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/webhook"
)

// RecordStore is what RunRecords needs: a store of records with the webhooks that their events go
// to.
type RecordStore interface {
	record.Store
	webhook.Store
	Usage(ctx context.Context) ([]memory.Usage, error)
}

// RunRecords runs the contract of record.Store. open returns an empty store of the test's own and
// closes it when the test ends.
func RunRecords(t *testing.T, open func(*testing.T) RecordStore) {
	for name, test := range map[string]func(*testing.T, context.Context, RecordStore){
		"SetAndDelete": testRecordSet, "Bytes": testRecordBytes, "If": testRecordIf, "AllOrNone": testRecordAllOrNone, "Limit": testRecordLimit, "Bounds": testRecordBounds,
		"PagesByID": testRecordPagesByID, "PagesByRev": testRecordPagesByRev, "Spaces": testRecordSpaces, "Tenants": testRecordTenants,
		"Events": testRecordEvents, "Erase": testRecordErase, "EraseMany": testRecordEraseMany, "EraseRace": testRecordEraseRace, "Sweep": testRecordSweep,
		"Concurrent": testRecordConcurrent, "Follow": testRecordFollow, "Following": testRecordFollowing, "Usage": testRecordUsage, "Canceled": testRecordCanceled,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, t.Context(), open(t)) })
	}
}

// factsOf returns the space of a user.
func factsOf(user string) record.Space {
	return record.Space{Project: project, Name: "fact", User: user}
}

func setRecord(id, body string) record.Change {
	return record.Change{ID: id, Body: []byte(body), If: record.Any}
}

func deleteRecord(id string) record.Change { return record.Change{ID: id, If: record.Any} }

// changeRecords applies changes at a time and returns the state after them.
func changeRecords(t *testing.T, ctx context.Context, s record.Store, at record.Space, nowMS int64, changes ...record.Change) record.State {
	t.Helper()
	st, err := s.ChangeRecords(ctx, at, changes, record.Limit{}, nil, nowMS)
	if err != nil {
		t.Fatalf("change %+v: %v", at, err)
	}
	return st
}

// tryRecords applies changes and returns the error.
func tryRecords(ctx context.Context, s record.Store, at record.Space, limit record.Limit, changes ...record.Change) error {
	_, err := s.ChangeRecords(ctx, at, changes, limit, nil, 1)
	return err
}

// wantRecords wants the records and the state of a space, by ID.
func wantRecords(t *testing.T, ctx context.Context, s record.Store, at record.Space, state record.State, want ...record.Record) {
	t.Helper()
	list, st, err := s.Records(ctx, at, record.Query{Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "records", list, want)
	wantSame(t, "state", st, state)
}

// recordIDs returns the IDs of a list; deleted ones with a "-".
func recordIDs(list []record.Record) (out []string) {
	for _, r := range list {
		if r.Deleted {
			r.ID = "-" + r.ID
		}
		out = append(out, r.ID)
	}
	return out
}

func testRecordSet(t *testing.T, ctx context.Context, s RecordStore) {
	at := factsOf("ann")
	_, err := s.Record(ctx, at, "a")
	wantCode(t, err, fault.NotFound)
	wantRecords(t, ctx, s, at, record.State{})
	wantSame(t, "first", changeRecords(t, ctx, s, at, 10, setRecord("a", "one"), setRecord("b", "")), record.State{Rev: 1, Count: 2, Bytes: 5})
	wantSame(t, "second", changeRecords(t, ctx, s, at, 20, setRecord("a", "two!")), record.State{Rev: 2, Count: 2, Bytes: 6})
	a, b := record.Record{ID: "a", Rev: 2, UpdatedMS: 20, Body: []byte("two!")}, record.Record{ID: "b", Rev: 1, UpdatedMS: 10, Body: []byte{}}
	wantRecords(t, ctx, s, at, record.State{Rev: 2, Count: 2, Bytes: 6}, a, b)
	got, err := s.Record(ctx, at, "a")
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "record", got, a)
	wantSame(t, "deleted", changeRecords(t, ctx, s, at, 30, deleteRecord("a"), deleteRecord("none")), record.State{Rev: 3, Count: 1, Bytes: 1})
	wantSame(t, "deleted again", changeRecords(t, ctx, s, at, 40, deleteRecord("a"), deleteRecord("none")), record.State{Rev: 3, Count: 1, Bytes: 1})
	_, err = s.Record(ctx, at, "a")
	wantCode(t, err, fault.NotFound)
	wantRecords(t, ctx, s, at, record.State{Rev: 3, Count: 1, Bytes: 1}, b)
	list, _, err := s.Records(ctx, at, record.Query{ByRev: true, AfterRev: 1, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "by revision", list, []record.Record{{ID: "a", Rev: 3, UpdatedMS: 30, Deleted: true}})
	changeRecords(t, ctx, s, at, 50, setRecord("a", "three"))
	wantRecords(t, ctx, s, at, record.State{Rev: 4, Count: 2, Bytes: 7}, record.Record{ID: "a", Rev: 4, UpdatedMS: 50, Body: []byte("three")}, b)
}

// testRecordBytes: IDs and bodies are bytes, and the store's copies are its own.
func testRecordBytes(t *testing.T, ctx context.Context, s RecordStore) {
	at := record.Space{Project: "p\x00\xff", Name: "vector/é\U0001F600", User: "u\x00 \"%_"}
	id, body := "\x00\xff/é '", []byte("{\x00\xff}")
	want := bytes.Clone(body)
	changeRecords(t, ctx, s, at, 1, record.Change{ID: id, Body: body})
	body[0] = 'x'
	for range 2 {
		r, err := s.Record(ctx, at, id)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, "record", r, record.Record{ID: id, Rev: 1, UpdatedMS: 1, Body: want})
		r.Body[0] = 'y'
	}
	spaces, err := s.RecordSpaces(ctx, at.Project, "vector/", record.Space{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "spaces", spaces, []record.Space{at})
	big := strings.Repeat("é", record.MaxBytes/2-1)
	changeRecords(t, ctx, s, at, 2, setRecord("ab", big))
	if r, err := s.Record(ctx, at, "ab"); err != nil || string(r.Body) != big {
		t.Errorf("a large record has %d bytes, %v", len(r.Body), err)
	}
}

func testRecordIf(t *testing.T, ctx context.Context, s RecordStore) {
	at := factsOf("ann")
	try := func(id, body string, rev int64) error {
		c := record.Change{ID: id, If: rev}
		if body != "" {
			c.Body = []byte(body)
		}
		return tryRecords(ctx, s, at, record.Limit{}, c)
	}
	// Revisions 1, 2 and 3 end the first three rows.
	for i, tt := range []struct {
		id, body string
		rev      int64
		stale    bool
	}{
		{"a", "1", 1, true}, {"a", "", 1, true}, {"a", "", record.Absent, false}, {"a", "1", record.Absent, false},
		{"a", "2", record.Absent, true}, {"a", "2", 2, true}, {"a", "2", 1, false},
		{"a", "", 1, true}, {"a", "", record.Absent, true}, {"a", "", 2, false},
		{"a", "4", 3, true}, {"a", "", 3, true}, {"a", "4", record.Absent, false}, {"a", "5", record.Any, false}, {"a", "6", 5, false},
	} {
		if err := try(tt.id, tt.body, tt.rev); errors.Is(err, record.ErrStale) != tt.stale || !tt.stale && err != nil {
			t.Errorf("%d: %+v: %v", i, tt, err)
		}
	}
	wantRecords(t, ctx, s, at, record.State{Rev: 6, Count: 1, Bytes: 2}, record.Record{ID: "a", Rev: 6, UpdatedMS: 1, Body: []byte("6")})
}

func testRecordAllOrNone(t *testing.T, ctx context.Context, s RecordStore) {
	at := factsOf("ann")
	st := changeRecords(t, ctx, s, at, 1, setRecord("a", "1"), setRecord("b", "1"))
	err := tryRecords(ctx, s, at, record.Limit{}, setRecord("a", "2"), deleteRecord("b"), setRecord("c", "2"), record.Change{ID: "d", Body: []byte("2"), If: 1})
	if !errors.Is(err, record.ErrStale) {
		t.Errorf("a stale change: %v", err)
	}
	err = tryRecords(ctx, s, at, record.Limit{Records: 2}, setRecord("a", "2"), setRecord("c", "2"))
	wantCode(t, err, fault.Quota)
	wantRecords(t, ctx, s, at, st, record.Record{ID: "a", Rev: 1, UpdatedMS: 1, Body: []byte("1")}, record.Record{ID: "b", Rev: 1, UpdatedMS: 1, Body: []byte("1")})
}

func testRecordLimit(t *testing.T, ctx context.Context, s RecordStore) {
	at := factsOf("ann")
	for i, tt := range []struct {
		limit   record.Limit
		changes []record.Change
		ok      bool
	}{
		{record.Limit{Records: 1}, []record.Change{setRecord("a", "1"), setRecord("b", "1")}, false},
		{record.Limit{Records: 2}, []record.Change{setRecord("a", "1"), setRecord("b", "1")}, true},
		{record.Limit{Records: 2}, []record.Change{setRecord("c", "1")}, false},
		{record.Limit{Records: 2}, []record.Change{setRecord("c", "1"), deleteRecord("b")}, true},
		{record.Limit{Records: 1}, []record.Change{setRecord("c", "2")}, true}, // over the limit, but it does not grow
		{record.Limit{Bytes: 4}, []record.Change{setRecord("c", "22")}, false},
		{record.Limit{Bytes: 5}, []record.Change{setRecord("c", "22")}, true},
		{record.Limit{Bytes: 2}, []record.Change{setRecord("c", "33")}, true},
		{record.Limit{Bytes: 2}, []record.Change{setRecord("c", "4")}, true},
		{record.Limit{Bytes: 2, Records: 1}, []record.Change{deleteRecord("c"), deleteRecord("a")}, true},
		{record.Limit{Bytes: 2, Records: 1}, []record.Change{setRecord("a", "")}, true},
	} {
		if err := tryRecords(ctx, s, at, tt.limit, tt.changes...); tt.ok && err != nil || !tt.ok && !fault.Is(err, fault.Quota) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func testRecordBounds(t *testing.T, ctx context.Context, s RecordStore) {
	at := factsOf("ann")
	many := make([]record.Change, record.MaxChanges+1)
	for i := range many {
		many[i] = setRecord(fmt.Sprintf("%04d", i), "")
	}
	long := record.Space{Project: project, Name: strings.Repeat("n", record.MaxName), User: strings.Repeat("\x00", record.MaxUser)}
	for name, tt := range map[string]struct {
		at      record.Space
		changes []record.Change
		want    fault.Code
	}{
		"no name":      {record.Space{Project: project}, nil, fault.Invalid},
		"an odd name":  {record.Space{Project: project, Name: "a\x00"}, nil, fault.Invalid},
		"a long name":  {record.Space{Project: project, Name: long.Name + "n"}, nil, fault.Invalid},
		"a long user":  {record.Space{Project: project, Name: "n", User: long.User + "u"}, nil, fault.Invalid},
		"no ID":        {at, []record.Change{setRecord("", "1")}, fault.Invalid},
		"a long ID":    {at, []record.Change{setRecord(strings.Repeat("i", record.MaxID+1), "1")}, fault.Invalid},
		"an ID twice":  {at, []record.Change{setRecord("a", "1"), deleteRecord("a")}, fault.Invalid},
		"many changes": {at, many, fault.TooLarge},
		"many bytes":   {at, []record.Change{setRecord("a", strings.Repeat("x", record.MaxBytes))}, fault.TooLarge},
	} {
		if _, err := s.ChangeRecords(ctx, tt.at, tt.changes, record.Limit{}, nil, 1); !fault.Is(err, tt.want) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
	if st := changeRecords(t, ctx, s, at, 1, many[1:]...); st.Count != record.MaxChanges {
		t.Errorf("the largest change stored %d records", st.Count)
	}
	changeRecords(t, ctx, s, long, 1, setRecord(strings.Repeat("\x00", record.MaxID), "1"))
	if spaces, err := s.RecordSpaces(ctx, project, "n", record.Space{}, 1); err != nil || !slices.Equal(spaces, []record.Space{long}) {
		t.Errorf("the longest space: %v", err)
	}
}

func testRecordPagesByID(t *testing.T, ctx context.Context, s RecordStore) {
	at := factsOf("ann")
	want := []string{"1", "10", "2", "A", "B b", "Z", "a", "a/b", "z", "é", "\uFFFD", "\U0001F600"}
	for _, i := range []int{5, 3, 11, 0, 2, 7, 9, 1, 4, 6, 10, 8} {
		changeRecords(t, ctx, s, at, 1, setRecord(want[i], "x"), setRecord("gone"+want[i], "x"))
	}
	for _, id := range want {
		changeRecords(t, ctx, s, at, 1, deleteRecord("gone"+id))
	}
	var got []string
	for after, n := "", 0; ; n++ {
		list, st, err := s.Records(ctx, at, record.Query{AfterID: after, Limit: 5})
		if err != nil || st.Count != int64(len(want)) || n > 3 || len(list) > 5 {
			t.Fatalf("page %d: %v, %+v, %v", n, recordIDs(list), st, err)
		}
		if len(list) == 0 {
			break
		}
		got, after = append(got, recordIDs(list)...), list[len(list)-1].ID
	}
	wantSame(t, "ids", got, want)
}

// testRecordPagesByRev: a page never ends within a revision.
func testRecordPagesByRev(t *testing.T, ctx context.Context, s RecordStore) {
	at := factsOf("ann")
	changeRecords(t, ctx, s, at, 1, setRecord("a", "1"), setRecord("b", "1"), setRecord("c", "1"))
	changeRecords(t, ctx, s, at, 1, setRecord("d", "1"))
	changeRecords(t, ctx, s, at, 1, deleteRecord("b"), setRecord("e", "1"))
	changeRecords(t, ctx, s, at, 1, setRecord("a", "2"))
	for _, tt := range []struct {
		after int64
		limit int
		want  []string
	}{
		{0, 1, []string{"c"}}, {0, 2, []string{"c", "d"}}, {0, 3, []string{"c", "d", "-b", "e"}}, {0, 5, []string{"c", "d", "-b", "e", "a"}}, {0, 50, []string{"c", "d", "-b", "e", "a"}},
		{1, 1, []string{"d"}}, {2, 1, []string{"-b", "e"}}, {3, 9, []string{"a"}}, {4, 9, nil}, {5, 9, nil},
	} {
		list, st, err := s.Records(ctx, at, record.Query{ByRev: true, AfterRev: tt.after, Limit: tt.limit})
		if err != nil || st != (record.State{Rev: 4, Count: 4, Bytes: 8}) {
			t.Fatalf("%+v, %v", st, err)
		}
		wantSame(t, fmt.Sprintf("%d after %d", tt.limit, tt.after), recordIDs(list), tt.want)
	}
}

func testRecordSpaces(t *testing.T, ctx context.Context, s RecordStore) {
	want := []record.Space{}
	for _, name := range []string{"fact", "fact%", "fact.history", "fact_", "vector/a", "vector/b"} {
		for _, user := range []string{"", "B", "a", "é"} {
			want = append(want, record.Space{Project: project, Name: name, User: user})
		}
	}
	for _, at := range want {
		changeRecords(t, ctx, s, at, 1, setRecord("a", "1"))
	}
	empty := factsOf("without records")
	changeRecords(t, ctx, s, empty, 1, setRecord("a", "1"))
	changeRecords(t, ctx, s, empty, 1, deleteRecord("a"))
	changeRecords(t, ctx, s, record.Space{Project: "other", Name: "fact"}, 1, setRecord("a", "1"))
	read := func(prefix string, limit int) (out []record.Space) {
		for after := (record.Space{}); ; {
			list, err := s.RecordSpaces(ctx, project, prefix, after, limit)
			if err != nil || len(list) > limit {
				t.Fatalf("%d spaces, %v", len(list), err)
			}
			if len(list) == 0 {
				return out
			}
			out, after = append(out, list...), list[len(list)-1]
		}
	}
	wantSame(t, "all", read("", 5), want)
	wantSame(t, "vectors", read("vector/", 1), want[16:])
	wantSame(t, "an underscore is not a wildcard", read("fact_", 100), want[12:16])
	wantSame(t, "none", read("x", 100), []record.Space(nil))
}

func testRecordTenants(t *testing.T, ctx context.Context, s RecordStore) {
	p, q := record.Space{Project: "p", Name: "fact", User: "u"}, record.Space{Project: "q", Name: "fact", User: "u"}
	for _, at := range []record.Space{p, {Project: "p", Name: "fact", User: "v"}, {Project: "p", Name: "other", User: "u"}, {Project: "p", Name: "fact"}} {
		changeRecords(t, ctx, s, at, 1, setRecord("a", at.Name+at.User))
	}
	wantRecords(t, ctx, s, q, record.State{})
	wantRecords(t, ctx, s, p, record.State{Rev: 1, Count: 1, Bytes: 6}, record.Record{ID: "a", Rev: 1, UpdatedMS: 1, Body: []byte("factu")})
	changeRecords(t, ctx, s, q, 1, deleteRecord("a"), setRecord("b", ""))
	if n, err := s.EraseRecords(ctx, "q", "u", ""); err != nil || n != 1 {
		t.Errorf("erased %d, %v", n, err)
	}
	wantRecords(t, ctx, s, p, record.State{Rev: 1, Count: 1, Bytes: 6}, record.Record{ID: "a", Rev: 1, UpdatedMS: 1, Body: []byte("factu")})
}
