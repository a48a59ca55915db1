package sqlite_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/sqlite"
)

// TestReadersDoNotWait reads from memory and from the file while a decision runs.
func TestReadersDoNotWait(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "w.db")
	s := open(t, sqlite.Options{Path: path})
	fill(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, sqlite.Options{Path: path})
	ctx := t.Context()
	done := make(chan error, 1)
	err := s.Update(ctx, "p", agent("p", 1).ID, func(memory.AgentView) (memory.Change, error) {
		go func() {
			_, _, err := s.Recent(ctx, "p", agent("p", 2).ID, 32, true)
			if err == nil {
				_, err = s.Messages(ctx, "p", agent("p", 1).ID, memory.MessageQuery{Limit: 5})
			}
			if err == nil {
				_, err = s.Agents(ctx, memory.AgentQuery{Project: "p", Limit: 5})
			}
			done <- err
		}()
		return memory.Change{}, <-done
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLogIsBounded writes many times the log's size and looks at the file; every commit is told of.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "b.db")
	var commits, messages atomic.Int64
	s := openWith(t, sqlite.Options{Path: path}, engine.Options{Observe: func(c engine.Commit) {
		if c.Err != nil || c.Items < 1 || c.Took <= 0 {
			t.Errorf("observed %+v", c)
		}
		commits.Add(1)
		messages.Add(int64(c.Messages))
	}})
	ctx := t.Context()
	const writers, each = 8, 60
	long := strings.Repeat("word ", 20_000)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			if _, _, err := s.Create(ctx, agent("p", w), 0, memory.Change{}); err != nil {
				t.Error(err)
			}
			for range each {
				if err := s.Update(ctx, "p", agent("p", w).ID, appendOne(long)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if messages.Load() != writers*each || commits.Load() < each {
		t.Errorf("%d messages in %d commits were observed", messages.Load(), commits.Load())
	}
	info, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	if written := int64(writers * each * len(long)); info.Size() > written/2 {
		t.Errorf("%d bytes of log for %d bytes of messages", info.Size(), written)
	}
}

// TestSweepGoesOn erases an agent whose rows need several slices, after a sweep that was cut short.
func TestSweepGoesOn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.db")
	s := open(t, sqlite.Options{Path: path})
	ctx := t.Context()
	a := agent("p", 1)
	var c memory.Change
	for i := range int64(3000) {
		c.Append = append(c.Append, memory.Message{Seq: i + 1, Rev: 2, Role: memory.User, Content: "x", TurnID: i})
	}
	if _, _, err := s.Create(ctx, a, 0, c); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// What a kill after the first slice leaves.
	rawSQL(t, path, "INSERT INTO erased SELECT no FROM agent; DELETE FROM agent_settings; DELETE FROM agent; DELETE FROM message WHERE seq < 100")
	s = open(t, sqlite.Options{Path: path})
	// The same id again: what is left of the old one is not its own.
	if _, _, err := s.Create(ctx, a, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
	if _, list, err := s.Recent(ctx, "p", a.ID, 10, false); err != nil || len(list) != 0 {
		t.Fatalf("the new agent has %d messages: %v", len(list), err)
	}
	if n, err := s.Sweep(ctx, 1, 10); err != nil || n != 0 {
		t.Fatalf("swept %d: %v", n, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	rawSQL(t, path, "CREATE TABLE check_empty (n CHECK (n = 0)); INSERT INTO check_empty SELECT count(*) FROM message UNION ALL SELECT count(*) FROM erased")
}
