package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/sqlite"
)

// New returns an empty store in memory that ends with the test: what a test of rules needs. It is
// never too slow, however busy the machine is.
func New(t testing.TB) *store.SQLite { return NewWith(t, sqlite.Options{}) }

// NewWith is New with options of the store.
func NewWith(t testing.TB, o sqlite.Options) *store.SQLite {
	t.Helper()
	o.Path = sqlite.InMemory
	s, err := store.OpenSQLite(t.Context(), o, engine.Options{Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Shared is a store that several engines use as those of several servers do, in one process: it
// answers memory.ErrUnchanged, which a store of one server does not need.
type Shared struct{ *sqlite.Store }

// Load implements memory.Store.
func (s Shared) Load(ctx context.Context, project, id string, n int, known memory.Version) (memory.Stored, error) {
	st, err := s.Store.Load(ctx, project, id, n, known)
	if err == nil && known.No == st.No && known.Rev == st.Head.Rev {
		err = memory.ErrUnchanged
	}
	return st, err
}
