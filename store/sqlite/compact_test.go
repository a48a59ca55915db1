package sqlite_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/store/storetest"
)

// TestCompact: a file that is in use gets shorter once enough of it is unused, and loses nothing.
func TestCompact(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "heardlog.db")
	s := open(t, sqlite.Options{Path: path})
	const values, kept, size = 400, 10, 8192
	space := kv.Space{Project: "acme", Name: "n"}
	for i := range values + kept {
		at := space
		if i%41 == 0 {
			at.Name = "kept"
		}
		e := kv.Entry{Key: fmt.Sprint(i), Value: bytes.Repeat([]byte("7"), size), ExpiresMS: 10}
		if err := s.PutKeys(t.Context(), at, []kv.Entry{e}, kv.Limit{}, 1); err != nil {
			t.Fatal(err)
		}
	}
	compact := func(percent int, atLeast int64) {
		t.Helper()
		if n, err := s.Compact(t.Context(), percent); err != nil || n < atLeast || atLeast == 0 && n > 0 {
			t.Errorf("%d bytes at %d percent, %v; want %d", n, percent, err, atLeast)
		}
	}
	compact(10, 0)
	if _, err := s.ClearKeys(t.Context(), space, 1); err != nil {
		t.Fatal(err)
	}
	compact(100, 0)
	a := agent("acme", 1)
	if _, _, err := s.Create(t.Context(), a, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
	var beside sync.WaitGroup
	const written = 200
	beside.Go(func() {
		for range written {
			if err := s.Update(t.Context(), "acme", a.ID, appendOne("word")); err != nil {
				t.Error(err)
			}
		}
	})
	compact(50, values*size)
	beside.Wait()
	if got := storetest.Whole(t, s, a); got["word"] != written {
		t.Errorf("%v, want %d", got, written)
	}
	for range 3000 { // until a checkpoint has shortened the file
		if err := s.PutKeys(t.Context(), space, []kv.Entry{{Key: "k", Value: bytes.Repeat([]byte("7"), size), ExpiresMS: 10}}, kv.Limit{}, 1); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err == nil && st.Size() <= values*size/2 {
			break
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Size() > values*size/2 {
		t.Errorf("the file has %d bytes, %v", st.Size(), err)
	}
	r, err := sqlite.OpenReader(sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Damage(t.Context(), func(what string) { t.Error(what) }); err != nil {
		t.Error(err)
	}
	s = open(t, sqlite.Options{Path: path})
	keys, err := s.ListKeys(t.Context(), kv.Space{Project: "acme", Name: "kept"}, "", 100, 1)
	if err != nil || len(keys.Keys) != kept {
		t.Errorf("%d keys, %v", len(keys.Keys), err)
	}
}
