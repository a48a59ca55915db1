package sqlite_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/sqlite"
)

// manyItems fills a store with a hundred users' memories, in the ledgers of a hundred agents.
func manyItems(tb testing.TB, s *store.SQLite, users, each int) memories.Service {
	tb.Helper()
	svc := memories.Service{Memory: agents.NewService(agents.Config{Ledger: s, Now: time.Now}), Ledger: s, Store: s}
	for u := range users {
		a := agent("p", u)
		if _, _, err := s.Create(tb.Context(), a, 0, memory.Change{}); err != nil {
			tb.Fatal(err)
		}
		for from := 0; from < each; from += 500 {
			err := s.Update(tb.Context(), "p", a.ID, func(tx memory.AgentView) (memory.Change, error) {
				h, c := tx.Head(), memory.Change{}
				for i := range min(500, each-from) {
					c.Append = append(c.Append, memory.Message{
						Seq: h.NextSeq + int64(i), Rev: h.Rev + 1, Role: memory.User, Content: fmt.Sprint(sentence, from+i), TurnID: h.LastTurn + 1 + int64(i), Timestamp: 1780000000000,
						Source: memory.SourceASR, Metadata: map[string]json.RawMessage{"lang": json.RawMessage(`"en"`)},
						Details: &memory.Details{Filed: memory.Filed{Scope: memory.Scope{UserID: fmt.Sprint("user-", u), SessionID: fmt.Sprint("session-", u, "-", (from+i)/100)}}},
					})
				}
				return c, nil
			})
			if err != nil {
				tb.Fatal(err)
			}
		}
	}
	return svc
}

// BenchmarkSearchItems searches in a project of 100,000 messages: of a user who has 1,000 of them,
// of one of his sessions, and of nobody in particular, which looks at as many as a search may.
func BenchmarkSearchItems(b *testing.B) {
	s, err := store.OpenSQLite(b.Context(), sqlite.Options{Path: filepath.Join(b.TempDir(), "items.db")}, engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	svc := manyItems(b, s, 100, 1000)
	for _, bench := range []struct {
		name  string
		scope window.Scope
		total int
	}{
		{"user", window.Scope{UserID: "user-50"}, 1000}, {"session", window.Scope{UserID: "user-50", SessionID: "session-50-3"}, 100},
		{"all", window.Scope{}, memories.MaxSearched}, {"nobody", window.Scope{UserID: "user-500"}, 0},
	} {
		for _, query := range []string{"", "17"} {
			b.Run(bench.name+"/query="+query, func(b *testing.B) {
				for b.Loop() {
					q := window.SearchQuery{Scope: bench.scope, Query: query, Limit: 10, Pairs: window.IntegrityTrailing}
					found, err := svc.Search(b.Context(), "p", q)
					if err != nil || found.Total != bench.total {
						b.Fatalf("%d of %d, %v", len(found.Items), found.Total, err)
					}
				}
			})
		}
	}
}

// TestSearchItemsIsBounded: a search looks at the newest of its scope, as many as it may, and says
// that there are older ones.
func TestSearchItemsIsBounded(t *testing.T) {
	t.Parallel()
	s := open(t, sqlite.Options{})
	svc := manyItems(t, s, 1, memories.MaxSearched+1)
	for _, tt := range []struct {
		scope     window.Scope
		total     int
		truncated bool
		first     string
	}{
		{window.Scope{}, memories.MaxSearched, true, sentence + "1"},
		{window.Scope{UserID: "user-0"}, memories.MaxSearched, true, sentence + "1"},
		{window.Scope{UserID: "user-0", SessionID: "session-0-0"}, 100, false, sentence + "0"},
	} {
		found, err := svc.Search(t.Context(), "p", window.SearchQuery{Scope: tt.scope, Limit: 1})
		if err != nil || found.Total != tt.total || found.Truncated != tt.truncated || found.Items[0].Message.Content != tt.first {
			t.Errorf("%+v: of %d, truncated %v, the first is %q, %v", tt.scope, found.Total, found.Truncated, found.Items[0].Message.Content, err)
		}
	}
	n, err := svc.Clear(t.Context(), "p", window.SessionLevel, window.Scope{UserID: "user-0", SessionID: "session-0-0"})
	if err != nil || n != 100 {
		t.Errorf("cleared %d, %v", n, err)
	}
}
