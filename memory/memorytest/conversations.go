package memorytest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// RunConversations runs the contract of memory.ConversationStore; open gives an empty store of the test's own and closes it when the test ends.
func RunConversations(t *testing.T, open func(*testing.T) memory.ConversationStore) {
	for name, test := range map[string]func(*testing.T, context.Context, memory.ConversationStore){
		"SaveAndLoad": testConversationSave, "Delete": testConversationDelete, "List": testConversationList, "Clear": testConversationClear,
		"Limit": testConversationLimit, "Tenants": testConversationTenants, "Concurrent": testConversationsConcurrent, "Canceled": testConversationCanceled,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, t.Context(), open(t)) })
	}
}

func saveConversation(t *testing.T, ctx context.Context, s memory.ConversationStore, project, id, body string) {
	t.Helper()
	if err := s.SaveConversation(ctx, project, id, []byte(body), 0); err != nil {
		t.Fatalf("save %s: %v", id, err)
	}
}

func wantConversation(t *testing.T, ctx context.Context, s memory.ConversationStore, project, id, want string) {
	t.Helper()
	got, err := s.LoadConversation(ctx, project, id)
	if err != nil || string(got) != want {
		t.Errorf("%s of %s: %q, %v; want %q", id, project, got, err, want)
	}
}

func testConversationSave(t *testing.T, ctx context.Context, s memory.ConversationStore) {
	if _, err := s.LoadConversation(ctx, project, "c"); !fault.Is(err, fault.NotFound) {
		t.Errorf("what is not there: %v", err)
	}
	body := []byte("{ \"messages\" : [],\n\"summary\":\"\\u0000 é \x01\"}")
	want := string(body)
	saveConversation(t, ctx, s, project, "c", want)
	if err := s.SaveConversation(ctx, project, "c", body, 0); err != nil {
		t.Fatal(err)
	}
	body[0] = 'x' // the store's copy is its own
	wantConversation(t, ctx, s, project, "c", want)
	got, err := s.LoadConversation(ctx, project, "c")
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

func testConversationDelete(t *testing.T, ctx context.Context, s memory.ConversationStore) {
	saveConversation(t, ctx, s, project, "c", "[1]")
	saveConversation(t, ctx, s, project, "d", "[2]")
	for range 2 {
		if err := s.DeleteConversation(ctx, project, "c"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.LoadConversation(ctx, project, "c"); !fault.Is(err, fault.NotFound) {
		t.Errorf("after the deletion: %v", err)
	}
	wantConversation(t, ctx, s, project, "d", "[2]")
	if ids, total, err := s.ListConversations(ctx, project, "", 10); err != nil || total != 1 || !slices.Equal(ids, []string{"d"}) {
		t.Errorf("%v of %d, %v", ids, total, err)
	}
}

// testConversationList: by code point, as other systems sort: digits, capitals, small letters, then the rest of the world, what is beyond the 16-bit range last.
func testConversationList(t *testing.T, ctx context.Context, s memory.ConversationStore) {
	want := []string{"1", "10", "2", "A", "B b", "Z", "a", "a/b", "z", "é", "\uFFFD", "\U0001F600"}
	for _, i := range []int{5, 3, 11, 0, 2, 7, 9, 1, 4, 6, 10, 8} {
		saveConversation(t, ctx, s, project, want[i], "[]")
	}
	var got []string
	for after, n := "", 0; ; n++ {
		ids, total, err := s.ListConversations(ctx, project, after, 5)
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

func testConversationClear(t *testing.T, ctx context.Context, s memory.ConversationStore) {
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
		if n, err := s.ClearConversations(ctx, project); err != nil || n != want {
			t.Errorf("cleared %d, %v; want %d", n, err, want)
		}
	}
	if ids, total, err := s.ListConversations(ctx, project, "", 10); err != nil || total != 0 || len(ids) != 0 {
		t.Errorf("%v of %d, %v", ids, total, err)
	}
	wantConversation(t, ctx, s, "other", "c", "[1]")
	saveConversation(t, ctx, s, project, "small1", "[2]")
	wantConversation(t, ctx, s, project, "small1", "[2]")
}

func testConversationLimit(t *testing.T, ctx context.Context, s memory.ConversationStore) {
	save := func(id string) error { return s.SaveConversation(ctx, project, id, []byte("[]"), 2) }
	for _, id := range []string{"a", "b", "a", "b"} { // one that is there may always be saved again
		if err := save(id); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, save("c"), fault.Quota)
	if err := s.SaveConversation(ctx, "other", "c", []byte("[]"), 2); err != nil {
		t.Errorf("the limit of another project: %v", err)
	}
	if err := s.DeleteConversation(ctx, project, "a"); err != nil {
		t.Fatal(err)
	}
	if err := save("c"); err != nil {
		t.Errorf("once there is room: %v", err)
	}
	wantCode(t, save("a"), fault.Quota)
}

func testConversationTenants(t *testing.T, ctx context.Context, s memory.ConversationStore) {
	saveConversation(t, ctx, s, "p", "c", "[1]")
	saveConversation(t, ctx, s, "q", "c", "[2]")
	wantConversation(t, ctx, s, "p", "c", "[1]")
	wantConversation(t, ctx, s, "q", "c", "[2]")
	if err := s.DeleteConversation(ctx, "q", "c"); err != nil {
		t.Fatal(err)
	}
	wantConversation(t, ctx, s, "p", "c", "[1]")
	if ids, total, err := s.ListConversations(ctx, "q", "", 10); err != nil || total != 0 || len(ids) != 0 {
		t.Errorf("%v of %d, %v", ids, total, err)
	}
}

// testConversationsConcurrent: what was acknowledged last is what is there, and the limit holds whoever comes first.
func testConversationsConcurrent(t *testing.T, ctx context.Context, s memory.ConversationStore) {
	const writers, each, limit = 8, 20, 50
	var wg sync.WaitGroup
	saved := make([]int, writers)
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprintf("%d-%d", w, i)
				err := s.SaveConversation(ctx, project, id, []byte(id), limit)
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
	ids, total, err := s.ListConversations(ctx, project, "", 1000)
	if err != nil || sum != limit || total != limit || len(ids) != limit {
		t.Fatalf("%d were acknowledged, %d are listed, %d are counted, %v; want %d", sum, len(ids), total, err, limit)
	}
	for _, id := range ids {
		wantConversation(t, ctx, s, project, id, id)
	}
}

func testConversationCanceled(t *testing.T, ctx context.Context, s memory.ConversationStore) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	wantCode(t, s.SaveConversation(ctx, project, "c", []byte("[]"), 0), fault.Canceled)
	_, err := s.LoadConversation(ctx, project, "c")
	wantCode(t, err, fault.Canceled)
	_, _, err = s.ListConversations(ctx, project, "", 1)
	wantCode(t, err, fault.Canceled)
}
