package storetest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
)

// WorkingStore is a store of working memories with the agents that they belong to.
type WorkingStore interface {
	memory.Ledger
	kv.Store
}

// RunWorking runs the contract of kv.Store; open gives an empty store of the test's own and closes
// it when the test ends.
func RunWorking(t *testing.T, open func(*testing.T) WorkingStore) {
	for name, test := range map[string]func(*testing.T, context.Context, WorkingStore){
		"PutAndGet": testWorkingPut, "Unknown": testWorkingUnknown, "Ended": testWorkingEnded, "Expired": testWorkingExpired, "Limit": testWorkingLimit,
		"RoomByExpiry": testWorkingRoom, "List": testWorkingList, "Clear": testWorkingClear, "Tenants": testWorkingTenants, "GoesWithAgent": testWorkingErase,
		"Sweep": testWorkingSweep, "Concurrent": testWorkingConcurrent, "EraseRace": testWorkingEraseRace, "Canceled": testWorkingCanceled, "Evict": testWorkingEvict,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, t.Context(), open(t)) })
	}
}

var wide = kv.Limit{Keys: 1000, Bytes: 1 << 30}

// entry is set at 1000 and lives until the given time.
func entry(key, value string, expiresMS int64) kv.Entry {
	return kv.Entry{Key: key, Value: []byte(value), UpdatedMS: 1000, ExpiresMS: expiresMS}
}

func putWorking(t *testing.T, ctx context.Context, s WorkingStore, a memory.Agent, e kv.Entry, nowMS int64) {
	t.Helper()
	if err := kv.Put(ctx, s, kv.Space{Project: a.Project, Agent: a.ID}, e, wide, nowMS); err != nil {
		t.Fatalf("put %s: %v", e.Key, err)
	}
}

// wantWorking wants a value under the key at the time; "" for none.
func wantWorking(t *testing.T, ctx context.Context, s WorkingStore, a memory.Agent, key, want string, nowMS int64) {
	t.Helper()
	got, err := kv.Get(ctx, s, kv.Space{Project: a.Project, Agent: a.ID}, key, nowMS)
	if want == "" {
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("%s at %d: %q, %v; want none", key, nowMS, got.Value, err)
		}
		return
	}
	if err != nil || string(got.Value) != want || got.Key != key {
		t.Errorf("%s at %d: %q, %v; want %q", key, nowMS, got.Value, err, want)
	}
}

// wantKeys wants a whole list, and its sums.
func wantKeys(t *testing.T, ctx context.Context, s WorkingStore, a memory.Agent, nowMS int64, want ...string) {
	t.Helper()
	page, err := s.ListKeys(ctx, kv.Space{Project: a.Project, Agent: a.ID}, "", 1000, nowMS)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	size := int64(0)
	for _, k := range page.Keys {
		got, size = append(got, k.Key), size+k.Bytes
	}
	wantSame(t, "keys", got, want)
	if page.Total != len(want) || page.Bytes != size {
		t.Errorf("%d keys of %d bytes are counted, %d of %d listed", page.Total, page.Bytes, len(want), size)
	}
}

func testWorkingPut(t *testing.T, ctx context.Context, s WorkingStore) {
	a := create(t, ctx, s, newAgent(1))
	wantWorking(t, ctx, s, a, "k", "", 1000)
	value := "{ \"a\" : [1.50, \"\\u0000 é \U0001F600\"],\n\"b\":null }"
	e := entry("k", value, 5000)
	putWorking(t, ctx, s, a, e, 1000)
	e.Value[0] = 'x' // the store's copy is its own
	got, err := kv.Get(ctx, s, kv.Space{Project: project, Agent: a.ID}, "k", 1000)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "entry", got, entry("k", value, 5000))
	got.Value[0] = 'y'
	wantWorking(t, ctx, s, a, "k", value, 1000)
	long := `"` + strings.Repeat("long ", 200_000) + `"`
	for i, v := range []string{long, "1", "null", long} {
		e := entry("k", v, 6000+int64(i))
		putWorking(t, ctx, s, a, e, 2000)
		got, err := kv.Get(ctx, s, kv.Space{Project: project, Agent: a.ID}, "k", 2000)
		if err != nil || got.ExpiresMS != e.ExpiresMS || !bytes.Equal(got.Value, e.Value) {
			t.Errorf("%d: %d bytes until %d, %v", i, len(got.Value), got.ExpiresMS, err)
		}
	}
	page, err := s.ListKeys(ctx, kv.Space{Project: project, Agent: a.ID}, "", 10, 2000)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "page", page, kv.Page{Keys: []kv.Key{{Key: "k", Bytes: int64(len(long)) + 1, UpdatedMS: 1000, ExpiresMS: 6003, UsedMS: 1000, Uses: 5}}, Total: 1, Bytes: int64(len(long)) + 1})
	for _, want := range []bool{true, false} {
		if found, err := s.DeleteKey(ctx, kv.Space{Project: project, Agent: a.ID}, "k", 2000); err != nil || found != want {
			t.Errorf("deleted %v, %v; want %v", found, err, want)
		}
	}
	wantKeys(t, ctx, s, a, 2000)
}

func testWorkingUnknown(t *testing.T, ctx context.Context, s WorkingStore) {
	id := newAgent(1).ID
	wantCode(t, kv.Put(ctx, s, kv.Space{Project: project, Agent: id}, entry("k", "1", 5000), wide, 1000), fault.NotFound)
	_, err := kv.Get(ctx, s, kv.Space{Project: project, Agent: id}, "k", 1000)
	wantCode(t, err, fault.NotFound)
	_, err = s.DeleteKey(ctx, kv.Space{Project: project, Agent: id}, "k", 1000)
	wantCode(t, err, fault.NotFound)
	_, err = s.ListKeys(ctx, kv.Space{Project: project, Agent: id}, "", 10, 1000)
	wantCode(t, err, fault.NotFound)
	_, err = s.ClearKeys(ctx, kv.Space{Project: project, Agent: id}, 1000)
	wantCode(t, err, fault.NotFound)
}

// testWorkingEnded: what an agent that has ended knows may be read and taken away, and nothing more
// is stored.
func testWorkingEnded(t *testing.T, ctx context.Context, s WorkingStore) {
	a := create(t, ctx, s, newAgent(1))
	putWorking(t, ctx, s, a, entry("k", "1", 5000), 1000)
	putWorking(t, ctx, s, a, entry("l", "2", 5000), 1000)
	update(t, ctx, s, a, end(memory.Stopped, 2000))
	wantCode(t, kv.Put(ctx, s, kv.Space{Project: project, Agent: a.ID}, entry("k", "3", 5000), wide, 3000), fault.Stopped)
	wantWorking(t, ctx, s, a, "k", "1", 3000)
	wantKeys(t, ctx, s, a, 3000, "k", "l")
	if found, err := s.DeleteKey(ctx, kv.Space{Project: project, Agent: a.ID}, "k", 3000); err != nil || !found {
		t.Errorf("deleted %v, %v", found, err)
	}
	if n, err := s.ClearKeys(ctx, kv.Space{Project: project, Agent: a.ID}, 3000); err != nil || n != 1 {
		t.Errorf("cleared %d, %v", n, err)
	}
}

// testWorkingExpired: from its end on an entry is absent for every call, before anything has swept
// it.
func testWorkingExpired(t *testing.T, ctx context.Context, s WorkingStore) {
	a := create(t, ctx, s, newAgent(1))
	for _, key := range []string{"a", "b", "c"} {
		putWorking(t, ctx, s, a, entry(key, "1", 5000), 1000)
	}
	putWorking(t, ctx, s, a, entry("d", "1", 9000), 1000)
	wantKeys(t, ctx, s, a, 4999, "a", "b", "c", "d")
	// The times go forwards: a store may erase what it sees to be over.
	wantWorking(t, ctx, s, a, "a", "1", 4999)
	wantWorking(t, ctx, s, a, "a", "", 5000)
	wantKeys(t, ctx, s, a, 5000, "d")
	if found, err := s.DeleteKey(ctx, kv.Space{Project: project, Agent: a.ID}, "b", 5000); err != nil || found {
		t.Errorf("deleted what has expired: %v, %v", found, err)
	}
	putWorking(t, ctx, s, a, entry("c", "2", 8000), 5000) // starts again
	wantWorking(t, ctx, s, a, "c", "2", 5000)
	wantKeys(t, ctx, s, a, 5000, "c", "d")
	if n, err := s.ClearKeys(ctx, kv.Space{Project: project, Agent: a.ID}, 8000); err != nil || n != 1 {
		t.Errorf("cleared %d, %v; want 1", n, err)
	}
	wantKeys(t, ctx, s, a, 8000)
}

func testWorkingLimit(t *testing.T, ctx context.Context, s WorkingStore) {
	a, b := create(t, ctx, s, newAgent(1)), create(t, ctx, s, newAgent(2))
	limit := kv.Limit{Keys: 3, Bytes: 20}
	put := func(key string, n int) error {
		return kv.Put(ctx, s, kv.Space{Project: project, Agent: a.ID}, entry(key, strings.Repeat("1", n), 5000), limit, 1000)
	}
	for _, err := range []error{put("a", 9), put("b", 9)} { // 20 bytes with the keys
		if err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, put("c", 1), fault.Quota)
	wantCode(t, put("b", 10), fault.Quota)
	wantWorking(t, ctx, s, a, "b", strings.Repeat("1", 9), 1000)
	if err := put("b", 1); err != nil {
		t.Errorf("a smaller one: %v", err)
	}
	if err := put("c", 1); err != nil {
		t.Errorf("into the room that it made: %v", err)
	}
	wantCode(t, put("d", 0), fault.Quota) // a fourth key
	if err := put("c", 2); err != nil {
		t.Errorf("replace at the limit of keys: %v", err)
	}
	if err := kv.Put(ctx, s, kv.Space{Project: project, Agent: b.ID}, entry("a", strings.Repeat("1", 19), 5000), limit, 1000); err != nil {
		t.Errorf("another agent's limit: %v", err)
	}
	if _, err := s.DeleteKey(ctx, kv.Space{Project: project, Agent: a.ID}, "a", 1000); err != nil {
		t.Fatal(err)
	}
	if err := put("d", 9); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
	if _, err := s.ClearKeys(ctx, kv.Space{Project: project, Agent: a.ID}, 1000); err != nil {
		t.Fatal(err)
	}
	if err := put("e", 19); err != nil {
		t.Errorf("after a clear: %v", err)
	}
}

// testWorkingRoom: what has expired takes no room, however much it is.
func testWorkingRoom(t *testing.T, ctx context.Context, s WorkingStore) {
	a := create(t, ctx, s, newAgent(1))
	limit := kv.Limit{Keys: 700, Bytes: 8 << 20}
	big := strings.Repeat("1", 900_000)
	for i := range 700 { // more than a slice of rows and of bytes
		value := "1"
		if i < 8 {
			value = big
		}
		if err := kv.Put(ctx, s, kv.Space{Project: project, Agent: a.ID}, entry(fmt.Sprintf("%03d", i), value, 5000+int64(i%2)*1000), limit, 1000); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, kv.Put(ctx, s, kv.Space{Project: project, Agent: a.ID}, entry("new", "1", 9000), limit, 4999), fault.Quota)
	if err := kv.Put(ctx, s, kv.Space{Project: project, Agent: a.ID}, entry("new", "1", 9000), limit, 5000); err != nil {
		t.Errorf("half has expired: %v", err)
	}
	if page, err := s.ListKeys(ctx, kv.Space{Project: project, Agent: a.ID}, "", 1, 5000); err != nil || page.Total != 351 {
		t.Errorf("%d keys, %v", page.Total, err)
	}
	if err := kv.Put(ctx, s, kv.Space{Project: project, Agent: a.ID}, entry("new", strings.Repeat("1", 8<<20-3), 9000), limit, 6000); err != nil {
		t.Errorf("all has expired: %v", err)
	}
	wantKeys(t, ctx, s, a, 6000, "new")
}

func testWorkingList(t *testing.T, ctx context.Context, s WorkingStore) {
	a := create(t, ctx, s, newAgent(1))
	want := []string{"1", "10", "2", "A", "B b", "Z", "a", "a/b", "z", "é", "\uFFFD", "\U0001F600"}
	for _, i := range []int{5, 3, 11, 0, 2, 7, 9, 1, 4, 6, 10, 8} {
		putWorking(t, ctx, s, a, entry(want[i], "1", 5000), 1000)
	}
	var got []string
	for after, n := "", 0; ; n++ {
		page, err := s.ListKeys(ctx, kv.Space{Project: project, Agent: a.ID}, after, 5, 1000)
		if err != nil || page.Total != len(want) || n > 3 {
			t.Fatalf("page %d: %+v, %v", n, page, err)
		}
		if len(page.Keys) == 0 {
			break
		}
		for _, k := range page.Keys {
			got, after = append(got, k.Key), k.Key
		}
	}
	wantSame(t, "keys", got, want)
}

func testWorkingClear(t *testing.T, ctx context.Context, s WorkingStore) {
	a, b := create(t, ctx, s, newAgent(1)), create(t, ctx, s, newAgent(2))
	putWorking(t, ctx, s, b, entry("k", "1", 5000), 1000)
	for i := range 3 { // more than one slice of bytes
		putWorking(t, ctx, s, a, entry(fmt.Sprint("big", i), strings.Repeat("1", 900_000), 5000), 1000)
	}
	putWorking(t, ctx, s, a, entry("small", "1", 5000), 1000)
	for _, want := range []int{4, 0} {
		if n, err := s.ClearKeys(ctx, kv.Space{Project: project, Agent: a.ID}, 1000); err != nil || n != want {
			t.Errorf("cleared %d, %v; want %d", n, err, want)
		}
	}
	wantKeys(t, ctx, s, a, 1000)
	wantKeys(t, ctx, s, b, 1000, "k")
}

func testWorkingTenants(t *testing.T, ctx context.Context, s WorkingStore) {
	a, foreign := newAgent(1), newAgent(1)
	foreign.Project = "other"
	create(t, ctx, s, a)
	create(t, ctx, s, foreign)
	putWorking(t, ctx, s, a, entry("k", `"ours"`, 5000), 1000)
	wantWorking(t, ctx, s, foreign, "k", "", 1000)
	putWorking(t, ctx, s, foreign, entry("k", `"theirs"`, 5000), 1000)
	wantWorking(t, ctx, s, a, "k", `"ours"`, 1000)
	if n, err := s.ClearKeys(ctx, kv.Space{Project: "other", Agent: a.ID}, 1000); err != nil || n != 1 {
		t.Errorf("cleared %d, %v", n, err)
	}
	wantWorking(t, ctx, s, a, "k", `"ours"`, 1000)
}

// testWorkingErase: a working memory goes with its agent, erased or past its retention, and one of
// the same id begins without it.
func testWorkingErase(t *testing.T, ctx context.Context, s WorkingStore) {
	for _, gone := range []func(a memory.Agent) error{
		func(a memory.Agent) error { return s.Erase(ctx, project, a.ID) },
		func(a memory.Agent) error {
			update(t, ctx, s, a, end(memory.Stopped, 1000))
			_, err := s.Sweep(ctx, 2000, 10)
			return err
		},
	} {
		a, b := create(t, ctx, s, newAgent(1)), newAgent(2)
		for i := range 5 {
			putWorking(t, ctx, s, a, entry(fmt.Sprint("k", i), strings.Repeat("1", 700_000), 9000), 1000)
		}
		if _, err := s.Head(ctx, project, b.ID); err != nil {
			create(t, ctx, s, b)
			putWorking(t, ctx, s, b, entry("k", "1", 9000), 1000)
		}
		if err := gone(a); err != nil {
			t.Fatal(err)
		}
		_, err := s.ListKeys(ctx, kv.Space{Project: project, Agent: a.ID}, "", 10, 1000)
		wantCode(t, err, fault.NotFound)
		wantWorking(t, ctx, s, a, "k0", "", 1000)
		wantKeys(t, ctx, s, b, 1000, "k")
		create(t, ctx, s, a)
		wantKeys(t, ctx, s, a, 1000)
		if err := s.Erase(ctx, project, a.ID); err != nil {
			t.Fatal(err)
		}
		if n, err := s.SweepKeys(ctx, 5000); err != nil || n != 0 {
			t.Errorf("%d rows were left behind, %v", n, err)
		}
	}
}

func testWorkingSweep(t *testing.T, ctx context.Context, s WorkingStore) {
	a, b := create(t, ctx, s, newAgent(1)), create(t, ctx, s, newAgent(2))
	for i := range 600 { // more than one slice
		putWorking(t, ctx, s, a, entry(fmt.Sprint(i), "1", 5000), 1000)
	}
	putWorking(t, ctx, s, b, entry("short", "1", 5000), 1000)
	putWorking(t, ctx, s, b, entry("long", "1", 5001), 1000)
	update(t, ctx, s, a, end(memory.Stopped, 2000)) // it expires for ended agents, too
	for _, step := range []struct {
		now  int64
		want int
	}{{4999, 0}, {5000, 601}, {5000, 0}, {5001, 1}} {
		if n, err := s.SweepKeys(ctx, step.now); err != nil || n != step.want {
			t.Errorf("swept %d at %d, %v; want %d", n, step.now, err, step.want)
		}
	}
	if err := kv.Put(ctx, s, kv.Space{Project: project, Agent: b.ID}, entry("new", "1", 9000), kv.Limit{Keys: 1, Bytes: 4}, 5001); err != nil {
		t.Errorf("what was swept still counts: %v", err)
	}
}

// testWorkingConcurrent: of many who write at once just as many get in as the limit lets, and each
// of them is found.
func testWorkingConcurrent(t *testing.T, ctx context.Context, s WorkingStore) {
	a := create(t, ctx, s, newAgent(1))
	const writers, each, most = 8, 10, 30
	limit := kv.Limit{Keys: most, Bytes: 1 << 20}
	stored := make([][]string, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				key := fmt.Sprintf("%d-%d", w, i)
				switch err := kv.Put(ctx, s, kv.Space{Project: project, Agent: a.ID}, entry(key, `"`+key+`"`, 5000), limit, 1000); {
				case err == nil:
					stored[w] = append(stored[w], key)
				case !fault.Is(err, fault.Quota):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, keys := range stored {
		sum += len(keys)
		for _, key := range keys {
			wantWorking(t, ctx, s, a, key, `"`+key+`"`, 1000)
		}
	}
	if page, err := s.ListKeys(ctx, kv.Space{Project: project, Agent: a.ID}, "", 1000, 1000); err != nil || sum != most || page.Total != most || len(page.Keys) != most {
		t.Errorf("%d were acknowledged, %d counted, %d listed, %v; want %d", sum, page.Total, len(page.Keys), err, most)
	}
}

// testWorkingEraseRace: a write while its agent is erased fails or goes with it.
func testWorkingEraseRace(t *testing.T, ctx context.Context, s WorkingStore) {
	for round := range 10 {
		a := create(t, ctx, s, newAgent(round))
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := range 10 {
					if err := kv.Put(ctx, s, kv.Space{Project: project, Agent: a.ID}, entry(fmt.Sprint(w, i), "1", 5000), wide, 1000); err != nil && !fault.Is(err, fault.NotFound) {
						t.Errorf("write while erasing: %v", err)
					}
				}
			})
		}
		wg.Go(func() {
			if err := s.Erase(ctx, project, a.ID); err != nil {
				t.Errorf("erase: %v", err)
			}
		})
		wg.Wait()
		create(t, ctx, s, newAgent(round))
		wantKeys(t, ctx, s, a, 1000)
	}
	if n, err := s.SweepKeys(ctx, 9000); err != nil || n != 0 {
		t.Errorf("%d rows were left behind, %v", n, err)
	}
}

func testWorkingCanceled(t *testing.T, ctx context.Context, s WorkingStore) {
	a := create(t, ctx, s, newAgent(1))
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	wantCode(t, kv.Put(ctx, s, kv.Space{Project: project, Agent: a.ID}, entry("k", "1", 5000), wide, 1000), fault.Canceled)
	_, err := kv.Get(ctx, s, kv.Space{Project: project, Agent: a.ID}, "k", 1000)
	wantCode(t, err, fault.Canceled)
	_, err = s.ListKeys(ctx, kv.Space{Project: project, Agent: a.ID}, "", 1, 1000)
	wantCode(t, err, fault.Canceled)
	_, err = s.SweepKeys(ctx, 1000)
	wantCode(t, err, fault.Canceled)
}
