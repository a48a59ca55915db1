package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/webhook"
)

// testRecordEvents: events are stored with the changes, for the endpoints that want them, and name
// no agent.
func testRecordEvents(t *testing.T, ctx context.Context, s RecordStore) {
	at := factsOf("ann")
	for _, e := range []webhook.Endpoint{
		{ID: "wants", Project: project, URL: "https://a.example", Events: []string{event.Name(event.Message)}},
		{ID: "not", Project: project, URL: "https://b.example", Events: []string{event.Name(event.Left)}},
		{ID: "other", Project: "other", URL: "https://c.example", Events: []string{event.Name(event.Message)}},
	} {
		if err := webhook.PutEndpoint(ctx, s, e); err != nil {
			t.Fatal(err)
		}
	}
	change := func(id string, limit record.Limit, c ...record.Change) error {
		ev := memory.Event{ID: id, Type: event.Message, CreatedMS: 10, Body: []byte(`{"n":1}`)}
		_, err := s.ChangeRecords(ctx, at, c, limit, []memory.Event{ev}, 10)
		return err
	}
	if err := change("e1", record.Limit{}, setRecord("a", "1"), setRecord("b", "1")); err != nil {
		t.Fatal(err)
	}
	wantCode(t, change("refused", record.Limit{Records: 2}, setRecord("c", "1")), fault.Quota)
	wantCode(t, change("e1", record.Limit{}, setRecord("c", "1")), fault.Conflict)
	if err := change("stale", record.Limit{}, record.Change{ID: "c", Body: []byte("1"), If: 7}); !errors.Is(err, record.ErrStale) {
		t.Errorf("a stale change: %v", err)
	}
	if err := change("e2", record.Limit{}); err != nil { // nothing but the event
		t.Error(err)
	}
	if _, st, err := s.Records(ctx, at, record.Query{Limit: 1}); err != nil || st != (record.State{Rev: 1, Count: 2, Bytes: 4}) {
		t.Errorf("%+v, %v", st, err)
	}
	page, err := s.Deliveries(ctx, webhook.DeliveryQuery{Project: project, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range page.Deliveries {
		got = append(got, d.EventID+">"+d.EndpointID+d.AgentID)
	}
	slices.Sort(got)
	wantSame(t, "deliveries", got, []string{"e1>wants", "e2>wants"})
	list, err := webhook.ClaimFrom(ctx, s, webhook.Claim{NowMS: 20, Limit: 10, Lease: time.Minute})
	if err != nil || len(list) != 2 {
		t.Fatalf("claimed %d, %v", len(list), err)
	}
	if d := list[0]; string(d.Body) != `{"n":1}` || d.AgentID != "" || d.Project != project || d.Type != event.Message {
		t.Errorf("claimed %+v", d)
	}
}

func testRecordErase(t *testing.T, ctx context.Context, s RecordStore) {
	fill := func() {
		for _, user := range []string{"", "ann", "bob"} {
			for _, name := range []string{"caller", "fact"} {
				changeRecords(t, ctx, s, record.Space{Project: project, Name: name, User: user}, 1, setRecord("a", "1"), setRecord("b", "1"))
				changeRecords(t, ctx, s, record.Space{Project: project, Name: name, User: user}, 1, deleteRecord("b"))
			}
		}
	}
	spaces := func() (out []string) {
		list, err := s.RecordSpaces(ctx, project, "", record.Space{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range list {
			out = append(out, at.Name+":"+at.User)
		}
		return out
	}
	erase := func(user, prefix string, want int, left ...string) {
		t.Helper()
		for _, want := range []int{want, 0} {
			if n, err := s.EraseRecords(ctx, project, user, prefix); err != nil || n != want {
				t.Errorf("erased %d of %q, %q: %v; want %d", n, user, prefix, err, want)
			}
		}
		wantSame(t, "left", spaces(), left)
	}
	fill()
	_, known, err := s.Records(ctx, factsOf("ann"), record.Query{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	erase("ann", "", 2, "caller:", "caller:bob", "fact:", "fact:bob")
	list, st, err := s.Records(ctx, factsOf("ann"), record.Query{ByRev: true, Limit: 10})
	if err != nil || len(list) != 0 || st.Count != 0 || st.Bytes != 0 || st.CompactedRev <= known.Rev || st.Rev < st.CompactedRev {
		t.Errorf("after the erasure: %v, %+v, %v; known was %+v", list, st, err, known)
	}
	if next := changeRecords(t, ctx, s, factsOf("ann"), 1, setRecord("a", "1")); next.Rev <= st.Rev || next.CompactedRev < st.CompactedRev {
		t.Errorf("the next change makes %+v of %+v", next, st)
	}
	erase("ann", "caller", 0, "caller:", "caller:bob", "fact:", "fact:ann", "fact:bob")
	erase("", "fact", 3, "caller:", "caller:bob")
	fill()
	erase("", "", 6)
	fill()
	if got := len(spaces()); got != 6 {
		t.Errorf("%d spaces can be used again", got)
	}
}

// testRecordEraseMany: more than one slice of rows and of bytes.
func testRecordEraseMany(t *testing.T, ctx context.Context, s RecordStore) {
	want := 0
	for page := range 3 {
		var changes []record.Change
		for i := range record.MaxChanges {
			changes = append(changes, setRecord(fmt.Sprint(page, ":", i), "x"))
		}
		changeRecords(t, ctx, s, factsOf("ann"), 1, changes...)
		changeRecords(t, ctx, s, factsOf("bob"), 1, setRecord(fmt.Sprint(page), strings.Repeat("x", record.MaxBytes-10)))
		want += len(changes) + 1
	}
	changeRecords(t, ctx, s, record.Space{Project: project, Name: "kept"}, 1, setRecord("a", "1"))
	if n, err := s.EraseRecords(ctx, project, "", "fact"); err != nil || n != want {
		t.Errorf("erased %d, %v; want %d", n, err, want)
	}
	list, err := s.RecordSpaces(ctx, project, "", record.Space{}, 10)
	if err != nil || len(list) != 1 || list[0].Name != "kept" {
		t.Errorf("left: %v, %v", list, err)
	}
}

// testRecordEraseRace: what is stored during an erasure goes or stays, and the counts are right.
func testRecordEraseRace(t *testing.T, ctx context.Context, s RecordStore) {
	at := factsOf("ann")
	last := int64(0)
	for range 10 {
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				before := int64(0)
				for i := range 10 {
					st, err := s.ChangeRecords(ctx, at, []record.Change{setRecord(fmt.Sprint(w, i), "x")}, record.Limit{}, nil, 1)
					if err != nil || st.Rev <= before {
						t.Errorf("revision %d after %d, %v", st.Rev, before, err)
					}
					before = st.Rev
				}
			})
		}
		wg.Go(func() {
			if _, err := s.EraseRecords(ctx, project, "ann", ""); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		list, st, err := s.Records(ctx, at, record.Query{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		size := int64(0)
		for _, r := range list {
			size += r.Size()
		}
		if st.Count != int64(len(list)) || st.Bytes != size || st.Rev <= last {
			t.Errorf("%+v with %d records of %d bytes; was at %d", st, len(list), size, last)
		}
		last = st.Rev
	}
}

func testRecordSweep(t *testing.T, ctx context.Context, s RecordStore) {
	at := factsOf("ann")
	changeRecords(t, ctx, s, at, 10, setRecord("a", "1"), setRecord("b", "1"), setRecord("c", "1"))
	changeRecords(t, ctx, s, at, 20, deleteRecord("a"))
	changeRecords(t, ctx, s, at, 30, deleteRecord("b"))
	changeRecords(t, ctx, s, factsOf("bob"), 10, setRecord("a", "1"))
	bob := changeRecords(t, ctx, s, factsOf("bob"), 20, deleteRecord("a"))
	for _, step := range []struct {
		before, whole int64
		want          []string
	}{
		{20, 0, []string{"c", "-a", "-b"}}, {21, 2, []string{"c", "-b"}}, {21, 2, []string{"c", "-b"}}, {100, 3, []string{"c"}},
	} {
		if err := s.SweepRecords(ctx, step.before); err != nil {
			t.Fatal(err)
		}
		list, st, err := s.Records(ctx, at, record.Query{ByRev: true, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, "left", recordIDs(list), step.want)
		wantSame(t, "state", st, record.State{Rev: 3, Count: 1, Bytes: 2, CompactedRev: step.whole})
	}
	_, st, err := s.Records(ctx, factsOf("bob"), record.Query{Limit: 1})
	if err != nil || st.CompactedRev <= bob.Rev || st.Rev < st.CompactedRev || st.Count != 0 {
		t.Errorf("a space without records has %+v, %v; it had %+v", st, err, bob)
	}
	if next := changeRecords(t, ctx, s, factsOf("bob"), 40, setRecord("a", "1")); next.Rev <= st.Rev || next.CompactedRev < st.CompactedRev {
		t.Errorf("the next change makes %+v of %+v", next, st)
	}
}

// testRecordConcurrent: of changes decided on one revision one wins, no change is lost, and
// revisions have no gaps.
func testRecordConcurrent(t *testing.T, ctx context.Context, s RecordStore) {
	const writers, each = 8, 15
	at := factsOf("ann")
	changeRecords(t, ctx, s, at, 1, setRecord("sum", "0"))
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for done := 0; done < each; {
				r, err := s.Record(ctx, at, "sum")
				if err != nil {
					t.Error(err)
					return
				}
				var n int
				if _, err := fmt.Sscan(string(r.Body), &n); err != nil {
					t.Error(err)
				}
				err = tryRecords(ctx, s, at, record.Limit{}, record.Change{ID: "sum", Body: fmt.Append(nil, n+1), If: r.Rev}, setRecord(fmt.Sprint(w, ":", done), "x"))
				switch {
				case err == nil:
					done++
				case !errors.Is(err, record.ErrStale):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	r, err := s.Record(ctx, at, "sum")
	if err != nil || string(r.Body) != fmt.Sprint(writers*each) || r.Rev != writers*each+1 {
		t.Errorf("%s at %d, %v", r.Body, r.Rev, err)
	}
}

// testRecordFollowing: a reader by revision sees each change of concurrent writers.
func testRecordFollowing(t *testing.T, ctx context.Context, s RecordStore) {
	FollowRecords(t, ctx, factsOf("ann"), s, s, s)
}

// FollowRecords writes to a space through several stores, and reads it by revision through one: the
// reader must miss nothing.
func FollowRecords(t *testing.T, ctx context.Context, at record.Space, reader record.Store, writers ...record.Store) {
	const each = 40
	var wg sync.WaitGroup
	for w, s := range writers {
		for half := range 2 {
			wg.Go(func() {
				for i := half; i < each; i += 2 {
					if err := tryRecords(ctx, s, at, record.Limit{}, setRecord(fmt.Sprintf("%d:%d", w, i), "x"), setRecord(fmt.Sprintf("%d:%d+", w, i), "x")); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	seen := map[string]int64{}
	after := int64(0)
	for last := false; ; {
		select {
		case <-ended:
			last = true
		default:
		}
		list, st, err := reader.Records(ctx, at, record.Query{ByRev: true, AfterRev: after, Limit: 7})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			if r.Rev < after || r.Rev > after+1 {
				t.Errorf("revision %d comes after %d", r.Rev, after)
			}
			seen[r.ID], after = r.Rev, r.Rev
		}
		if last && after == st.Rev {
			break
		}
	}
	if want := 2 * each * len(writers); len(seen) != want || after != int64(each*len(writers)) {
		t.Errorf("the reader saw %d records up to revision %d, want %d", len(seen), after, want)
	}
}

func testRecordUsage(t *testing.T, ctx context.Context, s RecordStore) {
	used := func() int64 {
		list, err := s.Usage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range list {
			if u.Project == project {
				return u.Bytes
			}
		}
		return 0
	}
	changeRecords(t, ctx, s, factsOf("ann"), 1, setRecord("a", "123"))
	changeRecords(t, ctx, s, factsOf("bob"), 1, setRecord("a", "12345"))
	changeRecords(t, ctx, s, record.Space{Project: "other", Name: "fact"}, 1, setRecord("a", "1"))
	wantSame(t, "used", used(), int64(10))
	changeRecords(t, ctx, s, factsOf("ann"), 1, deleteRecord("a"))
	wantSame(t, "after a deletion", used(), int64(6))
	if _, err := s.EraseRecords(ctx, project, "", ""); err != nil {
		t.Fatal(err)
	}
	wantSame(t, "after the erasure", used(), int64(0))
}

func testRecordCanceled(t *testing.T, ctx context.Context, s RecordStore) {
	at := factsOf("ann")
	gone, cancel := context.WithCancel(ctx)
	cancel()
	wantCode(t, tryRecords(gone, s, at, record.Limit{}, setRecord("a", "1")), fault.Canceled)
	_, err := s.Record(gone, at, "a")
	wantCode(t, err, fault.Canceled)
	_, _, err = s.Records(gone, at, record.Query{Limit: 1})
	wantCode(t, err, fault.Canceled)
	_, err = s.RecordSpaces(gone, project, "", record.Space{}, 1)
	wantCode(t, err, fault.Canceled)
	_, err = s.EraseRecords(gone, project, "", "")
	wantCode(t, err, fault.Canceled)
	wantCode(t, s.SweepRecords(gone, 1), fault.Canceled)
	wantRecords(t, ctx, s, at, record.State{})
}
