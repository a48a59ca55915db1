package sqlite_test

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/sqlite"
)

// TestFlippedBytes flips bytes of a database at random places, one at a time. A message that is
// read is the one that was written, or reading it fails.
func TestFlippedBytes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "d.db")
	s := open(t, sqlite.Options{Path: path})
	fill(t, s)
	type key struct {
		agent string
		seq   int64
	}
	want := map[key]memory.Message{}
	read := func(s *store.SQLite, each func(key, memory.Message)) (err error) {
		for n := range 5 {
			id := agent("p", n).ID
			list, fails := s.Messages(t.Context(), "p", id, memory.MessageQuery{Limit: 500})
			if fails != nil {
				err = fails
				continue
			}
			for _, m := range list {
				each(key{id, m.Seq}, m)
			}
		}
		return err
	}
	if err := read(s, func(k key, m memory.Message) { want[k] = m }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const flips = 150
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	failed := 0
	for range flips {
		at, bit := random.IntN(len(whole)), random.IntN(8)
		b := bytes.Clone(whole)
		b[at] ^= 1 << bit
		path := filepath.Join(t.TempDir(), "d.db")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := store.OpenSQLite(t.Context(), sqlite.Options{Path: path}, engine.Options{})
		if err != nil {
			failed++
			continue
		}
		err = read(s, func(k key, m memory.Message) {
			if d := cmp.Diff(want[k], m); d != "" {
				t.Errorf("seed %d: bit %d of byte %d: message %v is another (-want +got):\n%s", seed, bit, at, k, d)
			}
		})
		if err != nil {
			failed++
		}
		_ = s.Close() // may fail, as the file is damaged
	}
	t.Logf("%d of %d flips made a read fail; others hit what is unused, or not a message", failed, flips)
}

// damaged returns a file with one byte of its newest message changed.
func damaged(t *testing.T, path string, file []byte) []byte {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	var body []byte
	err = db.QueryRowContext(t.Context(), "SELECT body FROM message ORDER BY id DESC LIMIT 1").Scan(&body)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(file, body); n != 1 {
		t.Fatalf("the message is there %d times", n)
	}
	was := bytes.Clone(body)
	body[len(body)/2]++
	return bytes.Replace(file, was, body, 1)
}

// TestDamageIsReported changes one byte of a message on disk. The server notices at its start,
// and the readers of the file do too.
func TestDamageIsReported(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "d.db")
	s := open(t, sqlite.Options{Path: path})
	fill(t, s)
	if err := s.Update(t.Context(), "p", agent("p", 1).ID, appendOne("the caller said yes")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, damaged(t, path, b), 0o600); err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 8)
	s = open(t, sqlite.Options{Path: path, Report: func(what string, err error) { told <- fmt.Sprint(what, ": ", err) }})
	got := ""
	select {
	case got = <-told:
	case <-time.After(time.Minute):
	}
	if !strings.Contains(got, "heardlog restore") || !strings.Contains(got, "is not as it was written") {
		t.Errorf("reported: %s", got)
	}
	if err := s.Ping(t.Context()); fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("ping: %v", err)
	}
	if list, err := s.Messages(t.Context(), "p", agent("p", 1).ID, memory.MessageQuery{Limit: 500}); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("read: %d messages, %v", len(list), err)
	}
	if _, err := s.Messages(t.Context(), "p", agent("p", 2).ID, memory.MessageQuery{Limit: 500}); err != nil {
		t.Errorf("another agent: %v", err)
	}
	r, err := sqlite.OpenReader(sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var found []string
	if err := r.Damage(t.Context(), func(what string) { found = append(found, what) }); err != nil || len(found) != 1 {
		t.Errorf("found %q, %v", found, err)
	}
}

// TestDamageInLargeFile damages an index of the messages and a message. In a large file a check
// that may run beside a server leaves the index out, and finds the message.
func TestDamageInLargeFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "d.db")
	s := open(t, sqlite.Options{Path: path})
	fill(t, s)
	if err := s.Update(t.Context(), "p", agent("p", 1).ID, appendOne("the caller said yes")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	var root int
	err = db.QueryRowContext(t.Context(), "SELECT rootpage FROM sqlite_schema WHERE name = 'message_seq'").Scan(&root)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b = damaged(t, path, b)
	b[(root-1)*4096] = 0
	for _, tt := range []struct {
		name      string
		pages     uint32 // none: as many as there are
		structure bool
	}{{"small", 0, true}, {"large", 1<<18 + 1, false}} {
		path := filepath.Join(t.TempDir(), tt.name+".db")
		b := bytes.Clone(b)
		if tt.pages > 0 {
			binary.BigEndian.PutUint32(b[28:], tt.pages) // where a file has its size
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, max(int64(len(b)), int64(tt.pages)*4096)); err != nil {
			t.Fatal(err)
		}
		r, err := sqlite.OpenReader(sqlite.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		err = r.Damage(t.Context(), func(what string) { found = append(found, what) })
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		all := strings.Join(found, "\n")
		if !strings.Contains(all, "is not as it was written") || tt.structure != (len(found) > 1) {
			t.Errorf("%s: found %q", tt.name, found)
		}
	}
}
