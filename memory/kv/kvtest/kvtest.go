// Package kvtest is the contract of kv.Store for namespaces, as tests that every provider passes,
// and starts the servers that they run on.
package kvtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/kv"
)

// Run runs the contract. open returns an empty store of the test's own and closes it when the test
// ends. cache names a store that cannot list and has no limits, as memcached.
func Run(t *testing.T, cache bool, open func(*testing.T) kv.Store) {
	tests := map[string]func(*testing.T, context.Context, kv.Store){
		"PutAndGet": testPut, "Update": testUpdate, "ConcurrentUpdates": testConcurrent, "Expired": testExpired, "Delete": testDelete, "Spaces": testSpaces, "Canceled": testCanceled,
	}
	if cache {
		tests["NoOnce"] = testNoOnce
	} else {
		for name, test := range map[string]func(*testing.T, context.Context, kv.Store){"Once": testOnce, "Limit": testLimit, "List": testList, "Sweep": testSweep, "Clear": testClear} {
			tests[name] = test
		}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, t.Context(), open(t)) })
	}
}

// start is a time in 2100, so that no server's own clock ends an entry before the test does.
const start = 4_102_444_800_000

var (
	space = kv.Space{Project: "p", Name: "a space/é"}
	wide  = kv.Limit{Keys: 1000, Bytes: 1 << 30}
)

func entry(key, value string) kv.Entry {
	return kv.Entry{Key: key, Value: []byte(value), UpdatedMS: start, ExpiresMS: kv.Never}
}

func put(t *testing.T, ctx context.Context, s kv.Store, at kv.Space, entries ...kv.Entry) {
	t.Helper()
	if err := s.PutKeys(ctx, at, entries, wide, start); err != nil {
		t.Fatal(err)
	}
}

// want wants the entries of keys, and nothing else, at a time.
func want(t *testing.T, ctx context.Context, s kv.Store, at kv.Space, nowMS int64, keys []string, entries ...kv.Entry) {
	t.Helper()
	got, err := s.GetKeys(ctx, at, keys, nowMS)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) == 0 && len(entries) == 0 {
		return
	}
	if d := cmp.Diff(entries, got); d != "" {
		t.Errorf("entries (-want +got):\n%s", d)
	}
}

func testPut(t *testing.T, ctx context.Context, s kv.Store) {
	a, b := entry("a b/é", "{ \"a\" : [1.50, \"\\u0000 é \U0001F600\"],\r\n\"b\":null }"), entry("B", `"`+strings.Repeat("long ", 100_000)+`"`)
	b.ExpiresMS = start + 100_000
	want(t, ctx, s, space, start, []string{"B", "none"})
	put(t, ctx, s, space, a, b)
	want(t, ctx, s, space, start, []string{"B", "none", a.Key}, b, a)
	b.Value, b.UpdatedMS, b.ExpiresMS = []byte("1"), start+1, kv.Never
	put(t, ctx, s, space, b)
	want(t, ctx, s, space, start+200_000, []string{a.Key, "B"}, a, b)
}

func testUpdate(t *testing.T, ctx context.Context, s kv.Store) {
	update := func(decide func(old *kv.Entry) (kv.Entry, error)) (kv.Entry, error) {
		return s.UpdateKey(ctx, space, "k", kv.Once{}, wide, start+1, decide)
	}
	first, err := update(func(old *kv.Entry) (kv.Entry, error) {
		if old != nil {
			t.Errorf("there is %+v", old)
		}
		return entry("k", "1"), nil
	})
	if err != nil || string(first.Value) != "1" {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := update(func(old *kv.Entry) (kv.Entry, error) {
		if old == nil || string(old.Value) != "1" || old.ExpiresMS != kv.Never {
			t.Fatalf("there is %+v", old)
		}
		e := *old
		e.Value, e.UpdatedMS, e.ExpiresMS = []byte("2"), start+1, start+5000
		return e, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if _, err := update(func(*kv.Entry) (kv.Entry, error) { return kv.Entry{}, broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	want(t, ctx, s, space, start+1, []string{"k"}, second)
	if err := kv.PutNew(ctx, s, space, entry("k", "3"), wide, start+1); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	if err := kv.PutNew(ctx, s, space, entry("k", "4"), wide, start+5000); err != nil {
		t.Errorf("once it has ended: %v", err)
	}
}

// testConcurrent: of updates at the same time, none is lost.
func testConcurrent(t *testing.T, ctx context.Context, s kv.Store) {
	const workers, each = 6, 20
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				_, err := s.UpdateKey(ctx, space, "sum", kv.Once{}, wide, start, func(old *kv.Entry) (kv.Entry, error) {
					n := 0
					if old != nil {
						n, _ = strconv.Atoi(string(old.Value))
					}
					return entry("sum", strconv.Itoa(n+1)), nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, err := kv.Get(ctx, s, space, "sum", start)
	if err != nil || string(got.Value) != strconv.Itoa(workers*each) {
		t.Errorf("%s, %v", got.Value, err)
	}
}

// testOnce: updates with the same ID count once, at the same time, after others, and after the
// entry was deleted.
func testOnce(t *testing.T, ctx context.Context, s kv.Store) {
	add := func(id, request string, nowMS int64) (kv.Entry, error) {
		return s.UpdateKey(ctx, space, "sum", kv.Once{ID: id, Request: request}, wide, nowMS, func(old *kv.Entry) (kv.Entry, error) {
			n := 0
			if old != nil {
				n, _ = strconv.Atoi(string(old.Value))
			}
			e := entry("sum", strconv.Itoa(n+1))
			e.UpdatedMS, e.ExpiresMS = nowMS, start+1_000_000_000
			return e, nil
		})
	}
	sum := func(want string) {
		t.Helper()
		if got, err := kv.Get(ctx, s, space, "sum", start); err != nil || string(got.Value) != want {
			t.Errorf("%s, %v; want %s", got.Value, err, want)
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if e, err := add("first", "add 1", start); err != nil || string(e.Value) != "1" {
				t.Errorf("%s, %v", e.Value, err)
			}
		})
	}
	wg.Wait()
	sum("1")
	if _, err := add("second", "add 1", start+1); err != nil {
		t.Fatal(err)
	}
	if _, err := add("", "", start+2); err != nil {
		t.Fatal(err)
	}
	e, err := add("first", "add 1", start+3)
	if err != nil || string(e.Value) != "1" || e.Key != "sum" || e.UpdatedMS != start || e.ExpiresMS != start+1_000_000_000 {
		t.Errorf("a repeat: %+v, %v", e, err)
	}
	sum("3")
	if _, err := add("first", "add 2", start+3); !fault.Is(err, fault.Conflict) {
		t.Errorf("another request: %v", err)
	}
	page, err := s.ListKeys(ctx, space, "", 10, start+3)
	if err != nil || page.Total != 1 || len(page.Keys) != 1 || page.Bytes != 4 {
		t.Errorf("%+v, %v", page, err)
	}
	if names, err := s.Spaces(ctx, space.Project); err != nil || len(names) != 1 {
		t.Errorf("%q, %v", names, err)
	}
	put(t, ctx, s, kv.Space{Project: "q", Name: "n"}, entry("k", "1"))
	list, err := s.Spaces(ctx, "")
	slices.SortFunc(list, func(a, b kv.Space) int { return strings.Compare(a.Project, b.Project) })
	if d := cmp.Diff([]kv.Space{space, {Project: "q", Name: "n"}}, list); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	if _, err := s.DeleteKey(ctx, space, "sum", start+4); err != nil {
		t.Fatal(err)
	}
	if e, err := add("first", "add 1", start+5); err != nil || string(e.Value) != "1" {
		t.Errorf("a repeat after the end: %s, %v", e.Value, err)
	}
	want(t, ctx, s, space, start+5, []string{"sum"})
}

// testNoOnce: a store that cannot store an entry and a mark together says so.
func testNoOnce(t *testing.T, ctx context.Context, s kv.Store) {
	_, err := s.UpdateKey(ctx, space, "sum", kv.Once{ID: "first"}, wide, start, func(*kv.Entry) (kv.Entry, error) { return entry("sum", "1"), nil })
	if !fault.Is(err, fault.Unsupported) {
		t.Error(err)
	}
	want(t, ctx, s, space, start, []string{"sum"})
}

func testExpired(t *testing.T, ctx context.Context, s kv.Store) {
	e := entry("k", "1")
	e.ExpiresMS = start + 1000
	put(t, ctx, s, space, e)
	want(t, ctx, s, space, start+999, []string{"k"}, e)
	want(t, ctx, s, space, start+1000, []string{"k"})
	if found, err := s.DeleteKey(ctx, space, "k", start+1000); err != nil || found {
		t.Errorf("deleted: %v, %v", found, err)
	}
}

func testDelete(t *testing.T, ctx context.Context, s kv.Store) {
	put(t, ctx, s, space, entry("k", "1"), entry("l", "2"))
	for _, want := range []bool{true, false} {
		if found, err := s.DeleteKey(ctx, space, "k", start); err != nil || found != want {
			t.Errorf("deleted: %v, %v; want %v", found, err, want)
		}
	}
	want(t, ctx, s, space, start, []string{"k", "l"}, entry("l", "2"))
}

// testSpaces: spaces of other names and projects are apart.
func testSpaces(t *testing.T, ctx context.Context, s kv.Store) {
	spaces := []kv.Space{space, {Project: "p", Name: "a"}, {Project: "p0", Name: "a"}, {Project: "q", Name: "a"}}
	for i, at := range spaces {
		put(t, ctx, s, at, entry("k", strconv.Itoa(i)))
	}
	if _, err := s.ClearKeys(ctx, spaces[1], start); err != nil {
		t.Fatal(err)
	}
	for i, at := range spaces {
		if i == 1 {
			want(t, ctx, s, at, start, []string{"k"})
			put(t, ctx, s, at, entry("l", "new"))
			want(t, ctx, s, at, start, []string{"k", "l"}, entry("l", "new"))
			continue
		}
		want(t, ctx, s, at, start, []string{"k"}, entry("k", strconv.Itoa(i)))
	}
}

func testCanceled(t *testing.T, ctx context.Context, s kv.Store) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.PutKeys(ctx, space, []kv.Entry{entry("k", "1")}, wide, start); !fault.Is(err, fault.Canceled) {
		t.Errorf("put: %v", err)
	}
	if _, err := s.GetKeys(ctx, space, []string{"k"}, start); !fault.Is(err, fault.Canceled) {
		t.Errorf("get: %v", err)
	}
}

// testLimit: a batch that does not fit is refused whole; what has ended makes room.
func testLimit(t *testing.T, ctx context.Context, s kv.Store) {
	limit := kv.Limit{Keys: 3, Bytes: 30}
	try := func(code fault.Code, nowMS int64, entries ...kv.Entry) {
		t.Helper()
		if err := s.PutKeys(ctx, space, entries, limit, nowMS); code == "" && err != nil || code != "" && !fault.Is(err, code) {
			t.Errorf("%v, want %q", err, code)
		}
	}
	short := entry("c", "123456789")
	short.ExpiresMS = start + 1000
	try("", start, entry("a", "1"), entry("b", "1"), short)
	try(fault.Quota, start, entry("d", "1"))
	try(fault.Quota, start, entry("a", "2"), entry("d", "1"))
	try(fault.Quota, start, entry("a", strings.Repeat("1", 30)))
	want(t, ctx, s, space, start, []string{"a", "d"}, entry("a", "1"))
	try("", start, entry("a", "123")) // one that is there may be replaced
	try("", start+1000, entry("d", strings.Repeat("1", 20)))
	want(t, ctx, s, space, start+1000, []string{"c", "a"}, entry("a", "123"))
}

func testList(t *testing.T, ctx context.Context, s kv.Store) {
	keys := []string{"0", "A", "a", "a/b", "b", "é", "日"}
	for i, key := range keys {
		e := entry(key, strings.Repeat("1", i+1))
		if i == 1 {
			e.ExpiresMS = start + 1000
		}
		put(t, ctx, s, space, e)
	}
	var got []string
	for after := ""; ; {
		page, err := s.ListKeys(ctx, space, after, 3, start)
		if err != nil {
			t.Fatal(err)
		}
		if page.Total != len(keys) || page.Bytes != 28+12 {
			t.Errorf("%+v", page)
		}
		for _, k := range page.Keys {
			got = append(got, k.Key)
			after = k.Key
			if k.UpdatedMS != start || (k.ExpiresMS == kv.Never) == (k.Key == "A") {
				t.Errorf("%+v", k)
			}
		}
		if len(page.Keys) < 3 {
			break
		}
	}
	if d := cmp.Diff(keys, got); d != "" {
		t.Error(d)
	}
	page, err := s.ListKeys(ctx, space, "", 2, start+1000)
	if err != nil || len(page.Keys) != 2 || page.Keys[1].Key != "a" || page.Total != len(keys)-1 || page.Bytes != 37 {
		t.Errorf("%+v, %v", page, err)
	}
	names, err := s.Spaces(ctx, "p")
	if err != nil || fmt.Sprint(names) != "[{p  a space/é}]" {
		t.Errorf("%q, %v", names, err)
	}
}

func testSweep(t *testing.T, ctx context.Context, s kv.Store) {
	for i := range 5 {
		e := entry(strconv.Itoa(i), "1")
		e.ExpiresMS = start + int64(i)*1000
		put(t, ctx, s, kv.Space{Project: "p", Name: strconv.Itoa(i % 2)}, e)
	}
	put(t, ctx, s, space, entry("stays", "1"))
	if _, err := s.SweepKeys(ctx, start+3000); err != nil {
		t.Fatal(err)
	}
	// Asked for as of a time at which they were there: they are gone.
	for name, total := range map[string]int{"0": 1, "1": 0} {
		page, err := s.ListKeys(ctx, kv.Space{Project: "p", Name: name}, "", 10, start-1)
		if err != nil || page.Total != total || len(page.Keys) != total {
			t.Errorf("%s: %+v, %v", name, page, err)
		}
	}
	names, err := s.Spaces(ctx, "p")
	if err != nil || fmt.Sprint(names) != "[{p  0} {p  a space/é}]" {
		t.Errorf("%q, %v", names, err)
	}
}

func testClear(t *testing.T, ctx context.Context, s kv.Store) {
	for i := range 150 {
		put(t, ctx, s, space, entry(strconv.Itoa(i), "1"))
	}
	for _, want := range []int{150, 0} {
		if n, err := s.ClearKeys(ctx, space, start); err != nil || n != want {
			t.Errorf("%d, %v; want %d", n, err, want)
		}
	}
	if page, err := s.ListKeys(ctx, space, "", 10, start); err != nil || page.Total != 0 || page.Bytes != 0 {
		t.Errorf("%+v, %v", page, err)
	}
}
