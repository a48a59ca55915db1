package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/store/storetest"
)

// sealedFile is the file of a test of data keys.
type sealedFile struct {
	t    *testing.T
	path string
}

func (f sealedFile) options(key []byte) sqlite.Options {
	return sqlite.Options{Path: f.path, DataKey: key, Terms: storetest.Terms}
}

// Open implements storetest.SealedPlace.
func (f sealedFile) Open(key []byte) (storetest.SealedStore, error) {
	s, err := store.OpenSQLite(f.t.Context(), f.options(key), engine.Options{})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Dump implements storetest.SealedPlace.
func (f sealedFile) Dump() (all []byte) {
	files, err := filepath.Glob(filepath.Dir(f.path) + "/*")
	for _, name := range files {
		b, failed := os.ReadFile(name)
		if all = append(all, b...); failed != nil {
			err = failed
		}
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return all
}

// Rotate implements storetest.SealedPlace.
func (f sealedFile) Rotate(from, to []byte) (int, error) {
	return sqlite.RotateDataKey(f.options(from), to)
}

// Seal implements storetest.SealedPlace.
func (f sealedFile) Seal(ctx context.Context, key []byte) (int, error) {
	return sqlite.SealOld(ctx, f.options(key))
}

var otherKey = bytes.Repeat([]byte("o"), len(dataKey))

// TestKillSealing kills processes that seal old texts and that replace the key. Nothing is lost,
// and the file opens with one of the keys.
func TestKillSealing(t *testing.T) {
	t.Parallel()
	const agents, each = 8, 60
	o := sqlite.Options{Path: filepath.Join(t.TempDir(), "a.db")}
	s := open(t, o)
	for n := range agents {
		a := agent("p", n)
		a.Settings.Scope.UserID = fmt.Sprint("user", n)
		if _, _, err := s.Create(t.Context(), a, 0, memory.Change{}); err != nil {
			t.Fatal(err)
		}
		for i := range each {
			if err := s.Update(t.Context(), "p", a.ID, appendOne(fmt.Sprint("Xq7canary9Zk ", i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		s := open(t, o)
		for n := range agents {
			if _, list, err := s.Recent(t.Context(), "p", agent("p", n).ID, each+1, false); err != nil || len(list) != each || list[0].Content != "Xq7canary9Zk 0" {
				t.Fatalf("agent %d: %d messages, %v", n, len(list), err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// until runs a helper that is killed after ever longer times, until one comes to its end.
	until := func(mode string, after func()) {
		t.Helper()
		for wait := 10 * time.Millisecond; ; wait += wait / 2 {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env = append(os.Environ(), helperPath+"="+o.Path, helperMode+"="+mode)
			out, err := cmd.CombinedOutput()
			killed := ctx.Err() != nil
			cancel()
			if err != nil && !killed {
				t.Fatalf("%s: %v %s", mode, err, out)
			}
			after()
			if !killed {
				return
			}
		}
	}
	o.DataKey = dataKey
	until("seal", check)
	if n := bytes.Count(sealedFile{t, o.Path}.Dump(), []byte("Xq7canary9Zk")); n != 0 {
		t.Errorf("the disk holds the words %d times", n)
	}
	until("rotate", func() {
		r, err := sqlite.OpenReader(o)
		if errors.Is(err, encryption.ErrWrongDataKey) {
			o.DataKey = otherKey
			r, err = sqlite.OpenReader(o)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		check()
	})
	if !bytes.Equal(o.DataKey, otherKey) {
		t.Error("the key was not replaced")
	}
}

// TestSealed is the contract of data keys.
func TestSealed(t *testing.T) {
	storetest.RunSealed(t, func(t *testing.T) storetest.SealedPlace { return sealedFile{t, filepath.Join(t.TempDir(), "a.db")} })
}
