package compat_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// learner stores entries, feedback and imports until the server is gone, and notes what was
// acknowledged. Its last call of each kind may have been stored without an answer.
type learner struct {
	name    string
	puts    int
	reports int
	imports []string // the keys of imports that were sent
}

// call makes a call under /v1 and reports whether it succeeded, and with what.
func (l *learner) call(base, method, path, key, body string) (string, bool) {
	r, err := http.NewRequest(method, base+"/v1/"+path, strings.NewReader(body))
	if err != nil {
		return "", false
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", false
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	return string(b), err == nil && answer.StatusCode < 300
}

func (l *learner) put(base string, n int) bool {
	_, ok := l.call(base, "PUT", fmt.Sprintf("knowledge/b/entries/%s-%d", l.name, n), "", fmt.Sprintf(`{"content":"entry %d of %s"}`, n, l.name))
	return ok
}

func (l *learner) report(base string, n int) (string, bool) {
	return l.call(base, "POST", "patterns/"+l.name+"/feedback", fmt.Sprintf("%s-%d", l.name, n), `{"outcome":"good"}`)
}

const killedLines = 300

// load sends an import of a document with the key as its name.
func (l *learner) load(base, key string) (string, bool) {
	var lines strings.Builder
	for i := range killedLines {
		fmt.Fprintf(&lines, `{"id":"%s-%d","content":"line %[2]d of %[1]s"}`+"\n", key, i)
	}
	body, err := json.Marshal(map[string]string{"document": key, "format": "jsonl", "content": lines.String()})
	if err != nil {
		return "", false
	}
	return l.call(base, "POST", "knowledge/b/imports", key, string(body))
}

func (l *learner) run(base string, round int) {
	for n := 0; ; n++ {
		if !l.put(base, l.puts) {
			return
		}
		l.puts++
		if _, ok := l.report(base, l.reports); !ok {
			return
		}
		l.reports++
		if n == 5 {
			key := fmt.Sprintf("%s-import-%d", l.name, round)
			l.imports = append(l.imports, key)
			if _, ok := l.load(base, key); !ok {
				return
			}
		}
	}
}

// check wants what was acknowledged, and repeats the calls whose answers never came.
func (l *learner) check(t *testing.T, base string) {
	t.Helper()
	for i := range l.puts {
		got, ok := l.call(base, "GET", fmt.Sprintf("knowledge/b/entries/%s-%d", l.name, i), "", "")
		if !ok || !strings.Contains(got, fmt.Sprintf(`"version":1,"content":"entry %d of %s"`, i, l.name)) {
			t.Errorf("entry %d of %s is lost: %s", i, l.name, got)
		}
	}
	if l.puts > 0 {
		if got, ok := l.call(base, "POST", "knowledge/b/search", "", fmt.Sprintf(`{"query":"%s","k":1}`, l.name)); !ok || !strings.Contains(got, "of "+l.name) {
			t.Errorf("an entry of %s is not found: %s", l.name, got)
		}
	}
	// The repeat counts once, whether its first time was stored or not.
	if got, ok := l.report(base, l.reports); !ok || !strings.Contains(got, fmt.Sprintf(`"good":%d,`, l.reports+1)) {
		t.Errorf("the feedback on %s should be %d: %s", l.name, l.reports+1, got)
	}
	l.reports++
}

// loaded waits until an import, which is sent again, has ended, and wants each of its entries once.
func (l *learner) loaded(t *testing.T, base, key string) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(5 * time.Minute); ; <-tick.C {
		got, _ := l.load(base, key) // 503 as long as the first call may still be starting it
		if strings.Contains(got, `"state":"done"`) {
			if !strings.Contains(got, fmt.Sprintf(`"total":%d,"done":%[1]d,"failed":0,"removed":0`, killedLines)) {
				t.Errorf("%s ended so: %s", key, got)
			}
			break
		}
		if time.Now().After(end) || strings.Contains(got, `"state":"failed"`) {
			t.Fatalf("%s is not done: %s", key, got)
		}
	}
	for i := range killedLines {
		got, ok := l.call(base, "GET", fmt.Sprintf("knowledge/b/entries/%s-%d", key, i), "", "")
		if !ok || !strings.Contains(got, fmt.Sprintf(`"version":1,"content":"line %d of %s"`, i, key)) {
			t.Errorf("line %d of %s: %s", i, key, got)
		}
	}
}

// TestKillKnowledge kills the server repeatedly while entries, feedback and imports are stored.
// Nothing acknowledged is lost, repeated feedback counts once, and each import comes to its end
// with every entry once.
func TestKillKnowledge(t *testing.T) {
	t.Parallel()
	env := []string{"HEARDLOG_STORE=sqlite:" + filepath.Join(t.TempDir(), "heardlog.db")}
	learners := []*learner{{name: "alice"}, {name: "bruno"}, {name: "celia"}}
	s := start(t, env...)
	for _, l := range learners {
		if _, ok := l.call(s.url, "PUT", "knowledge/b", "", `{}`); !ok {
			t.Fatal("the base could not be created")
		}
		if _, ok := l.call(s.url, "PUT", "patterns/"+l.name, "", `{"type":"tool_usage","content":"x","half_life_days":0}`); !ok {
			t.Fatal("the pattern could not be created")
		}
	}
	for round := range 5 {
		before := learners[0].puts
		var wg sync.WaitGroup
		for _, l := range learners {
			wg.Go(func() { l.run(s.url, round) })
		}
		end := time.Now().Add(time.Minute)
		for reached := false; !reached; {
			if time.Now().After(end) {
				t.Fatal("the calls do not go on")
			}
			_, reached = learners[0].call(s.url, "GET", fmt.Sprintf("knowledge/b/entries/alice-%d", before+8), "", "")
		}
		s.kill()
		wg.Wait()
		s = start(t, env...)
		for _, l := range learners {
			l.check(t, s.url)
		}
	}
	for _, l := range learners {
		for _, key := range l.imports {
			l.loaded(t, s.url, key)
		}
	}
}
