package export_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/export"
	"github.com/heardlog/heardlog/memory/inmem"
	"github.com/heardlog/heardlog/memory/redis"
	"github.com/heardlog/heardlog/memory/redis/redistest"
)

// records gives the lines of an export between its first and its last, without their order.
func records(text string) []string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return slices.Sorted(slices.Values(lines[1 : len(lines)-1]))
}

// TestFromRedis: what a Redis store gives is what another gives that holds the same, whole and in parts, beside the server that has it; put into an empty store of any driver it is given again
// byte for byte.
func TestFromRedis(t *testing.T) {
	t.Parallel()
	o := redis.Options{URL: redistest.URL(t), SealKey: []byte("of redis")}
	if _, err := redis.OpenReader(t.Context(), o); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "prefix") {
		t.Errorf("a prefix that nobody has used: %v", err)
	}
	s := must(redis.Open(t.Context(), o))
	defer s.Close()
	fillMemories(t, s, false)
	same := inmem.New()
	fillMemories(t, same, false)
	if _, err := redis.OpenReader(t.Context(), redis.Options{URL: o.URL, SealKey: []byte("another")}); !fault.Is(err, fault.Invalid) {
		t.Errorf("the wrong key: %v", err)
	}
	source := must(redis.OpenReader(t.Context(), o))
	defer source.Close()
	if bad := findings(t, source); len(bad) > 0 {
		t.Errorf("the source has %q", bad)
	}
	for _, tt := range []struct {
		name    string
		scope   export.Scope
		secrets bool
	}{
		{"whole", export.Scope{}, true}, {"without secrets", export.Scope{}, false}, {"a project", export.Scope{Project: "p"}, true}, {"an agent", export.Scope{Project: "p", Agent: "a"}, true},
	} {
		want := dump(t, source, tt.scope, tt.secrets)
		if hidden := strings.Contains(want, "hidden"); hidden != tt.secrets {
			t.Errorf("%s: secrets are in the export: %t, want %t", tt.name, hidden, tt.secrets)
		}
		if d := cmp.Diff(records(dump(t, same, tt.scope, tt.secrets)), records(want)); d != "" {
			t.Errorf("%s (-another store's +got):\n%s", tt.name, d)
		}
		for to, open := range places() {
			b := open(t)
			target, done := b.target(t)
			if _, _, err := export.Read(t.Context(), strings.NewReader(want), target, nil); err != nil {
				t.Fatalf("%s to %s: %v", tt.name, to, err)
			}
			done()
			copied := b.read(t)
			if d := cmp.Diff(strings.Split(want, "\n"), strings.Split(dump(t, copied, tt.scope, tt.secrets), "\n")); d != "" {
				t.Errorf("%s to %s (-want +got):\n%s", tt.name, to, d)
			}
			if bad := findings(t, copied); len(bad) > 0 {
				t.Errorf("%s: the copy in %s has %q", tt.name, to, bad)
			}
		}
	}
	err := source.Export(t.Context(), export.Scope{Project: "p", Agent: "nobody"}, func(export.Record) error { return nil })
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("an agent that is not there: %v", err)
	}
}

// TestFromRedisLong reads a ledger that is longer than one script takes, whose last messages are written while it is read: what comes is of one moment. An agent whose entry is lost is found all the same, and
// Verify names it.
func TestFromRedisLong(t *testing.T) {
	t.Parallel()
	const long, batch = 5_500, 500
	url := redistest.URL(t)
	s := must(redis.Open(t.Context(), redis.Options{URL: url}))
	for _, a := range []memory.Agent{{ID: "long", Project: "p", Status: memory.Running, StartMS: 1, Rev: 1}, {ID: "lost", Project: "p", Status: memory.Running, StartMS: 2, Rev: 1}} {
		if _, _, err := s.Create(t.Context(), a, 0, memory.Change{}); err != nil {
			t.Fatal(err)
		}
	}
	more := func(n int) error {
		return s.Update(t.Context(), "p", "long", func(tx memory.AgentView) (c memory.Change, err error) {
			h := tx.Head()
			for i := range n {
				c.Append = append(c.Append, memory.Message{Seq: h.NextSeq + int64(i), Rev: h.Rev + 1, TurnID: h.LastTurn + 1, Role: memory.User, Content: fmt.Sprint("message ", h.NextSeq+int64(i))})
			}
			return c, nil
		})
	}
	for range long / batch {
		if err := more(batch); err != nil {
			t.Fatal(err)
		}
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := more(1); err != nil {
				done <- err
				return
			}
		}
	}()
	source := must(redis.OpenReader(t.Context(), redis.Options{URL: url}))
	defer source.Close()
	whole := func() {
		t.Helper()
		var head *export.Agent
		var seqs, agents int64
		err := source.Export(t.Context(), export.Scope{Project: "p"}, func(r export.Record) error {
			switch {
			case r.Agent != nil && r.Agent.ID == "long":
				head = r.Agent
				fallthrough
			case r.Agent != nil:
				agents++
			case r.Message != nil:
				if seqs++; r.Message.Seq != seqs {
					return fmt.Errorf("message %d stands in place %d", r.Message.Seq, seqs)
				}
			}
			return nil
		})
		if err != nil || agents != 2 || head == nil || seqs != head.NextSeq-1 || seqs < long {
			t.Fatalf("%d agents, %d messages, head %+v: %v", agents, seqs, head, err)
		}
	}
	whole()
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil { // it would write the entry anew
		t.Error(err)
	}
	redistest.Do(t, url, "HDEL", s.ProjectTag("p")+":info", "lost")
	whole()
	if bad := findings(t, source); len(bad) != 1 || !strings.Contains(bad[0], "p lost nothing finds it") {
		t.Errorf("findings: %q", bad)
	}
}
