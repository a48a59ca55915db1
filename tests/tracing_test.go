package tests

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// otlp is a collector on a real socket.
type otlp struct {
	url string

	mu    sync.Mutex
	raw   strings.Builder
	spans []*tracepb.Span
	about map[string]string // of the resource
}

func newCollector(t *testing.T) *otlp {
	t.Helper()
	c := &otlp{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &req)
		}
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s %s: %v", r.URL.Path, r.Header.Get("Content-Type"), err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw.Write(body)
		for _, rs := range req.ResourceSpans {
			c.about = attributes(rs.Resource.Attributes)
			for _, ss := range rs.ScopeSpans {
				c.spans = append(c.spans, ss.Spans...)
			}
		}
	}))
	t.Cleanup(srv.Close)
	c.url = srv.URL
	return c
}

func attributes(list []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range list {
		switch v := kv.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			out[kv.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			out[kv.Key] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_BoolValue:
			out[kv.Key] = fmt.Sprint(v.BoolValue)
		case *common.AnyValue_DoubleValue:
			out[kv.Key] = fmt.Sprint(v.DoubleValue)
		case *common.AnyValue_ArrayValue:
			var all []string
			for _, e := range v.ArrayValue.Values {
				all = append(all, e.GetStringValue())
			}
			out[kv.Key] = "[" + strings.Join(all, " ") + "]"
		}
	}
	return out
}

// named returns the spans of a name, oldest first.
func (c *otlp) named(name string) []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*tracepb.Span
	for _, s := range c.spans {
		if s.Name == name {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *tracepb.Span) int { return int(a.StartTimeUnixNano) - int(b.StartTimeUnixNano) })
	return out
}

func (c *otlp) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raw.String()
}

const (
	callersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersSpan  = "00f067aa0ba902b7"
)

// A turn is a trace below the caller's own, with the names of the conventions, without secrets and
// without any text of the conversation.
func TestTraces(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "At nine, SAIDWORD.", Usage: true})
	c := newCollector(t)
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_API_KEY=key-of-the-server", "HEARDLOG_LLM_MODEL=m1",
		"OTEL_EXPORTER_OTLP_ENDPOINT="+c.url, "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test%20bed")
	id := s.join("n", map[string]any{"llm": map[string]any{
		"headers": map[string]string{"X-Key": "header-secret"}, "system_messages": []any{map[string]any{"role": "system", "content": "Be SYSTEMWORD."}},
	}})
	answered := s.chat(agent(id, "/chat/completions"), "When, ASKEDWORD?", true, "Traceparent", "00-"+callersTrace+"-"+callersSpan+"-01", "Tracestate", "vendor=x")
	answered.ok(nil)
	s.stop() // sends what is left

	roots, chats, memories := c.named("invoke_agent"), c.named("chat m1"), c.named("upsert_memory")
	if len(roots) != 1 || len(chats) != 1 || len(memories) != 2 {
		t.Fatalf("%d roots, %d calls, %d of the memory", len(roots), len(chats), len(memories))
	}
	root, chat := roots[0], chats[0]
	if fmt.Sprintf("%x", root.TraceId) != callersTrace || fmt.Sprintf("%x", root.ParentSpanId) != callersSpan || root.Kind != tracepb.Span_SPAN_KIND_SERVER {
		t.Errorf("the turn is not below the caller's span: %v", root)
	}
	for _, child := range append(memories, chat) {
		if string(child.ParentSpanId) != string(root.SpanId) || child.StartTimeUnixNano < root.StartTimeUnixNano || child.EndTimeUnixNano > root.EndTimeUnixNano {
			t.Errorf("%s is not within the turn", child.Name)
		}
	}
	if got, want := llm.Requests()[0].Header.Get("Traceparent"), fmt.Sprintf("00-%s-%x-01", callersTrace, chat.SpanId); got != want {
		t.Errorf("the upstream was given traceparent %q, want %q", got, want)
	}
	if got := llm.Requests()[0].Header.Get("Tracestate"); got != "vendor=x" {
		t.Errorf("tracestate %q", got)
	}
	got := attributes(chat.Attributes)
	if got["gen_ai.response.time_to_first_chunk"] == "" || got["gen_ai.response.id"] == "" || got["server.port"] == "" || got["gen_ai.usage.input_tokens"] == "" {
		t.Errorf("%v", got)
	}
	output := got["gen_ai.usage.output_tokens"]
	for _, varies := range []string{"gen_ai.response.time_to_first_chunk", "gen_ai.response.id", "server.port", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.cache_read.input_tokens"} {
		delete(got, varies)
	}
	want := map[string]string{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "m1", "gen_ai.request.stream": "true",
		"gen_ai.conversation.id": id, "server.address": "127.0.0.1", "heardlog.upstream": "primary", "gen_ai.response.finish_reasons": "[stop]",
	}
	if diff := cmp.Diff(want, got); diff != "" || output == "" {
		t.Errorf("output tokens %q\n%s", output, diff)
	}
	want = map[string]string{
		"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.id": id, "gen_ai.conversation.id": id, "heardlog.project": "default", "heardlog.turn_id": "0",
		"heardlog.outcome": "ok", "heardlog.generated_chars": "18", "heardlog.sent_chars": "18", "heardlog.request_id": answered.header.Get("X-Request-Id"),
	}
	if diff := cmp.Diff(want, attributes(root.Attributes)); diff != "" {
		t.Error(diff)
	}
	if c.about["service.name"] != "heardlog" || c.about["deployment.environment.name"] != "test bed" || c.about["telemetry.sdk.name"] == "" {
		t.Errorf("the service says of itself %v", c.about)
	}
	for _, word := range []string{"ASKEDWORD", "SAIDWORD", "SYSTEMWORD", "key-of-the-server", "header-secret"} {
		if strings.Contains(c.text(), word) {
			t.Errorf("%s is in a trace", word)
		}
	}
}

// With the setting, traces hold the text of the conversation, but no secrets.
func TestTracesWithContent(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "At nine."})
	c := newCollector(t)
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_API_KEY=key-of-the-server", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+c.url+"/v1/traces",
		"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_only", "OTEL_SERVICE_NAME=mine")
	id := s.join("n", nil)
	s.chat(agent(id, "/chat/completions"), "When?", false).ok(nil)
	s.chat(agent(id, "/chat/completions"), strings.Repeat("é", 50<<10)+" And then?", false).ok(nil)
	s.stop()
	chats := c.named("chat")
	if len(chats) != 2 {
		t.Fatalf("%d calls", len(chats))
	}
	slices.SortFunc(chats, func(a, b *tracepb.Span) int { return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano)) })
	if long := attributes(chats[1].Attributes)["gen_ai.input.messages"]; !strings.HasSuffix(long, `é And then?"}]}]`) || len(long) > 65<<10 {
		t.Errorf("of a long message the trace has %d bytes: %.100q", len(long), long)
	}
	got := attributes(chats[0].Attributes)
	if want := `[{"role":"user","parts":[{"type":"text","content":"When?"}]}]`; got["gen_ai.input.messages"] != want {
		t.Errorf("%s", got["gen_ai.input.messages"])
	}
	if want := `[{"role":"assistant","parts":[{"type":"text","content":"At nine."}],"finish_reason":"stop"}]`; got["gen_ai.output.messages"] != want {
		t.Errorf("%s", got["gen_ai.output.messages"])
	}
	if strings.Contains(c.text(), "key-of-the-server") || c.about["service.name"] != "mine" {
		t.Errorf("a key is in a trace, or the name is wrong: %v", c.about)
	}
}

// Errors are marked without the upstream's text, and only if they are the upstream's fault.
func TestTracesOfFailures(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Status: 503, Body: `{"error":{"message":"about UPSTREAMWORD"}}`})
	c := newCollector(t)
	s := start(t, "HEARDLOG_LLM_URL="+base, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.url)
	id := s.join("n", nil)
	if got := s.chat(agent(id, "/chat/completions"), "When?", true); got.status != 503 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	s.chat(agent("unknown", "/chat/completions"), "When?", true).failed(404, "not_found", "agent")
	s.stop()
	roots, chats := c.named("invoke_agent"), c.named("chat")
	if n := len(llm.Requests()); len(roots) != 2 || len(chats) != n {
		t.Fatalf("%d turns, %d spans of %d attempts", len(roots), len(chats), n)
	}
	for _, span := range append(chats, roots[0]) {
		if a := attributes(span.Attributes); a["error.type"] != "503" || span.Status.Code != tracepb.Status_STATUS_CODE_ERROR {
			t.Errorf("%s: %v %v", span.Name, a, span.Status)
		}
	}
	if a := attributes(roots[1].Attributes); a["error.type"] != "not_found" {
		t.Errorf("%v", a)
	}
	if strings.Contains(c.text(), "UPSTREAMWORD") {
		t.Error("the upstream's words are in a trace")
	}
}

// An answer that was cut is no failure, and a turn without a client is traced like any other.
func TestTracesOfCuts(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, counting())
	c := newCollector(t)
	s := start(t, "HEARDLOG_LLM_URL="+base, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.url)
	id, stream := speaking(t, s, "n", nil)
	s.post(agent(id, "/interrupt"), nil).ok(nil)
	if _, err := io.ReadAll(stream); err != nil {
		t.Fatal(err)
	}
	s.post(agent(id, "/think"), `{"text":"Go on"}`).ok(nil)
	s.post(agent(id, "/leave"), nil).ok(nil)
	s.stop()
	roots := c.named("invoke_agent")
	if len(roots) != 2 {
		t.Fatalf("%d turns", len(roots))
	}
	for i, want := range []string{"interrupted", "leave"} {
		a := attributes(roots[i].Attributes)
		if a["heardlog.outcome"] != want || a["error.type"] != "" || roots[i].Status.Code == tracepb.Status_STATUS_CODE_ERROR {
			t.Errorf("%v %v, want %s", a, roots[i].Status, want)
		}
	}
	if roots[1].Kind != tracepb.Span_SPAN_KIND_INTERNAL || len(roots[1].ParentSpanId) > 0 {
		t.Errorf("a turn without a client: %v", roots[1])
	}
}

// A collector that never answers holds up neither calls nor, beyond its limit, the end.
func TestTracesWithoutCollector(t *testing.T) {
	t.Parallel()
	// Takes connections, answers none.
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_, base := upstream(t, fake.Script{Answer: "Hi."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+silent.Addr().String(), "HEARDLOG_SHUTDOWN_TIMEOUT=300ms")
	id := s.join("n", nil)
	for range 20 {
		s.chat(agent(id, "/chat/completions"), "x", true).ok(nil)
	}
	began := time.Now()
	s.stop()
	if took := time.Since(began); took > patience {
		t.Errorf("the end took %s", took)
	}
	if !strings.Contains(s.log.String(), "the last traces could not be sent") {
		t.Error("the log says nothing of the traces that are lost")
	}
}
