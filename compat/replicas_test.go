package compat_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// database makes a schema of the test's own on the PostgreSQL server that answers and gives the setting of a store in it. Without a server, or without psql, the
// test is skipped at a desk and fails in CI.
func database(t *testing.T) string {
	t.Helper()
	base := os.Getenv("TEST_POSTGRES_URL")
	if base == "" {
		base = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
	}
	schema := fmt.Sprintf("compat_%d_%d", os.Getpid(), time.Now().UnixNano())
	sql := func(text string) error {
		out, err := exec.CommandContext(within(t, patience), "psql", "-q", "-X", "-v", "ON_ERROR_STOP=1", base, "-c", text).CombinedOutput()
		if err != nil {
			return fmt.Errorf("psql: %w: %s", err, out)
		}
		return nil
	}
	if err := sql("CREATE SCHEMA " + schema); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() {
		out, err := exec.Command("psql", "-q", "-X", base, "-c", "SET client_min_messages = error", "-c", "DROP SCHEMA "+schema+" CASCADE").CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	sep := "?"
	if strings.Contains(base, "?") {
		sep = "&"
	}
	return "HEARDLOG_STORE=" + base + sep + "search_path=" + schema
}

// TestReplicasKilled has three servers on one database, one of which is killed again and again while all are written to: nothing that was acknowledged is lost or there
// twice, no number is given twice, and agents of the dead are everybody's.
func TestReplicasKilled(t *testing.T) {
	t.Parallel()
	store := database(t)
	const agents, writers, kills, each = 4, 8, 6, 60
	var servers [3]atomic.Pointer[server]
	for i := range servers {
		servers[i].Store(start(t, store))
	}
	var ids []string
	for n := range agents {
		ids = append(ids, servers[n%3].Load().join(t, fmt.Sprint("agent ", n), nil))
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	acked := make([][]string, writers)
	var total atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				s, text := servers[(w+n)%3].Load(), fmt.Sprintf("%d/%d", w, n)
				status, body, err := s.try(context.WithoutCancel(ctx), "POST", "/v1/agents/"+ids[w%agents]+"/messages", object{"messages": []object{{"id": text, "role": "user", "content": text}}})
				switch {
				case err != nil: // it was killed
				case status == 200:
					acked[w] = append(acked[w], text)
					total.Add(1)
				case status != 503:
					t.Errorf("append: %d %s", status, body)
					return
				}
			}
		})
	}
	for k := range kills {
		want := total.Load() + each
		eventually(t, "writes go on", func() bool { return total.Load() >= want })
		servers[k%3].Load().kill()
		servers[k%3].Store(start(t, store))
	}
	want := total.Load() + each
	eventually(t, "writes go on", func() bool { return total.Load() >= want })
	stop()
	wg.Wait()
	for n, id := range ids {
		seen := map[string]int{}
		list := servers[n%3].Load().ledger(t, id)
		for i, m := range list {
			seen[m.Content]++
			if m.Seq != int64(i+1) {
				t.Fatalf("agent %d: message %d has seq %d", n, i, m.Seq)
			}
		}
		checkOrder(t, id, list)
		for w := n; w < writers; w += agents {
			for _, text := range acked[w] {
				if seen[text] != 1 {
					t.Errorf("%q was acknowledged and is there %d times", text, seen[text])
				}
			}
		}
		for text, times := range seen {
			if times > 1 {
				t.Errorf("%q is there %d times", text, times)
			}
		}
		servers[(n+1)%3].Load().call(t, 200, "POST", "/v1/agents/"+id+"/leave", nil, nil)
	}
}
