package handlers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog"
	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/handlers"
	"github.com/heardlog/heardlog/internal/spectest"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/store/storetest"
)

// proxy is a whole server with a fake LLM behind it.
type proxy struct {
	t    *testing.T
	url  string
	llm  *fake.LLM
	back string // the LLM's base URL
	mem  *agents.Service
	run  *turn.Runner
	// routes is the API itself, for tests that put a server of their own in front of it.
	routes http.Handler
	// client checks every answer against openapi.yaml.
	client *http.Client
}

// spec is the description, read once.
var spec = sync.OnceValues(func() (*spectest.Spec, error) { return spectest.Load(context.Background(), heardlog.Spec) })

// newProxy starts the server. edit may change the runner's configuration.
func newProxy(t *testing.T, edit func(*turn.Config)) *proxy {
	t.Helper()
	llm := fake.New(fake.Options{})
	back := httptest.NewServer(llm)
	t.Cleanup(back.Close)
	mem := agents.NewService(agents.Config{
		Ledger: storetest.New(t), Now: time.Now, NewID: func() string { return uuid.Must(uuid.NewV7()).String() },
	})
	transport := llmadapter.NewTransport((&net.Dialer{}).DialContext, nil)
	t.Cleanup(transport.CloseIdleConnections)
	cfg := turn.Config{
		Turns: mem.Turns, Window: memctx.New(mem).ForTurn, Client: &llmadapter.Client{Transport: transport, Instance: "test-instance"},
		Defaults: memory.LLMSettings{URL: back.URL + "/v1", APIKey: "server-key-1234", Model: "m-default"},
		Log:      zerolog.New(zerolog.NewTestWriter(t)), Metrics: prometheus.NewRegistry(),
	}
	if edit != nil {
		edit(&cfg)
	}
	run := turn.New(cfg)
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), patience)
		defer stop()
		if err := run.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	routes := handlers.New(handlers.Config{
		Memory: mem, Answers: run, Access: &handlers.Access{DefaultProject: "p1"}, Log: zerolog.Nop(),
		Metrics: handlers.NewMetrics(prometheus.NewRegistry()), MaxBody: 4 << 20,
		Ready: func(context.Context) error { return nil }, MetricsPage: http.NotFoundHandler(),
		AutoJoin: func(ctx context.Context, project, id string, _ memory.Call, _ map[string]string) (string, error) {
			if !strings.HasPrefix(id, "auto-") {
				return "", fmt.Errorf("unexpected auto join of %s", id)
			}
			_, err := mem.Agents.Join(ctx, agents.JoinRequest{Project: project, Name: id})
			return id, err
		},
	})
	srv := httptest.NewServer(routes)
	t.Cleanup(srv.Close)
	described, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: described.Transport(t, http.DefaultTransport)}
	return &proxy{t: t, url: srv.URL, routes: routes, llm: llm, back: back.URL, mem: mem, run: run, client: client}
}

// join creates an agent and returns its ID.
func (p *proxy) join(edit func(*memory.LLMSettings)) string {
	p.t.Helper()
	s := memory.Settings{IdleTimeoutS: -1}
	if edit != nil {
		edit(&s.LLM)
	}
	a, err := p.mem.Agents.Join(p.t.Context(), agents.JoinRequest{Project: "p1", Name: uuid.NewString(), Settings: s})
	if err != nil {
		p.t.Fatal(err)
	}
	return a.ID
}

// script sets how the LLM answers this agent.
func script(s map[string]any) func(*memory.LLMSettings) {
	return func(l *memory.LLMSettings) {
		b, err := json.Marshal(map[string]any{"fake": s})
		if err != nil {
			panic(err)
		}
		l.Params = b
	}
}

func (p *proxy) post(ctx context.Context, agent, body string, header ...string) *http.Response {
	p.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/agents/"+agent+"/chat/completions", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := p.client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { res.Body.Close() })
	return res
}

func (p *proxy) read(res *http.Response) string {
	p.t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatalf("read the answer: %v", err)
	}
	return string(b)
}

func (p *proxy) ledger(agent string) []memory.Message {
	p.t.Helper()
	_, msgs, err := p.mem.Messages.Recent(p.t.Context(), "p1", agent, 256)
	if err != nil {
		p.t.Fatal(err)
	}
	return msgs
}

func say(text string, more string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return `{"messages":[{"role":"user","content":` + string(b) + `}]` + more + `}`
}

func TestChatStream(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(nil)
	res := p.post(t.Context(), agent, say("When is my train?", `,"stream":true`))
	body := p.read(res)
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("X-Accel-Buffering") != "no" {
		t.Fatalf("%s %v", res.Status, res.Header)
	}
	if res.Header.Get("X-Heardlog-Agent") != agent || res.Header.Get("X-Heardlog-Turn") != "0" {
		t.Errorf("headers %v", res.Header)
	}
	if !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("ends in %q", body[max(0, len(body)-60):])
	}
	msgs := p.ledger(agent)
	want := []string{"user: When is my train?", "assistant: The train leaves at nine from platform two. Shall I book a seat for you?"}
	if diff := cmp.Diff(want, lines(msgs)); diff != "" {
		t.Error(diff)
	}
	if m := msgs[1]; m.FinishRsn != "stop" || m.Timings == nil || m.Timings.FirstTokenMS == 0 || m.Timings.FirstSentenceMS == 0 || m.CutGenerated {
		t.Errorf("answer %+v %+v", m, m.Timings)
	}

	// The next call has the memory in front of it.
	p.read(p.post(t.Context(), agent, say("And back?", "")))
	seen := p.llm.Requests()
	if diff := cmp.Diff(`{"messages":[{"role":"user","content":"When is my train?"},{"role":"assistant","content":"The train leaves at nine from platform two. Shall I book a seat for you?"},{"role":"user","content":"And back?"}],"model":"m-default"}`, string(seen[1].Body)); diff != "" {
		t.Error(diff)
	}
	if got := seen[1].Header.Get("Authorization"); got != "Bearer server-key-1234" {
		t.Errorf("Authorization %q", got)
	}
}

func lines(msgs []memory.Message) []string {
	out := []string{}
	for _, m := range msgs {
		s := string(m.Role) + ": " + m.Content
		if m.State != memory.Final {
			s += " (" + string(m.State) + ")"
		}
		if m.Interrupted {
			s += " (interrupted)"
		}
		out = append(out, s)
	}
	return out
}

// TestChatStreamIsByteIdentical checks that the client gets the upstream's bytes unchanged, for
// streams as different servers write them and however they are split.
func TestChatStreamIsByteIdentical(t *testing.T) {
	t.Parallel()
	chunk := func(delta string) string {
		return `{"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}`
	}
	const done = "data: [DONE]\n\n"
	const stop = `data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	hello := "data: " + chunk(`{"role":"assistant","content":"Hello"}`) + "\n\n"
	for name, tt := range map[string]struct{ raw, said string }{
		"comments and fields": {": OPENROUTER PROCESSING\n\nevent: message\nid: 7\nretry: 100\n" + hello + ": ping\n\n" + done, "Hello"},
		"multi-line data":     {"data: {\"choices\":[{\"index\":0,\ndata: \"delta\":{\"content\":\"Hello\"}}]}\n\n" + done, "Hello"},
		"CRLF":                {strings.ReplaceAll(hello+done, "\n", "\r\n"), "Hello"},
		"CR":                  {strings.ReplaceAll(hello+done, "\n", "\r"), "Hello"},
		"UTF-8":               {"data: " + chunk(`{"content":"Grüße 你好 🙂"}`) + "\n\n" + done, "Grüße 你好 🙂"},
		"batched":             {hello + "data: " + chunk(`{"content":" you"}`) + "\n\n" + "data: " + chunk(`{"content":"!"}`) + "\n\n" + done, "Hello you!"},
		"no space":            {"event:data\ndata:" + chunk(`{"content":"Hello"}`) + "\n\ndata:[DONE]\n\n", "Hello"},
		"long line":           {"data: " + chunk(`{"content":"`+strings.Repeat("ab ", 1<<20/3)+`"}`) + "\n\n" + done, strings.Repeat("ab ", 1<<20/3)},
		"no DONE":             {hello + stop + "\n\n", "Hello"},
		"no blank line":       {hello + stop, "Hello"},
		"last words, no line": {hello + strings.Replace(stop, "{}", `{"content":" you"}`, 1), "Hello you"},
		"error mid-stream":    {hello + "data: {\"error\":{\"message\":\"overloaded\",\"code\":503}}\n\n", "Hello"},
		"error first":         {"data: {\"error\":{\"message\":\"overloaded\"}}\n\n" + done, ""},
		"usage":               {hello + "data: {\"id\":\"c1\",\"choices\":[],\"usage\":{\"total_tokens\":3}}\n\n" + done, "Hello"},
		"usage null":          {"data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"}}],\"usage\":null}\n\n" + done, "Hello"},
		"reasoning":           {"data: " + chunk(`{"reasoning_content":"hm","reasoning":"hm"}`) + "\n\n" + hello + done, "Hello"},
		"vendor keys":         {"data: " + `{"x_vendor":{"a":[1,2]},"choices":[{"delta":{"content":"Hello","x":1},"y":2}]}` + "\n\n" + done, "Hello"},
		"tool calls":          {"data: " + chunk(`{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}]}`) + "\n\n" + done, ""},
		"role only first":     {"data: " + chunk(`{"role":"assistant"}`) + "\n\n" + hello + done, "Hello"},
		"custom metadata":     {"data: {\"id\":\"r1\",\"object\":\"chat.completion.custom_metadata\",\"choices\":[],\"metadata\":{\"interruptable\":false}}\n\n" + hello + done, "Hello"},
		"audio transcript":    {"data: " + chunk(`{"audio":{"id":"a","transcript":"Hello","data":"AAAA"}}`) + "\n\n" + done, "Hello"},
		"refusal":             {"data: " + chunk(`{"refusal":"I cannot."}`) + "\n\n" + done, "I cannot."},
		"byte order mark":     {"\xef\xbb\xbf" + hello + done, "Hello"},
		"after DONE":          {hello + done + ": bye\n\n", "Hello"},
		"other choices":       {"data: " + `{"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"Hello"}}]}` + "\n\n" + done, "Hello"},
	} {
		for _, size := range []int{0, 1, 7, 1000} {
			if len(tt.raw) > 10000 && size == 1 {
				size = 9973
			}
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				t.Parallel()
				p := newProxy(t, nil)
				p.llm = nil
				back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
					w.WriteHeader(200)
					for rest := []byte(tt.raw); len(rest) > 0; {
						n := len(rest)
						if size > 0 {
							n = min(n, size)
						}
						_, _ = w.Write(rest[:n])
						_ = http.NewResponseController(w).Flush()
						rest = rest[n:]
					}
				}))
				t.Cleanup(back.Close)
				agent := p.join(func(l *memory.LLMSettings) { l.URL = back.URL })
				res := p.post(t.Context(), agent, say("hi", `,"stream":true`))
				got, err := io.ReadAll(res.Body)
				if err != nil {
					t.Fatalf("the stream did not end cleanly: %v", err)
				}
				if !bytes.Equal(got, []byte(tt.raw)) {
					t.Errorf("got %d bytes %.300q\nwant %d bytes %.300q", len(got), got, len(tt.raw), tt.raw)
				}
				if ct := res.Header.Get("Content-Type"); ct != "text/event-stream; charset=utf-8" {
					t.Errorf("Content-Type %q", ct)
				}
				if m := p.ledger(agent)[1]; m.Original() != tt.said {
					t.Errorf("stored %.100q, want %.100q", m.Original(), tt.said)
				}
			})
		}
	}
}
