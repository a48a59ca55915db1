package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/handlers"
)

// TestKnownProperties checks the documented values of properties that only Agora's engine uses.
func TestKnownProperties(t *testing.T) {
	t.Parallel()
	s := start(t)
	mcp := func(name string) string {
		return `{"llm":{"mcp_servers":[{"name":"` + name + `","endpoint":"https://m.example"}]}}`
	}
	for i, tt := range []struct{ path, good, bad, field string }{
		{v1, `{"rtc":{"encryption_mode":8}}`, `{"rtc":{"encryption_mode":9}}`, "rtc.encryption_mode"},
		{v1, `{"rtc":{"encryption_mode":0}}`, `{"rtc":{"encryption_mode":"8"}}`, "rtc.encryption_mode"},
		{v1, `{"asr":{"credential_mode":"byok"}}`, `{"asr":{"credential_mode":"mine"}}`, "asr.credential_mode"},
		{v1, `{"asr":{"language":"zh-CN","vendor":"fengming"}}`, `{"asr":{"language":1}}`, "asr.language"},
		{v1, `{"asr":{"vendor":""}}`, `{"asr":{"vendor":["ares"]}}`, "asr.vendor"},
		{v1, `{"sal":{"sal_mode":"recognition"}}`, `{"sal":{"sal_mode":"guess"}}`, "sal.sal_mode"},
		{v1, `{"parameters":{"data_channel":"rtm"}}`, `{"parameters":{"data_channel":"pigeon"}}`, "parameters.data_channel"},
		{v1, `{"parameters":{"audio_scenario":"aiserver"}}`, `{"parameters":{"audio_scenario":"opera"}}`, "parameters.audio_scenario"},
		{v1, `{"llm":{"input_modalities":["text","image"]}}`, `{"llm":{"input_modalities":["smell"]}}`, "llm.input_modalities"},
		{v1, `{"llm":{"output_modalities":["audio"]}}`, `{"llm":{"output_modalities":["image"]}}`, "llm.output_modalities"},
		{v1, `{"llm":{"greeting_configs":{"audio_pcm_sample_rate":16000}}}`, `{"llm":{"greeting_configs":{"audio_pcm_sample_rate":"16k"}}}`, "llm.greeting_configs.audio_pcm_sample_rate"},
		{v1, `{"filler_words":{"trigger":{"mode":"fixed_time"}}}`, `{"filler_words":{"trigger":{"mode":"random"}}}`, "filler_words.trigger.mode"},
		{v1, `{"llm":{"mcp_servers":[{"name":"m","endpoint":"https://m.example","transport":"streamable_http"}]}}`, `{"llm":{"mcp_servers":[{"name":"m","endpoint":"https://m.example","transport":"stdio"}]}}`, "llm.mcp_servers[0].transport"},
		{v1, `{"llm":{"style":"gemini","system_messages":[{"role":"user","parts":[{"text":"a"}]}]}}`, `{"llm":{"system_messages":[{"role":"user","parts":[{"text":"a"}]}]}}`, "llm.system_messages[0].content"},
		{v1, `{"llm":{"headers":{"X-T":"a\tb"}}}`, `{"llm":{"headers":{"X-T":"a\u0007b"}}}`, "llm.headers.X-T"},
		{v1, `{"labels":{"a":"b"}}`, `{"labels":{"a\u0000":"b"}}`, "labels"},
		{v1, `{"channel":"room"}`, `{"channel":"ro\u0000om"}`, "channel"},
		{agora, mcp("Notes2"), mcp("notes.v-2"), "llm.mcp_servers[0].name"},
		{cn, mcp("notes.v-2"), mcp("notes 2"), "llm.mcp_servers[0].name"},
		{agora, `{"mllm":{"enable":true,"api_key":"k"}}`, `{"mllm":{"enable":true}}`, "mllm.api_key"},
		{cn, `{"mllm":{"enable":true,"vendor":"vertexai"}}`, `{"mllm":{"enable":true,"api_key":""}}`, "mllm.api_key"},
		{agora, `{"tts":{"vendor":"","params":{}}}`, `{"tts":{"vendor":"","params":{"key":"k"}}}`, "tts.vendor"},
		{cn, `{"tts":{}}`, `{"tts":{"vendor":"microsoft"}}`, "tts.params"},
	} {
		for what, change := range map[string]string{"good": tt.good, "bad": tt.bad} {
			properties := map[string]any{}
			if tt.path != v1 {
				properties = voice(nil)
				delete(properties, "tts")
			}
			var changes map[string]any
			if err := json.Unmarshal([]byte(change), &changes); err != nil {
				t.Fatal(err)
			}
			for k, v := range changes {
				old, _ := properties[k].(map[string]any)
				members, ok := v.(map[string]any)
				if !ok || old == nil {
					properties[k] = v
					continue
				}
				for member, v := range members {
					old[member] = v
				}
			}
			got := s.post(tt.path+"/join", map[string]any{"name": fmt.Sprint(what, i), "properties": properties})
			if what == "good" {
				if got.status != http.StatusOK {
					t.Errorf("%s: %d %s", change, got.status, got.body)
				}
				continue
			}
			var e struct{ Detail string }
			if err := json.Unmarshal(got.body, &e); err != nil || got.status != http.StatusBadRequest || !strings.HasPrefix(e.Detail, "properties."+tt.field) {
				t.Errorf("%s: %d %s, want a 400 that names %s", change, got.status, got.body, tt.field)
			}
		}
	}
}

// TestAppendLooseEnds: two lists are refused, and zero and null count as absent.
func TestAppendLooseEnds(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	var l ledger
	s.post(agent(id, "/messages"), `{"messages":[{"role":"user","content":"a"}],"messages":[{"role":"user","content":"b"}]}`).
		refused(http.StatusBadRequest, "InvalidFieldValue", "messages: must occur once in its object")
	for _, none := range []string{`0`, `null`} {
		body := `{"role":"assistant","content":"a b","timestamp":1780000000000,"metadata":{"interrupted":true,"original":"a b c","interrupt_timestamp":` + none + `}}`
		s.post(agent(id, "/messages"), body).ok(&l)
		if at := l.Messages[0].Metadata["interrupt_timestamp"]; at != 1780000000000.0 {
			t.Errorf("interrupt_timestamp %s is stored as %v, want the message's own time", none, at)
		}
	}
	for body, words := range map[string]string{
		`{"messages":[{"role":"user","content":"x"},{"role":"user","turnid":1}]}`:     `messages[1].turnid: is not a field of this call; did you mean "turn_id"?`,
		`[{"role":"user","content":"x"},{"role":"user","content":"x","turn_id":"a"}]`: "messages[1].turn_id: must be a whole number, not a JSON string",
		`{"messages":[{"role":"user","content":"x","timestamp":"yesterday"}]}`:        "messages[0].timestamp: must be a whole number, not a JSON string",
		`{"messages":{"role":"user","content":"x"}}`:                                  "messages: must be an array, not a JSON object",
		`[{"role":"user","content":"x"},{"role":"user","content":"y","naem":"x"}]`:    `naem: is not a field of this call; did you mean "name"?`,
	} {
		s.post(agent(id, "/messages"), body).refused(http.StatusBadRequest, "InvalidFieldValue", words)
	}
	if n := len(s.ledger(id)); n != 2 {
		t.Errorf("%d messages are stored, want 2", n)
	}
}

// TestChatConflict: conflicts on an OpenAI-compatible path have OpenAI's form and are no 409, which
// its clients retry.
func TestChatConflict(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "Hi."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=true")
	id := s.join("bot-7", nil)
	s.chat(v1+"/chat/completions", "Hello", false, "X-Agent-Id", "bot-7").failed(400, "conflict", id)
	// As ever on the other paths.
	s.post(v1+"/join", `{"name":"bot-7"}`).refused(http.StatusConflict, "TaskConflict")
	_, busy := upstream(t, fake.Script{Status: http.StatusConflict})
	own := s.join("n", map[string]any{"llm": map[string]any{"url": busy + "/chat/completions"}})
	if got := s.chat(agent(own, "/chat/completions"), "x", false); got.status != http.StatusConflict || !strings.Contains(string(got.body), "fake_error") {
		t.Errorf("the upstream's own 409 was not passed on: %d %s", got.status, got.body)
	}
}

// TestChatPanic: a panic is answered in the form of its path.
func TestChatPanic(t *testing.T) {
	t.Parallel()
	sp, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	api := handlers.New(handlers.Config{ // without a service behind it each call of an agent panics
		Access: &handlers.Access{DefaultProject: "p"}, Metrics: handlers.NewMetrics(prometheus.NewRegistry()), MetricsPage: http.NotFoundHandler(), MaxBody: 1 << 20,
	})
	srv := httptest.NewServer(api)
	t.Cleanup(srv.Close)
	s := &server{t: t, url: srv.URL, client: &http.Client{Transport: sp.Transport(t, nil)}}
	s.chat(agent("a", "/chat/completions"), "x", false).failed(500, "internal", "internal error")
	s.get(agent("a", "/models")).failed(500, "internal", "internal error")
}
