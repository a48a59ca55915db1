package tests

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// dialed is a raw connection to the server.
type dialed struct {
	net.Conn
	r *bufio.Reader
	t *testing.T
}

func (s *server) dial(t *testing.T) dialed {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return dialed{c, bufio.NewReader(c), t}
}

// answer reads the next answer of the connection.
func (d dialed) answer() (*http.Response, string) {
	d.t.Helper()
	res, err := http.ReadResponse(d.r, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return res, string(b)
}

// closed reports whether the server has closed the connection without another byte.
func (d dialed) closed() bool {
	n, err := d.r.Read(make([]byte, 1))
	return n == 0 && !errors.Is(err, io.ErrNoProgress) && err != nil
}

// TestUnreadableRequests: a request that net/http cannot read gets an error in JSON too.
func TestUnreadableRequests(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, tt := range map[string]struct {
		request string
		status  int
		words   string
	}{
		"not HTTP":           {"hello\r\n\r\n", 400, "400 Bad Request"},
		"no Host":            {"GET /healthz HTTP/1.1\r\n\r\n", 400, "Host"},
		"a bad header":       {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nA B: c\r\n\r\n", 400, "400 Bad Request"},
		"two lengths":        {"POST /v1/agents HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400, "400 Bad Request"},
		"too many headers":   {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: " + strings.Repeat("x", 80<<10) + "\r\n\r\n", 431, "Header Fields Too Large"},
		"an unknown version": {"GET /healthz HTTP/3.1\r\nHost: localhost\r\n\r\n", 505, "protocol version"},
		"an unknown coding":  {"POST /v1/agents HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "transfer encoding"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := s.dial(t)
			if _, err := io.WriteString(c, tt.request); err != nil {
				t.Fatal(err)
			}
			res, body := c.answer()
			var e struct{ Detail, Reason string }
			if err := json.Unmarshal([]byte(body), &e); err != nil || res.StatusCode != tt.status || e.Reason == "" || !strings.Contains(e.Detail, tt.words) {
				t.Errorf("%d %q", res.StatusCode, body)
			}
			if h := res.Header; h.Get("Content-Type") != "application/json" || h.Get("X-Request-Id") == "" || !res.Close {
				t.Errorf("headers %v", h)
			}
		})
	}
}

// TestPassedThroughBytes: what an upstream answers is never taken for an error of net/http's, which
// would be rewritten.
func TestPassedThroughBytes(t *testing.T) {
	t.Parallel()
	const text = "Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"
	next := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "x")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		select { // the text begins a chunk of its own
		case <-next:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(upstream.Close)
	s := start(t, "HEARDLOG_LLM_URL="+upstream.URL, "HEARDLOG_PASSTHROUGH=/v1/files")
	c := s.dial(t)
	if _, err := io.WriteString(c, "GET /v1/files HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadFull(res.Body, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	close(next)
	if b, err := io.ReadAll(res.Body); err != nil || string(b) != text {
		t.Errorf("%q, %v", b, err)
	}
}

// TestAmbiguousLength: a request whose end a proxy may see elsewhere is the last one of its
// connection. What follows it is not taken for a request.
func TestAmbiguousLength(t *testing.T) {
	t.Parallel()
	s := start(t)
	const hidden = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for name, request := range map[string]string{
		"both": "POST /v1/agents/x/clear HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + fmt.Sprint(5+len(hidden)) + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"1.0":  "POST /v1/agents/x/clear HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}" + hidden,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := s.dial(t)
			if _, err := io.WriteString(c, request); err != nil {
				t.Fatal(err)
			}
			if res, body := c.answer(); res.StatusCode != http.StatusNotFound || !res.Close {
				t.Errorf("%d %q, close %v", res.StatusCode, body, res.Close)
			}
			if !c.closed() {
				t.Error("the hidden request was answered")
			}
		})
	}
	c := s.dial(t)
	for range 2 { // an ordinary request leaves the connection open
		if _, err := io.WriteString(c, "POST /v1/agents/x/clear HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
			t.Fatal(err)
		}
		if res, body := c.answer(); res.StatusCode != http.StatusNotFound || res.Close {
			t.Errorf("%d %q, close %v", res.StatusCode, body, res.Close)
		}
	}
}

// TestStatedTooLarge: a body that is announced as too large is refused before it is sent, also to a
// client that waits to be asked for it.
func TestStatedTooLarge(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_MAX_BODY=1024")
	id := s.join("n", nil)
	for _, expect := range []string{"", "Expect: 100-continue\r\n"} {
		c := s.dial(t)
		if _, err := io.WriteString(c, "POST /v1/agents/"+id+"/messages HTTP/1.1\r\nHost: localhost\r\n"+expect+"Content-Length: 1025\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if res, body := c.answer(); res.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(body, "1024 bytes") || !strings.Contains(body, "HEARDLOG_MAX_BODY") {
			t.Errorf("%q: %d %q", expect, res.StatusCode, body)
		}
	}
	c := s.dial(t)
	if _, err := io.WriteString(c, "POST /v1/agents/"+id+"/messages HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 30\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if res, _ := c.answer(); res.StatusCode != http.StatusContinue {
		t.Errorf("a body within the limit is not asked for: %d", res.StatusCode)
	}
}

// TestBadLabel: an error about a label names its key.
func TestBadLabel(t *testing.T) {
	t.Parallel()
	s := start(t)
	for body, words := range map[string]string{
		`{"name":"n","properties":{"labels":{"a":"b","Tier x":5}}}`: `properties.labels["Tier x"]: must be a string, not a JSON number`,
		`{"name":"n","properties":{"labels":{"7":{}}}}`:             `properties.labels["7"]: must be a string, not a JSON object`,
		`{"name":"n","properties":{"labels":"x"}}`:                  `properties.labels: must be an object, not a JSON string`,
	} {
		s.post(v1+"/join", body).refused(http.StatusBadRequest, "InvalidFieldValue", words)
	}
}

// TestMemberNames: under /v1 a member that occurs twice, or in another case than it should, is
// refused by its name. What Agora accepts is accepted under its paths. Objects whose names are free
// may have any.
func TestMemberNames(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	for _, tt := range []struct{ path, body, words string }{
		{agent(id, "/messages"), `{"role":"user","content":"a","content":"b"}`, `content: must occur once`},
		{agent(id, "/messages"), `{"messages":[{"role":"user","content":"a","role":"user"}]}`, `messages[0].role: must occur once`},
		{agent(id, "/messages"), `{"role":"user","content":"a","metadata":{"k":1,"k":1}}`, `metadata.k: must occur once`},
		{agent(id, "/messages"), `{"Role":"user","content":"a"}`, `Role: is not a field`},
		{agent(id, "/messages"), `{"messages":[{"role":"user","Content":"a"}]}`, `Content: is not a field`},
		{v1 + "/join", `{"name":"m","Name":"n"}`, `Name: must be written "name"`},
		{v1 + "/join", `{"name":"m","name":"n"}`, `name: must occur once`},
		{v1 + "/join", `{"name":"m","properties":{"llm":{"URL":"http://h.example/"}}}`, `properties.llm.URL: must be written "url"`},
		{v1 + "/join", `{"name":"m","properties":{"heardlog":{"upstreams":[{"name":"a","Url":"http://h.example/"}]}}}`, `properties.heardlog.upstreams[0].Url: must be written "url"`},
		{agent(id, "/speak"), `{"text":"a","TEXT":"b"}`, `TEXT: must be written "text"`},
		{agent(id, "/interrupt"), `{"Turn_ID":1}`, `Turn_ID: must be written "turn_id"`},
		{agent(id, "/update"), `{"properties":{"Token":"t"}}`, `properties.Token: must be written "token"`},
		{hooks + "/endpoints", `{"url":"http://127.0.0.1:9/","url":"http://127.0.0.1:10/"}`, `url: must occur once`},
		{hooks + "/endpoints", `{"url":"http://127.0.0.1:9/","auth":{"Bearer":"x"}}`, `auth.Bearer: must be written "bearer"`},
	} {
		s.post(tt.path, tt.body).refused(http.StatusBadRequest, "InvalidFieldValue", tt.words)
	}
	s.post(agent(id, "/messages"), `{"role":"user","content":"a","metadata":{"k":1,"K":2}}`).ok(nil)
	s.post(v1+"/join", `{"name":"o","properties":{"labels":{"a":"b","A":"c"},"llm":{"params":{"Model":"x","model":"y"}}}}`).ok(nil)
	var joined struct {
		AgentID string `json:"agent_id"`
	}
	s.post(agora+"/join", `{"name":"a","Name":"b","name":"c","properties":{"channel":"x","Channel":"c","token":"t","agent_rtc_uid":"0","remote_rtc_uids":["1"],"llm":{"url":"http://h.example/"},"tts":{"vendor":"v","params":{"k":"v"}}}}`).ok(&joined)
	s.post(agora+"/agents/"+joined.AgentID+"/speak", `{"TEXT":"b","text":"a"}`).ok(nil)
}
