package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog"
	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/app"
	"github.com/heardlog/heardlog/internal/spectest"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// patience is how long a test waits for what must come. It is only used up on a failure or on a
// busy machine.
const patience = 2 * time.Minute

// spec is the description, read once: reading it takes longer than most tests.
var spec = sync.OnceValues(func() (*spectest.Spec, error) { return spectest.Load(context.Background(), heardlog.Spec) })

// TestMain runs the tests. If all ran, on the default store, it then requires that every documented
// answer was seen and checked.
func TestMain(m *testing.M) {
	os.Setenv("REDIS_PASSWORD", "hunter2") // a secret to which the complete example of a memory model refers
	flag.Parse()
	code := m.Run()
	if code == 0 && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.list").Value.String() == "" && !testing.Short() && os.Getenv("TEST_STORE") == "" {
		code = unseen()
	}
	os.Exit(code)
}

func unseen() int {
	s, err := spec()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	missing := slices.DeleteFunc(s.Unseen(bases...), func(a spectest.Seen) bool {
		if a.Status >= 500 && a.Path != "/readyz" {
			// Failing stores, handlers and upstreams are tested where they can be made to fail.
			return true
		}
		return notReachable[a.String()]
	})
	for _, a := range missing {
		fmt.Printf("openapi.yaml documents %s, and no test has seen it\n", a)
	}
	if len(missing) > 0 {
		return 1
	}
	return 0
}

// server is a whole Heardlog on a real socket and a real store.
type server struct {
	t      testing.TB
	url    string
	client *http.Client // holds every answer against openapi.yaml
	log    *buffer
	env    []string
	stop   func()
}

// buffer is a bytes.Buffer that a server may write while the test reads.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// freshStore returns an empty store: a file, or a schema of its own if TEST_STORE is postgres.
func freshStore(t testing.TB) string {
	t.Helper()
	if os.Getenv("TEST_STORE") == "postgres" {
		// A test whose subtests are parallel keeps its server until all other tests have begun, so
		// dozens of servers wait. Each may keep few connections.
		return postgrestest.URL(t) + "&pool_max_conns=5&pool_max_conn_idle_time=1s&pool_health_check_period=1s"
	}
	return "sqlite:" + filepath.Join(t.TempDir(), "heardlog.db")
}

// needsFile passes over a test that looks into the database's file where the store is none.
func needsFile(t testing.TB) {
	t.Helper()
	if os.Getenv("TEST_STORE") != "" {
		t.Skip("looks into a file of SQLite")
	}
}

// start runs a server with these settings, NAME=value, over those that every test needs.
func start(t testing.TB, env ...string) *server {
	t.Helper()
	all := append([]string{"HEARDLOG_ADDR=127.0.0.1:0"}, env...)
	if !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "HEARDLOG_STORE=") }) {
		all = slices.Insert(all, 1, "HEARDLOG_STORE="+freshStore(t))
	}
	getenv := func(name string) string {
		for _, e := range slices.Backward(all) {
			if v, ok := strings.CutPrefix(e, name+"="); ok {
				return v
			}
		}
		return ""
	}
	c, err := config.Load(getenv)
	if err != nil {
		t.Fatal(err)
	}
	sp, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, log: &buffer{}, env: all}
	ctx, cancel := context.WithCancel(context.Background())
	a, err := app.New(ctx, c, zerolog.New(s.log))
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	base := &http.Transport{MaxIdleConnsPerHost: 64}
	s.url, s.client = "http://"+a.Addr(), &http.Client{Transport: sp.Transport(t, base), Timeout: 2 * patience}
	s.stop = sync.OnceFunc(func() {
		base.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("log of the server:\n%s", s.log)
		}
	})
	return s
}

// again starts a server with the same settings and more on the same store, after the first has
// stopped.
func (s *server) again(more ...string) *server {
	s.t.Helper()
	s.stop()
	return start(s.t, slices.Concat(s.env, more)...)
}

// from returns the server as called from another address of this machine.
func (s *server) from(addr string) *server {
	s.t.Helper()
	sp, err := spec()
	if err != nil {
		s.t.Fatal(err)
	}
	base := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}).DialContext}
	s.t.Cleanup(base.CloseIdleConnections)
	out := *s
	out.client = &http.Client{Transport: sp.Transport(s.t, base), Timeout: 2 * patience}
	return &out
}

// answer is a whole answer.
type answer struct {
	t      testing.TB
	call   string
	status int
	header http.Header
	body   []byte
}

// do calls the server. body is nil, a string that is sent as it stands, or a value sent as JSON.
func (s *server) do(method, path string, body any, headers ...string) answer {
	s.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	case []byte:
		r = bytes.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			s.t.Fatal(err)
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, s.url+path, r)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}
		req.Header[http.CanonicalHeaderKey(headers[i])] = []string{headers[i+1]}
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{t: s.t, call: method + " " + path, status: resp.StatusCode, header: resp.Header, body: b}
}

func (s *server) get(path string, headers ...string) answer {
	s.t.Helper()
	return s.do(http.MethodGet, path, nil, headers...)
}

func (s *server) post(path string, body any, headers ...string) answer {
	s.t.Helper()
	return s.do(http.MethodPost, path, body, headers...)
}

// ok demands a 200 and reads the body into v, unless v is nil.
func (a answer) ok(v any) answer {
	a.t.Helper()
	if a.status != http.StatusOK {
		a.t.Fatalf("%s: status %d, want 200: %s", a.call, a.status, a.body)
	}
	if v != nil {
		if err := json.Unmarshal(a.body, v); err != nil {
			a.t.Fatalf("%s: %v: %s", a.call, err, a.body)
		}
	}
	return a
}

// refused demands an error with this status and reason, whose text holds all the words.
// absent checks the answer of a call about something that is not there. To delete it is no error.
func (a answer) absent(words ...string) {
	a.t.Helper()
	if strings.HasPrefix(a.call, "DELETE ") {
		a.is(http.StatusNoContent, nil)
		return
	}
	a.refused(http.StatusNotFound, "TaskNotFound", words...)
}

func (a answer) refused(status int, reason string, words ...string) answer {
	a.t.Helper()
	if !strings.Contains(a.call, "/api/") {
		reason = strings.TrimPrefix(reason, "Task")
	}
	var e struct{ Detail, Reason string }
	if err := json.Unmarshal(a.body, &e); err != nil {
		a.t.Errorf("%s: status %d with a body that is no error: %q", a.call, a.status, a.body)
		return a
	}
	if a.status != status || e.Reason != reason {
		a.t.Errorf("%s: %d %s %q, want %d %s", a.call, a.status, e.Reason, e.Detail, status, reason)
	}
	for _, w := range words {
		if !strings.Contains(e.Detail, w) {
			a.t.Errorf("%s: the error %q does not say %q", a.call, e.Detail, w)
		}
	}
	return a
}

// The bases under which an agent's calls exist.
const (
	v1    = "/v1"
	agora = "/api/conversational-ai-agent/v2/projects/default"
	cn    = "/cn" + agora
)

// bases are their prefixes as the description writes them.
var bases = []string{"/v1", "/api/conversational-ai-agent/v2/projects/{appid}"}

// join starts an agent under /v1 with these properties and returns its ID.
func (s *server) join(name string, properties any, headers ...string) string {
	s.t.Helper()
	body := map[string]any{"name": name}
	if properties != nil {
		body["properties"] = properties
	}
	var out struct {
		AgentID string `json:"agent_id"`
	}
	s.post(v1+"/join", body, headers...).ok(&out)
	return out.AgentID
}

func agent(id string, more ...string) string { return v1 + "/agents/" + id + strings.Join(more, "") }

// message is a message of the history or the ledger.
type message struct {
	Seq       int64          `json:"seq"`
	ID        string         `json:"id"`
	Role      string         `json:"role"`
	Content   string         `json:"content"`
	TurnID    int64          `json:"turn_id"`
	Timestamp int64          `json:"timestamp"`
	State     string         `json:"state"`
	Metadata  map[string]any `json:"metadata"`
	Generated string         `json:"generated"`
	Heard     string         `json:"heard"`
	Sent      string         `json:"sent"`
	Evidence  struct {
		Method     string `json:"method"`
		At         int64  `json:"at"`
		Confidence int    `json:"confidence"`
		Earlier    []past `json:"earlier"`
	} `json:"evidence"`
	Provisional bool            `json:"provisional"`
	Ghost       bool            `json:"ghost"`
	ToolCallID  string          `json:"tool_call_id"`
	ToolCalls   json.RawMessage `json:"tool_calls"`
	Parts       json.RawMessage `json:"parts"`
	InMemory    *bool           `json:"in_memory"`
	Importance  *float64        `json:"importance"`
	Category    string          `json:"category"`
}

// past is evidence that was replaced.
type past struct {
	Method string `json:"method"`
	Heard  string `json:"heard"`
}

type history struct {
	AgentID    string    `json:"agent_id"`
	StartTS    int64     `json:"start_ts"`
	StopTS     *int64    `json:"stop_ts"`
	Status     string    `json:"status"`
	Contents   []message `json:"contents"`
	NextCursor string    `json:"next_cursor"`
}

type ledger struct {
	AgentID    string    `json:"agent_id"`
	Messages   []message `json:"messages"`
	NextCursor string    `json:"next_cursor"`
}

func (s *server) history(id string, headers ...string) history {
	s.t.Helper()
	var h history
	s.get(agent(id, "/history"), headers...).ok(&h)
	return h
}

func (s *server) ledger(id string, headers ...string) []message {
	s.t.Helper()
	var l ledger
	s.get(agent(id, "/messages?limit=1000"), headers...).ok(&l)
	return l.Messages
}

// say appends messages and returns them as stored.
func (s *server) say(id string, msgs ...map[string]any) []message {
	s.t.Helper()
	var l ledger
	s.post(agent(id, "/messages"), map[string]any{"messages": msgs}).ok(&l)
	return l.Messages
}

func user(text string) map[string]any { return map[string]any{"role": "user", "content": text} }
func assistant(text string) map[string]any {
	return map[string]any{"role": "assistant", "content": text}
}

// texts returns messages as role:content lines with their turns.
func texts(msgs []message) []string {
	out := []string{}
	for _, m := range msgs {
		out = append(out, fmt.Sprintf("%d %s: %s", m.TurnID, m.Role, m.Content))
	}
	return out
}

func basic(id, secret string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(id+":"+secret))
}

// tail is a live stream of an agent's events.
type tail struct {
	t     testing.TB
	lines *bufio.Reader
	close func()
}

type event struct {
	name, id string
	data     []byte
}

// tail opens the stream of an agent.
func (s *server) tail(id string, headers ...string) *tail {
	s.t.Helper()
	return s.stream(agent(id, "/events"), headers...)
}

func (s *server) stream(path string, headers ...string) *tail {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Fatalf("the tail %s: %s %s", path, resp.Status, resp.Header.Get("Content-Type"))
	}
	stop := sync.OnceFunc(func() { cancel(); _ = resp.Body.Close() })
	s.t.Cleanup(stop)
	return &tail{t: s.t, lines: bufio.NewReader(resp.Body), close: stop}
}

// answers reads until an answer has come n times, and returns all data of the events.
func (r *tail) answers(n int, text string) string {
	r.t.Helper()
	var seen strings.Builder
	for came := 0; came < n; {
		e, ok := r.next()
		if !ok {
			r.t.Fatalf("the tail ended after %d answers: %s", came, seen.String())
		}
		seen.Write(e.data)
		if e.name == "message" && strings.Contains(string(e.data), text) {
			came++
		}
	}
	return seen.String()
}

// next waits for the next event and holds it against the description; false at the end of the
// stream.
func (r *tail) next() (event, bool) {
	r.t.Helper()
	var e event
	for {
		line, err := r.lines.ReadString('\n')
		if err == io.EOF && line == "" && e.name == "" {
			return e, false
		}
		if err != nil {
			r.t.Fatalf("the tail broke off: %v", err)
		}
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			e.data = []byte(value)
		case "":
			if e.name == "" {
				continue // behind a comment
			}
			sp, err := spec()
			if err != nil {
				r.t.Fatal(err)
			}
			schema := map[string]string{
				"message": "LedgerEntry", "agent": "AgentEvent", "interrupted": "TailInterrupted", "evidence": "TailEvidence", "turn": "TailTurn",
				"speak": "TailSpeak", "summary": "TailSummary", "memory": "TailMemory", "state": "TailState", "dropped": "TailDropped",
			}[e.name]
			if err := sp.Schema(schema, e.data); err != nil {
				r.t.Errorf("event %s: %v: %s", e.name, err, e.data)
			}
			return e, true
		}
	}
}

// message waits for a message that fits.
func (r *tail) message(what string, fits func(message) bool) message {
	r.t.Helper()
	for {
		e, ok := r.next()
		if !ok {
			r.t.Fatalf("the tail ended before %s", what)
		}
		if e.name != "message" {
			continue
		}
		var m message
		if err := json.Unmarshal(e.data, &m); err != nil {
			r.t.Fatal(err)
		}
		if fits(m) {
			return m
		}
	}
}

// status waits until the agent has this status and returns the event's message.
func (r *tail) status(want string) string {
	r.t.Helper()
	for {
		e, ok := r.next()
		if !ok {
			r.t.Fatalf("the tail ended before status %s", want)
		}
		if e.name != "agent" {
			continue
		}
		var a struct{ Status, Message string }
		if err := json.Unmarshal(e.data, &a); err != nil {
			r.t.Fatal(err)
		}
		if a.Status == want {
			return a.Message
		}
	}
}

// end waits for the end of the stream.
func (r *tail) end() {
	r.t.Helper()
	for {
		if _, ok := r.next(); !ok {
			return
		}
	}
}
