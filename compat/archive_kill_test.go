package compat_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestKillArchive kills the server again and again while it moves calls into an archive, and while
// changes bring some back. No message is lost, no call has its messages twice, and neither the
// store nor the archive has a fault.
func TestKillArchive(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		killArchive(t, "HEARDLOG_STORE=sqlite:"+filepath.Join(t.TempDir(), "heardlog.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		killArchive(t, database(t))
	})
}

func killArchive(t *testing.T, store string) {
	env := []string{store, "HEARDLOG_SECRET_KEY=a key that is long enough"}
	s := start(t, env...)
	want := map[string][]message{}
	for i := range 80 {
		id := s.join(t, fmt.Sprint("call-", i), nil)
		for n := range 3 {
			batch := []object{}
			for k := range 10 {
				batch = append(batch, object{"role": []string{"user", "assistant"}[k%2], "content": fmt.Sprintf("message %d of turn %d of call %d", k, n, i)})
			}
			s.call(t, 200, "POST", "/v1/agents/"+id+"/messages", object{"messages": batch}, nil)
		}
		s.call(t, 200, "POST", "/v1/agents/"+id+"/leave", nil, nil)
		want[id] = s.ledger(t, id)
	}
	s.kill()
	dir := filepath.Join(t.TempDir(), "archive")
	env = append(env, "HEARDLOG_ARCHIVE="+dir, "HEARDLOG_ARCHIVE_AFTER=1ms")
	for round := range 12 {
		s = start(t, env...)
		end := time.After(rand.N(time.Duration(round+1) * 15 * time.Millisecond))
		done := make(chan struct{})
		go func() { // brings some back
			defer close(done)
			n := 0
			for id := range want {
				if n++; n > 10 {
					return
				}
				if _, ok := tried(s.url, "POST", "/v1/agents/"+id+"/scores", `{"name":"n","value":1}`); !ok {
					return
				}
			}
		}()
		<-end
		s.kill()
		<-done
	}
	s = start(t, env...)
	for id, list := range want {
		got := s.ledger(t, id)
		if fmt.Sprint(got) != fmt.Sprint(list) {
			t.Errorf("agent %s has %d messages, want %d", id, len(got), len(list))
		}
	}
	objects := 0
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !strings.Contains(path, ".part-") {
			objects++
		}
		return nil
	})
	if objects < 20 {
		t.Errorf("only %d objects were written", objects)
	}
	s.kill()
	for _, args := range [][]string{{"verify"}, {"verify", "--archive", dir}} {
		p := run(t, program(t, "api"), args, env...)
		if code := p.wait(t); code != 0 {
			t.Errorf("%q: code %d, %s%s", args, code, p.stdout.String(), p.stderr.String())
		}
	}
}
