package tests

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// upstream starts a scripted LLM and returns it with its base URL.
func upstream(t testing.TB, script fake.Script) (*fake.LLM, string) {
	t.Helper()
	llm := fake.New(fake.Options{Script: script})
	srv := httptest.NewServer(llm)
	t.Cleanup(srv.Close)
	return llm, srv.URL + "/v1"
}

// chat sends one user message to an agent and returns the whole answer.
func (s *server) chat(path, text string, stream bool, headers ...string) answer {
	s.t.Helper()
	return s.post(path, map[string]any{"stream": stream, "messages": []any{user(text)}}, headers...)
}

// TestChat is a conversation through the proxy, streamed and not, under both addresses.
func TestChat(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "At nine from platform two."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_API_KEY=key-of-the-server", "HEARDLOG_LLM_MODEL=m1", "HEARDLOG_AUTO_JOIN=false")
	id := s.join("n", map[string]any{"llm": map[string]any{"system_messages": []any{map[string]any{"role": "system", "content": "Be brief."}}}})
	var whole struct {
		Choices []struct{ Message struct{ Content string } }
	}
	s.chat(agent(id, "/chat/completions"), "When?", false).ok(&whole)
	if len(whole.Choices) != 1 || whole.Choices[0].Message.Content != "At nine from platform two." {
		t.Errorf("%+v", whole)
	}
	got := s.chat(v1+"/chat/completions", "Sure?", true, "X-Agent-Id", id).ok(nil)
	if got.header.Get("Content-Type") != "text/event-stream" || !strings.HasSuffix(string(got.body), "data: [DONE]\n\n") {
		t.Errorf("%s: %q", got.header.Get("Content-Type"), got.body)
	}
	if got.header.Get("X-Heardlog-Agent") != id || got.header.Get("X-Heardlog-Turn") != "1" {
		t.Errorf("headers %v", got.header)
	}
	want := []string{"0 user: When?", "0 assistant: At nine from platform two.", "1 user: Sure?", "1 assistant: At nine from platform two."}
	if diff := cmp.Diff(want, texts(s.history(id).Contents)); diff != "" {
		t.Error(diff)
	}
	seen := llm.Requests()
	var sent struct {
		Messages []struct{ Role, Content string }
	}
	if err := json.Unmarshal(seen[1].Body, &sent); err != nil {
		t.Fatal(err)
	}
	var roles []string
	for _, m := range sent.Messages {
		roles = append(roles, m.Role+": "+m.Content)
	}
	if diff := cmp.Diff([]string{"system: Be brief.", "user: When?", "assistant: At nine from platform two.", "user: Sure?"}, roles); diff != "" {
		t.Errorf("the memory in front of the second call:\n%s", diff)
	}
	if seen[1].Header.Get("Authorization") != "Bearer key-of-the-server" {
		t.Errorf("Authorization %q", seen[1].Header.Get("Authorization"))
	}
	for _, path := range []string{v1 + "/models", agent(id, "/models")} {
		if got := s.get(path).ok(nil); !strings.Contains(string(got.body), "fake-1") {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	for _, path := range []string{v1 + "/models", agent(id, "/models")} {
		if got := s.get(path + "/fake-1").ok(nil); !strings.Contains(string(got.body), `"id":"fake-1"`) || strings.Contains(string(got.body), "data") {
			t.Errorf("%s: %s", path, got.body)
		}
		s.get(path+"/fake%2F2").failed(404, "not_found", `"fake/2" is not in the upstream's list`)
	}
	if got := s.get(v1+"/models", "X-Agent-Id", "unknown"); got.status != http.StatusNotFound {
		t.Errorf("models of an unknown agent: %d %s", got.status, got.body)
	}
	if got := s.chat(v1+"/chat/completions", "x", false, "X-Agent-Id", "unknown"); got.status != http.StatusNotFound {
		t.Errorf("an unknown agent: %d %s", got.status, got.body)
	}
	s.post(agent(id, "/leave"), nil).ok(nil)
	stopped := s.chat(agent(id, "/chat/completions"), "x", false)
	if stopped.status != http.StatusGone || !strings.Contains(string(stopped.body), "stopped at ") || !strings.Contains(string(stopped.body), "OK") {
		t.Errorf("a stopped agent: %d %s", stopped.status, stopped.body)
	}
	if n := len(llm.Requests()); n != 8 { // two answers, six lists of models
		t.Errorf("the upstream was called %d times", n)
	}
}

// failed demands an error in OpenAI's form.
func (a answer) failed(status int, code, words string) {
	a.t.Helper()
	var e struct {
		Error struct{ Message, Type, Code string }
	}
	if err := json.Unmarshal(a.body, &e); err != nil || a.status != status || e.Error.Code != code || e.Error.Type == "" || !strings.Contains(e.Error.Message, words) {
		a.t.Errorf("%s: %d %s, want %d %s with %q", a.call, a.status, a.body, status, code, words)
	}
}

// TestChatRefused is each error of our own on the OpenAI-compatible paths, in OpenAI's form.
func TestChatRefused(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Hi."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_NO_KEY=refuse", "HEARDLOG_AUTO_JOIN=true", "HEARDLOG_MAX_AGENTS=1", "HEARDLOG_MAX_BODY=20000")
	id := s.join("n", nil)
	s.chat(agent(id, "/chat/completions"), "first", false, "Idempotency-Key", "k").ok(nil)
	calls := len(llm.Requests())
	for _, path := range []string{agent(id, "/chat/completions"), v1 + "/chat/completions"} {
		named := []string{"X-Agent-Id", id}
		for _, tt := range []struct {
			body          string
			status        int
			code, message string
		}{
			{``, 400, "bad_request", "empty"},
			{`{`, 400, "bad_request", "JSON"},
			{`[]`, 400, "bad_request", "object"},
			{`{}`, 400, "missing", "messages"},
			{`{"messages":[]}`, 400, "missing", "messages"},
			{`{"messages":"x"}`, 400, "invalid", "messages"},
			{`{"messages":[{"content":"x"}]}`, 400, "missing", "messages[0].role"},
			{`{"messages":[{"role":"root","content":"x"}]}`, 400, "invalid", "messages[0].role"},
			{`{"messages":[{"role":"user","content":7}]}`, 400, "invalid", "messages[0].content"},
			{`{"messages":[{"role":"user","content":"x"}],"stream":"yes"}`, 400, "invalid", "stream"},
			{`{"messages":[{"role":"user","content":"x"}],"heardlog":{"plicy":{}}}`, 400, "invalid", "heardlog.plicy: is not a field of this call; the only one here is policy"},
			{`{"messages":[{"role":"user","content":"x"}],"heardlog":"full"}`, 400, "invalid", "heardlog: must be an object with the field policy"},
			{`{"messages":[{"role":"user","content":"` + strings.Repeat("x", 20000) + `"}]}`, 413, "too_large", "20000"},
			{`{"messages":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}`, 400, "bad_request", "64"},
		} {
			s.post(path, tt.body, named...).failed(tt.status, tt.code, tt.message)
		}
		s.chat(path, "other", false, append(named, "Idempotency-Key", "k")...).failed(400, "conflict", "Idempotency-Key")
		s.chat(path, "x", false, append(named, "Idempotency-Key", "a b")...).failed(400, "invalid", "Idempotency-Key")
		s.chat(path, "x", false, append(named, "Content-Encoding", "br")...).failed(400, "bad_request", "Content-Encoding")
	}
	s.chat(v1+"/chat/completions", "x", false).failed(400, "missing", "X-Agent-Id")
	s.chat(v1+"/chat/completions", "x", false, "X-Agent-Id", "a b").failed(404, "not_found", `"a b": an ID has`)
	s.chat(v1+"/chat/completions", "x", false, "X-Agent-Id", "new").failed(422, "quota", "1")
	s.chat(agent("unknown", "/chat/completions"), "x", false).failed(404, "not_found", "agent")
	s.get(agent("a%20b", "/models")).failed(404, "not_found", "agent")
	if diff := cmp.Diff([]string{"0 user: first", "0 assistant: Hi."}, texts(s.history(id).Contents)); diff != "" {
		t.Errorf("something of the refused calls is stored:\n%s", diff)
	}
	s.post(agent(id, "/leave"), nil).ok(nil)
	for _, stream := range []bool{false, true} {
		s.chat(agent(id, "/chat/completions"), "x", stream).failed(410, "stopped", "OK")
		s.chat(v1+"/chat/completions", "x", stream, "X-Agent-Id", id).failed(410, "stopped", id)
	}
	if n := len(llm.Requests()); n != calls {
		t.Errorf("%d refused calls reached the upstream", n-calls)
	}
	bare := start(t) // without an upstream
	id = bare.join("n", nil)
	bare.chat(agent(id, "/chat/completions"), "x", true).failed(400, "missing", "llm.url")
	bare.get(agent(id, "/models")).failed(400, "missing", "llm.url")
	bare.get(v1+"/models").failed(400, "missing", "llm.url")
	bare.get(agent(id, "/models/m")).failed(400, "missing", "llm.url")
	bare.get(v1+"/models/m").failed(400, "missing", "HEARDLOG_LLM_URL")
}

// TestChatRateLimit: the project's limit holds on the OpenAI-compatible paths, in their form.
func TestChatRateLimit(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_RATE_LIMIT=1")
	for _, c := range []struct{ method, path string }{{"POST", "/chat/completions"}, {"POST", "/agents/x/chat/completions"}, {"GET", "/models"}, {"GET", "/models/m"}, {"GET", "/agents/x/models"}, {"GET", "/agents/x/models/m"}, {"GET", "/responses"}, {"GET", "/agents/x/responses"}, {"GET", "/realtime"}, {"GET", "/agents/x/realtime"}, {"POST", "/realtime/client_secrets"}} {
		limited := false
		for range 20 {
			if got := s.do(c.method, v1+c.path, `{}`); got.status == http.StatusTooManyRequests {
				got.failed(429, "rate_limited", "1 requests a second")
				limited = got.header.Get("Retry-After") != ""
				break
			}
		}
		if !limited {
			t.Errorf("%s is not limited", c.path)
		}
	}
}

// TestAutoJoin: an unknown ID starts an agent only if the setting says so.
func TestAutoJoin(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "Hi."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=true")
	s.chat(v1+"/chat/completions", "Hello", false, "X-Agent-Id", "bot-7").ok(nil)
	s.post(v1+"/chat/completions", map[string]any{"messages": []any{user("Again")}, "metadata": map[string]any{"agent_id": "bot-7"}}).ok(nil)
	if a := s.agent("bot-7"); a.Status != "RUNNING" || a.Name != "bot-7" {
		t.Errorf("%+v", a)
	}
	if got := texts(s.history("bot-7").Contents); len(got) != 4 {
		t.Errorf("%q", got)
	}
	if got := s.chat(agent("bot-8", "/chat/completions"), "Hello", false); got.status != http.StatusNotFound {
		t.Errorf("an unknown agent in a path: %d", got.status)
	}
	// Without the setting, agents start by themselves on an open server.
	open := start(t, "HEARDLOG_LLM_URL="+base)
	open.chat(v1+"/chat/completions", "Hello", false, "X-Agent-Id", "bot-7").ok(nil)
	// Clients list the models before their first question. That starts no agent.
	s.get(v1+"/models", "X-Agent-Id", "bot-8").ok(nil)
	s.get(v1+"/models", "X-Agent-Id", "bot 8").failed(http.StatusNotFound, "not_found", `no agent "bot 8"`)
	s.get(agent("bot-8", "/models")).failed(http.StatusNotFound, "not_found", `no agent "bot-8"`)
	s.get(agent("bot-8")).refused(http.StatusNotFound, "NotFound")

	off := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=false")
	off.chat(v1+"/chat/completions", "Hello", false, "X-Agent-Id", "bot-7").failed(http.StatusNotFound, "not_found", "HEARDLOG_AUTO_JOIN=true")
	closed := start(t, "HEARDLOG_LLM_URL="+base, twoTenants)
	closed.chat(v1+"/chat/completions", "Hello", false, "X-Agent-Id", "bot-7", "Authorization", "Bearer wonder").failed(http.StatusNotFound, "not_found", "join it first")
}

// TestAgentSpeaksFirst checks that an agent that a call creates may speak first, named by the
// client or by a platform's key.
func TestAgentSpeaksFirst(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "Good morning."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=true")
	instruct := []any{map[string]any{"role": "developer", "content": "Greet the caller."}}
	for id, body := range map[string]map[string]any{
		"bot-7":       {"messages": instruct, "metadata": map[string]any{"agent_id": "bot-7"}},
		"vapi.call:5": {"messages": instruct, "call": map[string]any{"id": "5"}},
	} {
		got := s.post(v1+"/chat/completions", body)
		if got.status != http.StatusOK || got.header.Get("X-Heardlog-Turn") != "0" {
			t.Fatalf("%s: %d %s", id, got.status, got.body)
		}
		h := s.history(got.header.Get("X-Heardlog-Agent")).Contents
		if len(h) != 1 || h[0].Content != "Good morning." || h[0].Metadata["source"] != "greeting" {
			t.Errorf("%s: %+v", id, h)
		}
	}
}

// TestThink runs a turn without a client.
func TestThink(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "Done."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", nil)
	tail := s.tail(id)
	for i, path := range []string{agent(id, "/think"), agora + "/agents/" + id + "/think", cn + "/agents/" + id + "/think"} {
		s.post(path, map[string]any{"text": "Do it", "metadata": map[string]string{"why": "test"}}).ok(nil)
		m := tail.message("the answer", func(m message) bool { return m.Role == "assistant" && m.TurnID == int64(i) })
		if m.Content != "Done." {
			t.Errorf("%+v", m)
		}
	}
	h := s.history(id).Contents
	if diff := cmp.Diff(map[string]any{"source": "command", "why": "test"}, h[0].Metadata); diff != "" {
		t.Error(diff)
	}
	key := []string{"Idempotency-Key", "k"}
	s.post(agent(id, "/think"), `{"text":"once"}`, key...).ok(nil)
	tail.message("the answer", func(m message) bool { return m.Role == "assistant" && m.TurnID == 3 })
	s.post(agent(id, "/think"), `{"text":"other"}`, key...).refused(http.StatusConflict, "TaskConflict", "Idempotency-Key")
	for body, words := range map[string]string{
		`{}`: "text", `{"text":"a","on_speaking_action":"shout"}`: "on_speaking_action", `{"text":"a","metadata":{"a":1}}`: "metadata",
		`{"text":"` + strings.Repeat("x", 256<<10+1) + `"}`: "262144",
	} {
		got := s.post(agent(id, "/think"), body)
		if got.status != http.StatusBadRequest || !strings.Contains(string(got.body), words) {
			t.Errorf("%.40s: %d %s", body, got.status, got.body)
		}
	}
	s.post(agent("unknown", "/think"), `{"text":"x"}`).refused(http.StatusNotFound, "TaskNotFound")
}

// counting sends "One two three" in separate pieces and then nothing more.
func counting() fake.Script {
	return fake.Script{Chunks: []string{"One ", "two ", "three"}, HangAfter: 4, DelayChunk: fake.Duration(20 * time.Millisecond)}
}

// speaking starts an agent whose upstream is counting. It returns the client's stream while the
// agent speaks.
func speaking(t *testing.T, s *server, name string, properties map[string]any) (string, io.ReadCloser) {
	t.Helper()
	id := s.join(name, properties)
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.url+agent(id, "/chat/completions"), strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"Count"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	got := ""
	for b := make([]byte, 4096); !strings.Contains(got, "three"); {
		n, err := resp.Body.Read(b)
		got += string(b[:n])
		if err != nil {
			t.Fatalf("%v after %q", err, got)
		}
	}
	return id, resp.Body
}

// TestWhileSpeaking: what the calls do to an answer in flight.
func TestWhileSpeaking(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, counting())
	s := start(t, "HEARDLOG_LLM_URL="+base)
	const said = "0 assistant: One two three"
	for name, tt := range map[string]struct {
		path, body string
		cut        string // caused_by; "" = not cut
		more       []string
	}{
		"interrupt":                     {"/interrupt", ``, "api_interrupt", nil},
		"a platform's cut":              {"/evidence/vapi", `{"type":"user-interrupted"}`, "start_of_speech", nil},
		"a platform's cut with words":   {"/evidence/twilio", `{"type":"interrupt","utteranceUntilInterrupt":"One"}`, "start_of_speech", nil},
		"interrupt with heard":          {"/interrupt", `{"heard":"One"}`, "api_interrupt", nil},
		"speak":                         {"/speak", `{"text":"Stop"}`, "api_speak", []string{"1 assistant: Stop"}},
		"speak INTERRUPT":               {"/speak", `{"text":"Stop","priority":"INTERRUPT"}`, "api_speak", []string{"1 assistant: Stop"}},
		"speak IGNORE":                  {"/speak", `{"text":"Stop","priority":"IGNORE"}`, "", nil},
		"speak APPEND":                  {"/speak", `{"text":"Stop","priority":"APPEND"}`, "", []string{"1 assistant: Stop"}},
		"think is ignored":              {"/think", `{"text":"Hm"}`, "", nil},
		"think ignores when told so":    {"/think", `{"text":"Hm","on_speaking_action":"ignore"}`, "", nil},
		"think interrupts when told so": {"/think", `{"text":"Hm","on_speaking_action":"interrupt"}`, "api_interrupt", []string{"1 user: Hm"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sub := *s
			sub.t = t
			id, body := speaking(t, &sub, name, nil)
			sub.post(agent(id, tt.path), tt.body).ok(nil)
			if tt.cut == "" {
				_ = body.Close() // the caller hangs up
				tl := sub.tail(id, "Last-Event-ID", "0")
				tl.message("the answer", func(m message) bool { return m.Role == "assistant" && m.Content == "One two three" })
			}
			h := sub.history(id).Contents
			heard := said
			if strings.Contains(tt.body, "heard") || strings.Contains(tt.body, "utterance") {
				heard = "0 assistant: One"
			}
			got := texts(h)
			for i := range got {
				got[i] = strings.TrimSpace(got[i])
			}
			if name == "interrupt" && strings.HasPrefix(heard, got[1]) {
				got[1] = heard // an estimate by the time, which is short
			}
			if diff := cmp.Diff(append([]string{"0 user: Count", heard}, tt.more...), got[:min(len(got), 2+len(tt.more))]); diff != "" {
				t.Error(diff)
			}
			if h[1].Metadata["interrupted"] != true {
				t.Errorf("metadata %v", h[1].Metadata)
			}
			var table struct {
				Turns []struct {
					End struct {
						Type     string
						Metadata map[string]any
					}
				}
			}
			sub.get(agent(id, "/turns")).ok(&table)
			want := tt.cut
			if want == "" {
				want = "start_of_speech"
			}
			if end := table.Turns[0].End; end.Type != "interrupted" || end.Metadata["caused_by"] != want {
				t.Errorf("the turn ended as %+v, want %s", end, want)
			}
		})
	}
}

// TestLeaveWhileSpeaking: the final memory holds the answer in progress. With a farewell, the agent
// is IDLE until the farewell ends or times out.
func TestLeaveWhileSpeaking(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, counting())
	s := start(t, "HEARDLOG_LLM_URL="+base)
	for name, graceful := range map[string]bool{"at once": false, "with a farewell": true} {
		id, body := speaking(t, s, name, map[string]any{"parameters": map[string]any{"farewell_config": map[string]any{"graceful_enabled": graceful, "graceful_timeout_seconds": 60}}})
		tail := s.tail(id)
		s.post(agent(id, "/leave"), nil).ok(nil)
		s.post(agent(id, "/leave"), nil).refused(http.StatusNotFound, "TaskNotFound")
		if graceful {
			if a := s.agent(id); a.Status != "IDLE" {
				t.Errorf("%s: %+v", name, a)
			}
			_ = body.Close() // what it says ends
		}
		if why := tail.status("STOPPED"); why != "OK" {
			t.Errorf("%s: ended with %q", name, why)
		}
		got := texts(s.history(id).Contents)
		if len(got) != 2 || strings.TrimSpace(got[1]) != "0 assistant: One two three" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
