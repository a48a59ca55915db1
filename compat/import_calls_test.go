package compat_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestImportCallsKill kills an import of calls, and the server that it runs for itself with it, at
// several moments, and runs it again. Every call is filed once, with all of its messages.
func TestImportCallsKill(t *testing.T) {
	t.Parallel()
	const calls = 2000
	var b strings.Builder
	for i := range calls {
		at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(calls-i) * time.Minute)
		fmt.Fprintf(&b, `{"id":"v-%d","status":"ended","startedAt":%q,"endedAt":%q,"customer":{"number":"+4930%06d"},"artifact":{"messages":[{"role":"user","message":"Question %d?","time":%d},{"role":"bot","message":"Answer %d.","time":%d}]}}`+"\n",
			i, at.Format(time.RFC3339), at.Add(time.Minute).Format(time.RFC3339), i%100, i, at.UnixMilli(), i, at.UnixMilli()+1000)
	}
	file := filepath.Join(t.TempDir(), "calls.jsonl")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(t.TempDir(), "h.db")
	settings := []string{"HEARDLOG_STORE=sqlite:" + store, "HEARDLOG_ADDR=127.0.0.1:0", "HEARDLOG_RETENTION=0"}
	args := []string{"import-calls", "vapi", "--file", file, "--server", ""}
	s := start(t, settings...)
	for _, part := range []time.Duration{300, 700, 1500} {
		args[5] = s.url
		p := run(t, program(t, "api"), args)
		alarm := time.NewTimer(part * time.Millisecond)
		select {
		case <-alarm.C:
		case <-p.done:
		}
		alarm.Stop()
		s.kill() // first, so that the import sees it go
		p.kill()
		s = start(t, settings...)
	}
	for _, want := range []string{"known", fmt.Sprintf("%d known", calls)} {
		args[5] = s.url
		p := run(t, program(t, "api"), args)
		if _, errs, code := p.ended(t); code != 0 || !strings.Contains(errs, want) {
			t.Fatalf("code %d: %s", code, errs)
		}
	}
	var page struct {
		Agents []struct {
			Messages int
		}
		Next string `json:"next_cursor"`
	}
	found := 0
	for cursor := ""; ; cursor = page.Next {
		page.Next = ""
		page.Agents = nil
		s.call(t, http.StatusOK, http.MethodGet, "/v1/agents?limit=100&cursor="+cursor, nil, &page)
		for _, a := range page.Agents {
			if found++; a.Messages != 2 {
				t.Fatalf("a call has %d messages", a.Messages)
			}
		}
		if page.Next == "" {
			break
		}
	}
	if found != calls {
		t.Errorf("%d calls, want %d", found, calls)
	}
	s.kill()
	if out, errs, code := subcommand(t, store, "verify"); code != 0 {
		t.Errorf("verify: %d %s %s", code, out, errs)
	}
}

// TestImportCallsAlone imports without a server: the command runs one meanwhile.
func TestImportCallsAlone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "call.json")
	if err := os.WriteFile(file, []byte(`{"call_id":"r1","call_status":"ended","start_timestamp":1780000000000,"end_timestamp":1780000060000,"transcript_object":[{"role":"user","content":"Hello?"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	memories := filepath.Join(t.TempDir(), "mem0.json")
	if err := os.WriteFile(memories, []byte(`[{"id":"m1","memory":"Likes tea","user_id":"anna","created_at":"2025-01-02T00:00:00Z","updated_at":"2025-02-02T00:00:00Z"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(t.TempDir(), "h.db")
	// The port of a server that has ended: nothing listens there.
	s := start(t)
	addr := strings.TrimPrefix(s.url, "http://")
	s.kill()
	settings := []string{"HEARDLOG_STORE=sqlite:" + store, "HEARDLOG_ADDR=" + addr, "HEARDLOG_RETENTION=0"}
	for _, want := range []string{"1 filed", "1 known"} {
		for _, args := range [][]string{{"import-calls", "retell", "--file", file}, {"import-memory", "mem0", "--file", memories}} {
			p := run(t, program(t, "api"), args, settings...)
			if _, errs, code := p.ended(t); code != 0 || !strings.Contains(errs, want) {
				t.Fatalf("%v: code %d: %s, want %s", args, code, errs, want)
			}
		}
	}
	s = start(t, "HEARDLOG_STORE=sqlite:"+store, "HEARDLOG_RETENTION=0")
	if got := s.historyOf(t, "r1"); len(got) != 1 || got[0].Content != "Hello?" {
		t.Errorf("%+v", got)
	}
	var list struct {
		Facts []struct {
			Content, By string
			SeenAt      string `json:"last_seen_at"`
		}
	}
	s.call(t, http.StatusOK, http.MethodGet, "/v1/users/anna/facts", nil, &list)
	if len(list.Facts) != 1 || list.Facts[0].By != "imported" || list.Facts[0].SeenAt != "2025-02-02T00:00:00.000Z" {
		t.Errorf("%+v", list)
	}
}
