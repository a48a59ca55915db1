package compat_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// nodeClient runs a program of the folder clients-node to its end and returns what it wrote. It
// skips the test without node and, unless CI is set, without the packages.
func nodeClient(t *testing.T, env []string, program string, args ...string) string {
	t.Helper()
	node := needNode(t, "clients-node")
	file, err := filepath.Abs(filepath.Join("clients-node", program))
	if err != nil {
		t.Fatal(err)
	}
	p := run(t, node, append([]string{file}, args...), env...)
	if _, ok := p.stdout.find(func(string) bool { return true }); !ok {
		t.Fatalf("%s wrote no line:\n%s", program, p.stderr)
	}
	return strings.TrimSpace(p.stdout.String())
}

// checked returns the URL of a proxy to the server that checks every answer against openapi.yaml.
func (s *server) checked(t *testing.T) string {
	t.Helper()
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	reverse := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     s.client.Transport,
		FlushInterval: -1,
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Otherwise net/http closes the request's body as soon as the answer begins, and the
		// transport, if it has not seen the body's end yet, cuts the answer (golang/go#40747).
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		reverse.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL
}

// TestNodeClients plays one call with each client: a streamed answer, one that the caller
// interrupts, a tool call, and a goodbye. The clients re-send their whole list each time. Nothing
// is stored twice, and the ledger has what was generated, sent and heard.
func TestNodeClients(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1")
	for _, tt := range []struct {
		name, program string
		env           []string
	}{
		{"OpenAI", "openai.mjs", nil},
		{"AI SDK, OpenAI provider", "aisdk.mjs", []string{"PROVIDER=openai"}},
		{"AI SDK, compatible provider", "aisdk.mjs", []string{"PROVIDER=compatible"}},
		{"LangChain", "langchain.mjs", nil},
		{"AI SDK, responses", "aisdk.mjs", []string{"PROVIDER=responses"}},
		{"OpenAI Agents SDK", "agents.mjs", []string{"API=chat_completions"}},
		{"OpenAI Agents SDK, responses", "agents.mjs", []string{"API=responses"}},
		{"LiveKit Agents", "livekit.mjs", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			id := s.join(t, tt.name, nil)
			line := nodeClient(t, tt.env, tt.program, s.checked(t), id)
			var seen struct {
				First   string
				Pieces  []string
				Tool    string
				Last    string
				Refused struct {
					Status  int
					Message string
				}
			}
			if err := json.Unmarshal([]byte(line), &seen); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if seen.First != trains || strings.Join(seen.Pieces, "|") != "one |two |three " || seen.Tool != "At nine." || seen.Last != "You said: Thanks." {
				t.Errorf("the client saw %s", line)
			}
			if r := seen.Refused; r.Status != 404 || !strings.Contains(r.Message, `there is no agent "no-such-agent"`) {
				t.Errorf("the client reported an unknown agent as %d %q", r.Status, r.Message)
			}
			checkNodeCall(t, s, id)
		})
	}
}

// TestNodeResponses plays the same call with OpenAI's client and the Responses API. It sends only
// what is new and does not say what was heard, so the interrupted answer has what was sent.
func TestNodeResponses(t *testing.T) {
	t.Parallel()
	playResponses(t, "responses.mjs", "404 ", " [removed]")
}

// TestNodeResponsesSocket plays it over a WebSocket.
func TestNodeResponsesSocket(t *testing.T) {
	t.Parallel()
	playResponses(t, "responses_ws.mjs", "", "You said: Thanks.")
}

// playResponses runs a client's script. refused begins the client's error, and last is what the
// ledger has of the last answer.
func playResponses(t *testing.T, script, refused, last string) {
	t.Helper()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1")
	id := s.join(t, "responses", nil)
	line := nodeClient(t, nil, script, s.checked(t), id)
	want := `{"first":"` + trains + `","pieces":["one ","two ","three "],"tool":"At nine.","last":"You said: Thanks.","refused":{"status":404,"message":"` + refused + `there is no agent \"no-such-agent\"`
	if !strings.HasPrefix(line, want) {
		t.Errorf("the client saw %s", line)
	}
	got := []string{}
	for _, m := range s.ledger(t, id) {
		got = append(got, fmt.Sprintf("%d %s", m.TurnID, m.said()))
	}
	ledger := []string{
		"0 user: When is my train?", "0 assistant: " + trains,
		"1 user: Count.", "1 assistant: one two three  [interrupted]",
		"2 user: And to Bern?", "2 assistant: ", `2 tool: {"to":"Bern","at":"9:00"}`, "2 assistant: At nine.",
		"3 user: Thanks.", "3 assistant: " + last,
	}
	if diff := cmp.Diff(ledger, got); diff != "" {
		t.Error(diff)
	}
}

// checkNodeCall checks what is stored of the call that clients-node/call.mjs plays.
func checkNodeCall(t *testing.T, s *server, id string) {
	t.Helper()
	msgs := s.ledger(t, id)
	want := []string{
		"0 user: When is my train?", "0 assistant: " + trains,
		"1 user: Count.", "1 assistant: one two [interrupted]",
		"2 user: And to Bern?", "2 assistant: ", `2 tool: {"to":"Bern","at":"9:00"}`, "2 assistant: At nine.",
		"3 user: Thanks.", "3 assistant: You said: Thanks.",
	}
	got := []string{}
	for _, m := range msgs {
		got = append(got, fmt.Sprintf("%d %s", m.TurnID, m.said()))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal("ledger", diff)
	}
	if m := msgs[1]; m.Generated != trains || m.Sent != trains || m.Heard != trains || m.Evidence.Method != "echo_diff" {
		t.Errorf("the answer that was heard to its end: %+v", m)
	}
	if m := msgs[3]; m.Generated != "one two three " || m.Sent != "one two three " || m.Heard != "one two" || m.Evidence.Method != "echo_diff" {
		t.Errorf("the interrupted answer: %+v", m)
	}
	if m := msgs[5]; len(m.ToolCalls) != 1 || msgs[6].CallID == "" {
		t.Errorf("the tool call %v and its result of %q", m.ToolCalls, msgs[6].CallID)
	}
	shown := []string{}
	for _, m := range msgs {
		if m.Role != "tool" && len(m.ToolCalls) == 0 {
			shown = append(shown, m.said())
		}
	}
	if diff := cmp.Diff(shown, said(s.historyOf(t, id))); diff != "" {
		t.Error("history", diff)
	}
}

// TestNodeAgoraToken checks that a token of Agora's own token builder, made of an app ID and its
// certificate as Agora's server SDKs do, runs an agent of that app, and no other.
func TestNodeAgoraToken(t *testing.T) {
	t.Parallel()
	const app, certificate = "970ca35de60c44645bbae8a215061b33", "5cfd2fd1755d40ecb72977518be15d3b"
	token := func(certificate string) string {
		return "agora token=" + nodeClient(t, nil, "token.mjs", app, certificate, "room-1")
	}
	s := start(t, "HEARDLOG_AGORA_CERTIFICATES="+app+"="+certificate)
	const base = "/api/conversational-ai-agent/v2/projects/"
	testAgoraLife(t, newAgoraClient(s, base+app, token(certificate), false), fakeLLM(t), "token")
	_, err := newAgoraClient(s, base+app, token(strings.Repeat("0", 32)), false).list(t.Context(), "", 0)
	if got := reasonOf(t, err); got != "401 InvalidPermission" {
		t.Errorf("a token of another certificate: %s", got)
	}
}
