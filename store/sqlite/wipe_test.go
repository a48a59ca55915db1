package sqlite_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/sqlite"
)

// TestOldTextLeavesNoCopy: SQLite leaves copies of rows in the unused part of pages when it spreads
// neighbours again. Of what was overwritten or deleted none stays, and the file stays whole.
func TestOldTextLeavesNoCopy(t *testing.T) {
	t.Parallel()
	const keys, changes = 150, 1500
	path := filepath.Join(t.TempDir(), "heardlog.db")
	s := open(t, sqlite.Options{Path: path})
	r := rand.New(rand.NewPCG(1, 2))
	space := kv.Space{Project: "p"}
	now := map[string]bool{} // the texts that are stored
	last := make([]string, keys)
	canary := regexp.MustCompile(`canary-\d{4}-`)
	look := func(when string) {
		if err := s.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(path + "*")
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, name := range files {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range canary.FindAllIndex(b, -1) {
				text := string(b[at[0]:at[1]])
				if !now[text] {
					t.Fatalf("%s, %s is in %s at byte %d", when, text, filepath.Base(name), at[0])
				}
				found++
			}
		}
		if found < len(now) {
			t.Fatalf("%s, %d texts are in the files, and %d are stored", when, found, len(now))
		}
	}
	for i := range changes {
		k := r.IntN(keys)
		key, text := fmt.Sprintf("k%03d", k), fmt.Sprintf("canary-%04d-", i)
		delete(now, last[k])
		if r.IntN(4) == 0 {
			if _, err := s.DeleteKey(t.Context(), space, key, 1); err != nil {
				t.Fatal(err)
			}
			last[k] = ""
		} else {
			value := []byte(strings.Repeat(text, 1+r.IntN(90)))
			if err := s.PutKeys(t.Context(), space, []kv.Entry{{Key: key, Value: value, ExpiresMS: kv.Never}}, kv.Limit{}, 1); err != nil {
				t.Fatal(err)
			}
			now[text], last[k] = true, text
		}
		if i == changes/2 { // so much that the log is moved to the file meanwhile
			for n := range 150 {
				filler := make([]kv.Entry, 50)
				for j := range filler {
					filler[j] = kv.Entry{Key: fmt.Sprint("z", n, "-", j), Value: []byte(strings.Repeat("x", 3000)), ExpiresMS: kv.Never}
				}
				if err := s.PutKeys(t.Context(), space, filler, kv.Limit{}, 1); err != nil {
					t.Fatal(err)
				}
			}
		}
		if i >= changes/2 && i%100 == 99 {
			look(fmt.Sprint("after ", i+1, " changes"))
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	reader, err := sqlite.OpenReader(sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	err = reader.Probe(t.Context(), func(f export.Finding) error {
		t.Error(f.What)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
