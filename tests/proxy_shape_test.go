package tests

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/internal/peek"
)

// strict is an LLM with a chat template that wants one system message, and user and assistant in
// turn. It keeps what it was sent.
type strict struct {
	mu   sync.Mutex
	seen []string // the roles of each request
}

func (l *strict) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var roles []string
	for _, m := range peek.At(body, "messages").List() {
		roles = append(roles, m.Path("role").Text())
	}
	l.mu.Lock()
	l.seen = append(l.seen, strings.Join(roles, " "))
	l.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	next := "user"
	for i, role := range roles {
		if role == "system" && i == 0 {
			continue
		}
		if role != next {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"Conversation roles must alternate user/assistant/user/assistant/..."}}`)
			return
		}
		next = map[string]string{"user": "assistant", "assistant": "user"}[role]
	}
	_, _ = io.WriteString(w, completion("stop", `{"role":"assistant","content":"At nine."}`))
}

// TestShape: an LLM that refuses the order of the messages gets them in its order, by itself after
// the first complaint, and at once where llm.shape says so.
func TestShape(t *testing.T) {
	t.Parallel()
	for _, shape := range []string{"", "alternate"} {
		llm := &strict{}
		srv := httptest.NewServer(llm)
		t.Cleanup(srv.Close)
		s := start(t, "HEARDLOG_LLM_URL="+srv.URL+"/v1")
		id := s.join("n"+shape, map[string]any{"llm": map[string]any{
			"shape": shape, "greeting_message": "Hello.", "system_messages": []any{map[string]any{"role": "system", "content": "Be brief."}},
		}})
		for n := range 3 {
			s.post(agent(id, "/chat/completions"), fmt.Sprintf(`{"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"When %d?"}]}`, n), "X-Heardlog-Mode", "inject").ok(nil)
		}
		want := []string{"system user", "system user assistant user", "system user assistant user assistant user"}
		for i := range want {
			want[i] = strings.Replace(want[i], "system user", "system user assistant user", 1)
		}
		if shape == "" { // the first is refused
			want = append([]string{"system system assistant user"}, want...)
		}
		if got := strings.Join(llm.seen, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("%q: the LLM was sent\n%s\nwant\n%s", shape, got, strings.Join(want, "\n"))
		}
		if warned := strings.Contains(s.log.String(), "refused the order"); warned != (shape == "") {
			t.Errorf("%q: warned %v", shape, warned)
		}
	}
}

// turnByTurn is an LLM that gives its answers one after the other, and fails with 500 for "".
type turnByTurn struct {
	mu      sync.Mutex
	answers []string
	seen    []string // the messages of each request
}

func (l *turnByTurn) serve(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(l)
	t.Cleanup(srv.Close)
	return srv.URL + "/v1"
}

func (l *turnByTurn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, string(peek.At(body, "messages")))
	if n := len(l.seen) - 1; err == nil && n < len(l.answers) && l.answers[n] != "" {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, l.answers[n])
		return
	}
	w.WriteHeader(http.StatusInternalServerError)
}
