package heardlog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/app"
	"github.com/heardlog/heardlog/internal/spectest"
	heardlog "github.com/heardlog/heardlog/sdk/go"
)

// openAPI is the description of the API, read once.
var openAPI = sync.OnceValues(func() (*spectest.Spec, error) {
	document, err := os.ReadFile("../../openapi.yaml")
	if err != nil {
		return nil, err
	}
	return spectest.Load(context.Background(), document)
})

// start runs a server until the test ends. It returns its URL and an HTTP client that checks every
// answer against openapi.yaml.
func start(t *testing.T, env ...string) (string, *http.Client) {
	t.Helper()
	all := append([]string{"HEARDLOG_ADDR=127.0.0.1:0", "HEARDLOG_STORE=sqlite:" + filepath.Join(t.TempDir(), "heardlog.db")}, env...)
	c, err := config.Load(func(name string) string {
		for _, e := range all {
			if v, ok := strings.CutPrefix(e, name+"="); ok {
				return v
			}
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := openAPI()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a, err := app.New(ctx, c, zerolog.Nop())
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	tr := &http.Transport{}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return "http://" + a.Addr(), &http.Client{Transport: spec.Transport(t, tr)}
}

func client(t *testing.T, c heardlog.Config) *heardlog.Client {
	t.Helper()
	out, err := heardlog.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func texts(messages []heardlog.Message) []string {
	var out []string
	for _, m := range messages {
		out = append(out, m.Role+": "+strings.TrimSpace(m.Text()))
	}
	return out
}

func TestCall(t *testing.T) {
	t.Parallel()
	url, checked := start(t)
	c := client(t, heardlog.Config{URL: url, HTTP: checked})
	ctx := t.Context()
	a, err := c.Start(ctx, "desk", heardlog.StartOptions{
		UserID: "anna", SessionID: "s1", System: "Be brief.", Greeting: "Hello.", Labels: map[string]string{"a": "b"}, Keys: []string{"test.call:1"}, IdleTimeout: 60,
		Properties: map[string]any{"llm": map[string]any{"max_history": 9}},
	})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := a.Append(ctx, heardlog.Message{Role: "user", Content: "When is my train?"}, heardlog.Message{Role: "assistant", Content: "The train leaves at nine from platform two."})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Interrupt(ctx, heardlog.Heard{Text: "The train leaves", TurnID: stored[1].TurnID}); err != nil {
		t.Fatal(err)
	}
	history, err := a.History(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"user: When is my train?", "assistant: The train leaves"}
	if diff := cmp.Diff(want, texts(history)[len(history)-2:]); diff != "" {
		t.Error("history", diff)
	}
	entries, err := a.Messages(ctx, stored[0].Seq)
	if err != nil {
		t.Fatal(err)
	}
	if e := entries[0]; e.Generated != "The train leaves at nine from platform two." || strings.TrimSpace(e.Heard) != "The train leaves" || e.Evidence == nil || e.Evidence.Method != "vendor_text" {
		t.Errorf("the ledger has %+v", e)
	}
	prompt, err := a.Context(ctx, "And now?")
	if err != nil {
		t.Fatal(err)
	}
	if got := texts(prompt); got[0] != "system: Be brief." || got[len(got)-1] != "user: And now?" {
		t.Errorf("context %q", got)
	}
	hits, err := c.Recall(ctx, "anna", "train", 5)
	if err != nil || len(hits) == 0 || !strings.Contains(hits[0].Content, "train") {
		t.Errorf("recall %v, %v", hits, err)
	}
	if err := c.Evidence(ctx, "livekit", map[string]any{"type": "nothing"}, a.Header()); err != nil {
		t.Error(err)
	}
	if err := a.Evidence(ctx, "livekit", map[string]any{"type": "nothing"}); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := a.Leave(ctx); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.Append(ctx, heardlog.Message{Role: "user", Content: "Too late."}); status(err) != http.StatusGone {
		t.Errorf("append to an agent that has ended: %v", err)
	}
}

func status(err error) int {
	if e, ok := errors.AsType[*heardlog.Error](err); ok {
		return e.Status
	}
	return -1
}

func TestFacts(t *testing.T) {
	t.Parallel()
	url, checked := start(t)
	c := client(t, heardlog.Config{URL: url, HTTP: checked})
	const user = "anna/1 ü"
	added, err := c.AddFact(t.Context(), user, heardlog.Fact{Content: "Likes window seats.", Topics: []string{"travel"}})
	if err != nil {
		t.Fatal(err)
	}
	facts, err := c.Facts(t.Context(), user)
	if err != nil || len(facts) != 1 || facts[0].Content != "Likes window seats." {
		t.Errorf("facts %v, %v", facts, err)
	}
	for range 2 {
		if err := c.DeleteFact(t.Context(), user, added.ID); err != nil {
			t.Error(err)
		}
	}
	if facts, err = c.Facts(t.Context(), user); err != nil || len(facts) != 0 {
		t.Errorf("facts %v, %v", facts, err)
	}
}

// TestOpenAI asks as an OpenAI client does: with the agent's base URL, and with headers.
func TestOpenAI(t *testing.T) {
	t.Parallel()
	llm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"At nine."}}]}`)
	}))
	t.Cleanup(llm.Close)
	const secret = "key:s3cr3t-s3cr3t-s3cr3t"
	url, checked := start(t, "HEARDLOG_LLM_URL="+llm.URL+"/v1", "HEARDLOG_CREDENTIALS=p1="+secret)
	c := client(t, heardlog.Config{URL: url, HTTP: checked, Secret: secret})
	a, err := c.Start(t.Context(), "desk", heardlog.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []struct {
		base   string
		header http.Header
	}{{a.URL(), c.Header()}, {c.URL(), a.Header()}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to.base+"/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"When?"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = to.header.Clone()
		req.Header.Set("Content-Type", "application/json")
		res, err := checked.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || res.Header.Get("X-Heardlog-Agent") != a.ID {
			t.Errorf("%s: %s %s, %v", to.base, res.Status, body, err)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	const secret = "key:s3cr3t-s3cr3t-s3cr3t"
	url, checked := start(t, "HEARDLOG_CREDENTIALS=p1="+secret)
	c := client(t, heardlog.Config{URL: url, HTTP: checked, Secret: secret})
	a, err := c.Start(t.Context(), "desk", heardlog.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Append(t.Context(), heardlog.Message{Role: "nobody", Content: "x"})
	e, ok := errors.AsType[*heardlog.Error](err)
	if !ok || e.Status != http.StatusBadRequest || e.Reason != "InvalidFieldValue" || !strings.HasSuffix(e.Field, "role") || e.RequestID == "" {
		t.Errorf("a wrong role: %#v", err)
	}
	_, err = c.Start(t.Context(), "desk", heardlog.StartOptions{})
	if e, ok = errors.AsType[*heardlog.Error](err); !ok || e.Status != http.StatusConflict || e.AgentID != a.ID {
		t.Errorf("a name that is taken: %#v", err)
	}
	_, err = client(t, heardlog.Config{URL: url, HTTP: checked, Secret: "wrong-wrong-wrong"}).Start(t.Context(), "x", heardlog.StartOptions{})
	if status(err) != http.StatusUnauthorized || strings.Contains(err.Error(), "wrong-wrong") {
		t.Errorf("a wrong secret: %v", err)
	}
	for _, tt := range []struct{ url, want string }{
		{"ftp://x", "must begin with"}, {"http://a:b@x", "must not contain credentials"}, {"http://x?y=z", "must not have a query"}, {"http://[", "is not a URL"},
	} {
		if _, err := heardlog.New(heardlog.Config{URL: tt.url}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.url, err, tt.want)
		}
	}
	if got := client(t, heardlog.Config{URL: "http://127.0.0.1:1"}).URL(); got != "http://127.0.0.1:1/v1" {
		t.Errorf("a URL without a path became %s", got)
	}
}

// lossy loses every second answer on its way back.
type lossy struct {
	next http.RoundTripper

	mu   sync.Mutex
	keys []string
}

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := l.next.RoundTrip(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Method != http.MethodPost || err != nil {
		return res, err
	}
	l.keys = append(l.keys, r.Header.Get("Idempotency-Key"))
	if len(l.keys)%2 == 1 {
		res.Body.Close()
		return nil, errors.New("the connection broke")
	}
	return res, nil
}

// TestRetries loses answers of calls that were carried out. The repeats have the same key, so
// nothing is stored twice.
func TestRetries(t *testing.T) {
	t.Parallel()
	url, checked := start(t)
	l := &lossy{next: checked.Transport}
	c := client(t, heardlog.Config{URL: url, HTTP: &http.Client{Transport: l}})
	a, err := c.Start(t.Context(), "desk", heardlog.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Append(t.Context(), heardlog.Message{Role: "user", Content: "Once."}); err != nil {
		t.Fatal(err)
	}
	history, err := a.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"user: Once."}, texts(history)); diff != "" {
		t.Error(diff)
	}
	if k := l.keys; len(k) != 4 || k[0] == "" || k[0] != k[1] || k[2] != k[3] || k[0] == k[2] {
		t.Errorf("keys %q", k)
	}
}

// TestWhatIsRepeated counts the attempts of calls that fail.
func TestWhatIsRepeated(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		status   int
		request  heardlog.Request
		attempts int
	}{
		{"a busy server", 503, heardlog.Request{Method: http.MethodGet}, 3},
		{"too many calls", 429, heardlog.Request{Method: http.MethodPost, Key: "k"}, 3},
		{"a POST without a key", 503, heardlog.Request{Method: http.MethodPost}, 1},
		{"a call that is wrong", 422, heardlog.Request{Method: http.MethodGet}, 1},
		{"a fault of the server", 500, heardlog.Request{Method: http.MethodGet}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			attempts := 0
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				attempts++
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(tt.status)
			}))
			t.Cleanup(s.Close)
			err := client(t, heardlog.Config{URL: s.URL, Retries: 2}).Do(t.Context(), tt.request, nil)
			mu.Lock()
			defer mu.Unlock()
			if status(err) != tt.status || attempts != tt.attempts {
				t.Errorf("%v after %d attempts, want %d", err, attempts, tt.attempts)
			}
		})
	}
}

// TestPages reads lists to their last page.
func TestPages(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next, row := map[string]string{"": "c1", "c1": "c2"}[r.URL.Query().Get("cursor")], `{"role":"user","content":"x"}`
		fmt.Fprintf(w, `{"contents":[%s],"messages":[%s],"facts":[{"content":"x"}],"next_cursor":%q}`, row, row, next)
	}))
	t.Cleanup(s.Close)
	c := client(t, heardlog.Config{URL: s.URL})
	history, err := c.Agent("a").History(t.Context())
	if err != nil || len(history) != 3 {
		t.Errorf("history: %d messages, %v", len(history), err)
	}
	entries, err := c.Agent("a").Messages(t.Context(), 7)
	if err != nil || len(entries) != 3 {
		t.Errorf("ledger: %d entries, %v", len(entries), err)
	}
	facts, err := c.Facts(t.Context(), "anna")
	if err != nil || len(facts) != 3 {
		t.Errorf("facts: %d, %v", len(facts), err)
	}
}
