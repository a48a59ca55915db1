package handlers_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/heardlog/heardlog/handlers"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// TestSnapshotBounds checks that a snapshot may be longer than other bodies. One that is too large
// to be restored says so when it is read, and the refusal names the limit.
func TestSnapshotBounds(t *testing.T) {
	t.Parallel()
	srv, mem := newAPI(t, func(c *handlers.Config) { c.MaxBody = 4 << 20 })
	call := func(method, id string, body []byte) (int, []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+"/v1/agents/"+id+"/snapshot", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		out, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, out
	}
	reason := func(snapshot []byte) string {
		t.Helper()
		var out struct {
			Not string `json:"not_restorable"`
		}
		if err := json.Unmarshal(snapshot, &out); err != nil {
			t.Fatal(err)
		}
		return out.Not
	}
	join := func() string {
		t.Helper()
		a, err := mem.Agents.Join(t.Context(), agents.JoinRequest{Project: "p", Name: uuid.NewString(), Settings: memory.Settings{IdleTimeoutS: -1}})
		if err != nil {
			t.Fatal(err)
		}
		return a.ID
	}
	add := func(id string, msgs []memory.Message) {
		t.Helper()
		if _, err := mem.Messages.Append(t.Context(), "p", id, msgs); err != nil {
			t.Fatal(err)
		}
	}
	long, many := join(), join()
	batch := make([]memory.Message, 50)
	for i := range batch {
		// 100 KB.
		batch[i] = memory.Message{Role: memory.User, Source: memory.SourceASR, Content: strings.Repeat("word ", 20_000)}
	}
	add(long, batch)
	status, got := call(http.MethodGet, long, nil)
	if status != http.StatusOK || len(got) < 5_000_000 || reason(got) != "" {
		t.Fatalf("status %d, %d bytes, %q", status, len(got), reason(got))
	}
	if status, out := call(http.MethodPut, long, got); status != http.StatusOK {
		t.Errorf("5 MB are restored with %d: %s", status, out)
	}
	for range 3 {
		add(long, batch)
	}
	status, got = call(http.MethodGet, long, nil)
	if status != http.StatusOK || !strings.Contains(reason(got), "16777216 bytes") {
		t.Errorf("status %d, %d bytes, %q", status, len(got), reason(got))
	}
	if status, out := call(http.MethodPut, long, got); status != http.StatusRequestEntityTooLarge || !strings.Contains(string(out), "16777216") {
		t.Errorf("20 MB are restored with %d: %s", status, out)
	}
	batch = make([]memory.Message, memory.MaxBatch)
	for i := range batch {
		batch[i] = memory.Message{Role: memory.User, Source: memory.SourceASR, Content: "a"}
	}
	for range memory.MaxSnapshot / memory.MaxBatch {
		add(many, batch)
	}
	add(many, batch[:1])
	status, got = call(http.MethodGet, many, nil)
	if status != http.StatusOK || !strings.Contains(reason(got), "10001 messages") {
		t.Errorf("status %d, %q", status, reason(got))
	}
	if status, out := call(http.MethodPut, many, got); status != http.StatusBadRequest || !strings.Contains(string(out), "at most 10000") {
		t.Errorf("10001 messages are restored with %d: %s", status, out)
	}
}
