package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/kv"
)

// RunConversations runs the contract of kv.Store for the conversations of projects. open returns an
// empty store of the test's own and closes it when the test ends.
func RunConversations(t *testing.T, open func(*testing.T) kv.Store) {
	for name, test := range map[string]func(*testing.T, context.Context, kv.Store){
		"SaveAndLoad": testConversationSave, "Delete": testConversationDelete, "List": testConversationList, "Clear": testConversationClear,
		"Limit": testConversationLimit, "Tenants": testConversationTenants, "Concurrent": testConversationsConcurrent, "Canceled": testConversationCanceled,
		"New": testConversationNew, "Expired": testConversationExpired,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, t.Context(), open(t)) })
	}
}

func saveConversation(t *testing.T, ctx context.Context, s kv.Store, project, id, body string) {
	t.Helper()
	if err := kv.Put(ctx, s, kv.Space{Project: project}, kv.Entry{Key: id, Value: []byte(body), ExpiresMS: kv.Never}, kv.Limit{}, 0); err != nil {
		t.Fatalf("save %s: %v", id, err)
	}
}

func loadConversation(ctx context.Context, s kv.Store, project, id string) ([]byte, error) {
	e, err := kv.Get(ctx, s, kv.Space{Project: project}, id, 0)
	return e.Value, err
}

func listConversations(ctx context.Context, s kv.Store, project, after string, limit int) (ids []string, total int, err error) {
	page, err := s.ListKeys(ctx, kv.Space{Project: project}, after, limit, 0)
	for _, k := range page.Keys {
		ids = append(ids, k.Key)
	}
	return ids, page.Total, err
}

func wantConversation(t *testing.T, ctx context.Context, s kv.Store, project, id, want string) {
	t.Helper()
	got, err := loadConversation(ctx, s, project, id)
	if err != nil || string(got) != want {
		t.Errorf("%s of %s: %q, %v; want %q", id, project, got, err, want)
	}
}

func testConversationSave(t *testing.T, ctx context.Context, s kv.Store) {
	if _, err := loadConversation(ctx, s, project, "c"); !fault.Is(err, fault.NotFound) {
		t.Errorf("what is not there: %v", err)
	}
	body := []byte("{ \"messages\" : [],\n\"summary\":\"\\u0000 é \x01\"}")
	want := string(body)
	saveConversation(t, ctx, s, project, "c", want)
	if err := kv.Put(ctx, s, kv.Space{Project: project}, kv.Entry{Key: "c", Value: body, ExpiresMS: kv.Never}, kv.Limit{}, 0); err != nil {
		t.Fatal(err)
	}
	body[0] = 'x' // the store's copy is its own
	wantConversation(t, ctx, s, project, "c", want)
	got, err := loadConversation(ctx, s, project, "c")
	if err != nil {
		t.Fatal(err)
	}
	got[0] = 'y'
	wantConversation(t, ctx, s, project, "c", want)
	long := `["` + strings.Repeat("long ", 100_000) + `"]`
	saveConversation(t, ctx, s, project, "c", long)
	wantConversation(t, ctx, s, project, "c", long)
	saveConversation(t, ctx, s, project, "c", "[]")
	wantConversation(t, ctx, s, project, "c", "[]")
}

func testConversationDelete(t *testing.T, ctx context.Context, s kv.Store) {
	saveConversation(t, ctx, s, project, "c", "[1]")
	saveConversation(t, ctx, s, project, "d", "[2]")
	for range 2 {
		if _, err := s.DeleteKey(ctx, kv.Space{Project: project}, "c", 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := loadConversation(ctx, s, project, "c"); !fault.Is(err, fault.NotFound) {
		t.Errorf("after the deletion: %v", err)
	}
	wantConversation(t, ctx, s, project, "d", "[2]")
	if ids, total, err := listConversations(ctx, s, project, "", 10); err != nil || total != 1 || !slices.Equal(ids, []string{"d"}) {
		t.Errorf("%v of %d, %v", ids, total, err)
	}
}

// testConversationList: by code point, as other systems sort: digits, capitals, small letters, then
// the rest of the world, what is beyond the 16-bit range last.
func testConversationList(t *testing.T, ctx context.Context, s kv.Store) {
	want := []string{"1", "10", "2", "A", "B b", "Z", "a", "a/b", "z", "é", "\uFFFD", "\U0001F600"}
	for _, i := range []int{5, 3, 11, 0, 2, 7, 9, 1, 4, 6, 10, 8} {
		saveConversation(t, ctx, s, project, want[i], "[]")
	}
	var got []string
	for after, n := "", 0; ; n++ {
		ids, total, err := listConversations(ctx, s, project, after, 5)
		if err != nil || total != len(want) || n > 3 {
			t.Fatalf("page %d: %v of %d, %v", n, ids, total, err)
		}
		if len(ids) == 0 {
			break
		}
		got, after = append(got, ids...), ids[len(ids)-1]
	}
	wantSame(t, "ids", got, want)
}

func testConversationClear(t *testing.T, ctx context.Context, s kv.Store) {
	saveConversation(t, ctx, s, "other", "c", "[1]")
	big := strings.Repeat("x", 900_000)
	want := 3
	for i := range want { // more than one slice of bytes
		saveConversation(t, ctx, s, project, fmt.Sprint("big", i), big)
	}
	for i := range 10 {
		saveConversation(t, ctx, s, project, fmt.Sprint("small", i), "[]")
		want++
	}
	for _, want := range []int{want, 0} {
		if n, err := s.ClearKeys(ctx, kv.Space{Project: project}, 0); err != nil || n != want {
			t.Errorf("cleared %d, %v; want %d", n, err, want)
		}
	}
	if ids, total, err := listConversations(ctx, s, project, "", 10); err != nil || total != 0 || len(ids) != 0 {
		t.Errorf("%v of %d, %v", ids, total, err)
	}
	wantConversation(t, ctx, s, "other", "c", "[1]")
	saveConversation(t, ctx, s, project, "small1", "[2]")
	wantConversation(t, ctx, s, project, "small1", "[2]")
}

func testConversationLimit(t *testing.T, ctx context.Context, s kv.Store) {
	save := func(id string) error {
		return kv.Put(ctx, s, kv.Space{Project: project}, kv.Entry{Key: id, Value: []byte("[]"), ExpiresMS: kv.Never}, kv.Limit{Keys: 2}, 0)
	}
	for _, id := range []string{"a", "b", "a", "b"} { // one that is there may always be saved again
		if err := save(id); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, save("c"), fault.Quota)
	if err := kv.Put(ctx, s, kv.Space{Project: "other"}, kv.Entry{Key: "c", Value: []byte("[]"), ExpiresMS: kv.Never}, kv.Limit{Keys: 2}, 0); err != nil {
		t.Errorf("the limit of another project: %v", err)
	}
	if _, err := s.DeleteKey(ctx, kv.Space{Project: project}, "a", 0); err != nil {
		t.Fatal(err)
	}
	if err := save("c"); err != nil {
		t.Errorf("once there is room: %v", err)
	}
	wantCode(t, save("a"), fault.Quota)
}

func testConversationTenants(t *testing.T, ctx context.Context, s kv.Store) {
	saveConversation(t, ctx, s, "p", "c", "[1]")
	saveConversation(t, ctx, s, "q", "c", "[2]")
	wantConversation(t, ctx, s, "p", "c", "[1]")
	wantConversation(t, ctx, s, "q", "c", "[2]")
	if _, err := s.DeleteKey(ctx, kv.Space{Project: "q"}, "c", 0); err != nil {
		t.Fatal(err)
	}
	wantConversation(t, ctx, s, "p", "c", "[1]")
	if ids, total, err := listConversations(ctx, s, "q", "", 10); err != nil || total != 0 || len(ids) != 0 {
		t.Errorf("%v of %d, %v", ids, total, err)
	}
}

// testConversationsConcurrent: the last acknowledged value is stored, and the limit holds in
// any order of calls.
func testConversationsConcurrent(t *testing.T, ctx context.Context, s kv.Store) {
	const writers, each, limit = 8, 20, 50
	var wg sync.WaitGroup
	saved := make([]int, writers)
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprintf("%d-%d", w, i)
				err := kv.Put(ctx, s, kv.Space{Project: project}, kv.Entry{Key: id, Value: []byte(id), ExpiresMS: kv.Never}, kv.Limit{Keys: limit}, 0)
				if err == nil {
					saved[w]++
				} else if !fault.Is(err, fault.Quota) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range saved {
		sum += n
	}
	ids, total, err := listConversations(ctx, s, project, "", 1000)
	if err != nil || sum != limit || total != limit || len(ids) != limit {
		t.Fatalf("%d were acknowledged, %d are listed, %d are counted, %v; want %d", sum, len(ids), total, err, limit)
	}
	for _, id := range ids {
		wantConversation(t, ctx, s, project, id, id)
	}
}

func testConversationCanceled(t *testing.T, ctx context.Context, s kv.Store) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	wantCode(t, kv.Put(ctx, s, kv.Space{Project: project}, kv.Entry{Key: "c", Value: []byte("[]"), ExpiresMS: kv.Never}, kv.Limit{}, 0), fault.Canceled)
	_, err := loadConversation(ctx, s, project, "c")
	wantCode(t, err, fault.Canceled)
	_, _, err = listConversations(ctx, s, project, "", 1)
	wantCode(t, err, fault.Canceled)
}

// testConversationNew: of all that put a key that must be new, one succeeds, and again once the
// entry has ended or is deleted.
func testConversationNew(t *testing.T, ctx context.Context, s kv.Store) {
	put := func(key string, expiresMS, nowMS int64) error {
		return kv.PutNew(ctx, s, kv.Space{Project: project}, kv.Entry{Key: key, Value: []byte("1"), UpdatedMS: nowMS, ExpiresMS: expiresMS}, kv.Limit{}, nowMS)
	}
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { errs[i] = put("k", 2000, 1000) })
	}
	wg.Wait()
	first := 0
	for _, err := range errs {
		if err == nil {
			first++
		} else {
			wantCode(t, err, fault.Conflict)
		}
	}
	if first != 1 {
		t.Errorf("%d calls were the first", first)
	}
	wantCode(t, put("k", 2000, 1999), fault.Conflict)
	if err := put("k", 3000, 2000); err != nil {
		t.Errorf("once it has ended: %v", err)
	}
	if _, err := s.DeleteKey(ctx, kv.Space{Project: project}, "k", 2500); err != nil {
		t.Fatal(err)
	}
	if err := put("k", kv.Never, 2500); err != nil {
		t.Errorf("once it is deleted: %v", err)
	}
	wantCode(t, put("k", kv.Never, 1<<50), fault.Conflict)
	if _, total, err := listConversations(ctx, s, project, "", 10); err != nil || total != 1 {
		t.Errorf("%d entries are counted, %v", total, err)
	}
}

// testConversationExpired: an entry of a project may end. It is absent then, and swept, and no
// longer counts.
func testConversationExpired(t *testing.T, ctx context.Context, s kv.Store) {
	for i := range 3 {
		e := kv.Entry{Key: fmt.Sprint("short", i), Value: []byte("1"), ExpiresMS: 2000}
		if err := kv.Put(ctx, s, kv.Space{Project: project}, e, kv.Limit{}, 1000); err != nil {
			t.Fatal(err)
		}
	}
	saveConversation(t, ctx, s, project, "stays", "[1]")
	if _, err := kv.Get(ctx, s, kv.Space{Project: project}, "short0", 1999); err != nil {
		t.Error(err)
	}
	if n, err := s.SweepKeys(ctx, 2000); err != nil || n != 3 {
		t.Errorf("swept %d, %v", n, err)
	}
	ended := kv.Entry{Key: "ended", Value: []byte("1"), ExpiresMS: 2000}
	if err := kv.Put(ctx, s, kv.Space{Project: project}, ended, kv.Limit{}, 1000); err != nil {
		t.Fatal(err)
	}
	_, err := kv.Get(ctx, s, kv.Space{Project: project}, "ended", 2000) // before a sweep
	wantCode(t, err, fault.NotFound)
	if _, err := s.SweepKeys(ctx, 2000); err != nil {
		t.Fatal(err)
	}
	page, err := s.ListKeys(ctx, kv.Space{Project: project}, "", 10, 2000)
	if err != nil || page.Total != 1 || len(page.Keys) != 1 || page.Keys[0].Key != "stays" {
		t.Errorf("%+v, %v", page, err)
	}
}
