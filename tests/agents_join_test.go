package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// voice returns the properties of a minimal join of Agora's clients, with one more pair in each
// place.
func voice(edit func(p map[string]any)) map[string]any {
	p := map[string]any{
		"channel": "room-1", "token": "", "agent_rtc_uid": "9001", "remote_rtc_uids": []string{"42"},
		"llm": map[string]any{"url": "https://llm.example/v1/chat/completions", "api_key": "k", "vendor": "custom"},
		"tts": map[string]any{"vendor": "microsoft", "params": map[string]any{"key": "k"}},
	}
	if edit != nil {
		edit(p)
	}
	return p
}

type joined struct {
	AgentID  string `json:"agent_id"`
	CreateTS int64  `json:"create_ts"`
	Status   string `json:"status"`
}

type agentView struct {
	Message string            `json:"message"`
	StartTS int64             `json:"start_ts"`
	StopTS  int64             `json:"stop_ts"`
	Status  string            `json:"status"`
	Name    string            `json:"name"`
	AgentID string            `json:"agent_id"`
	Channel string            `json:"channel"`
	Labels  map[string]string `json:"labels"`

	Keys     []string `json:"keys"`
	Previous string   `json:"previous_agent_id"`
	WeakKey  bool     `json:"weak_key"`
}

// agent returns an agent of the project default in Agora's form.
func (s *server) agent(id string, headers ...string) agentView {
	s.t.Helper()
	var a agentView
	s.get(agora+"/agents/"+id, headers...).ok(&a)
	return a
}

func TestJoinUnderEveryBase(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i, path := range []string{v1 + "/join", v1 + "/join/", v1 + "/agents", agora + "/join", agora + "/join/", cn + "/join", cn + "/join/"} {
		name := fmt.Sprint("n", i)
		var j joined
		s.post(path, map[string]any{"name": name, "properties": voice(func(p map[string]any) { p["labels"] = map[string]string{"tenant": "t1"} })}).ok(&j)
		if j.Status != "RUNNING" || j.CreateTS == 0 || !regexp.MustCompile(`^[0-9a-f-]{36}$`).MatchString(j.AgentID) {
			t.Errorf("%s: %+v", path, j)
		}
		want := agentView{StartTS: j.CreateTS, Status: "RUNNING", Name: name, AgentID: j.AgentID, Channel: "room-1", Labels: map[string]string{"tenant": "t1"}}
		for _, base := range []string{agora, cn} { // one agent, whatever the base
			var got agentView
			s.get(base + "/agents/" + j.AgentID).ok(&got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s under %s:\n%s", path, base, diff)
			}
		}
	}
}

// TestJoinRequires is what each base demands: under /v1 a name alone.
func TestJoinRequires(t *testing.T) {
	t.Parallel()
	s := start(t)
	n := 0
	for _, field := range []string{"channel", "token", "agent_rtc_uid", "remote_rtc_uids", "llm", ""} {
		without := voice(func(p map[string]any) { delete(p, field) })
		for path, free := range map[string]string{v1 + "/join": "channel token agent_rtc_uid remote_rtc_uids llm", agora + "/join": "", cn + "/join": "token"} {
			n++
			got := s.post(path, map[string]any{"name": fmt.Sprint("n", n), "properties": without})
			switch {
			case field == "" || strings.Contains(free, field):
				got.ok(nil)
			case field == "llm":
				got.refused(http.StatusBadRequest, "MissingRequiredField", "properties.llm.url")
			default:
				got.refused(http.StatusBadRequest, "MissingRequiredField", "properties."+field)
			}
		}
	}
	// An agent made elsewhere brings its LLM.
	for _, more := range []map[string]any{{"pipeline_id": "p"}, {"preset": "a,b"}} {
		body := map[string]any{"name": fmt.Sprint(more), "properties": voice(func(p map[string]any) { delete(p, "llm") })}
		for k, v := range more {
			body[k] = v
		}
		s.post(agora+"/join", body).ok(nil)
	}
	s.post(agora+"/join", map[string]any{"name": "mllm", "properties": voice(func(p map[string]any) { delete(p, "llm"); p["mllm"] = map[string]any{"enable": true, "api_key": "k"} })}).ok(nil)
	for _, path := range []string{agora + "/join", cn + "/join"} {
		s.post(path, map[string]any{"name": "n"}).refused(http.StatusBadRequest, "MissingRequiredField", "properties")
		s.post(path, map[string]any{"name": "n", "properties": nil}).refused(http.StatusBadRequest, "MissingRequiredField", "properties")
	}
	s.post(v1+"/join", map[string]any{"properties": voice(nil)}).refused(http.StatusBadRequest, "MissingRequiredField", "name")
	s.post(v1+"/join", map[string]any{"name": ""}).refused(http.StatusBadRequest, "MissingRequiredField", "name")
	with := start(t, "HEARDLOG_LLM_URL=http://127.0.0.1:1/v1")
	with.post(agora+"/join", map[string]any{"name": "n", "properties": voice(func(p map[string]any) { delete(p, "llm") })}).ok(nil)
}

// TestJoinLimits checks the documented limits of each known property. Errors name the path as the
// caller wrote it.
func TestJoinLimits(t *testing.T) {
	t.Parallel()
	s := start(t)
	long := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	list := func(n int) string { return `[` + strings.TrimSuffix(strings.Repeat(`"x",`, n), ",") + `]` }
	for i, tt := range []struct{ path, good, bad string }{
		{"channel", long(512), long(513)},
		{"channel", `""`, `7`},
		{"agent_rtc_uid", `"0"`, `9001`},
		{"remote_rtc_uids", `["*"]`, `"42"`},
		{"remote_rtc_uids", `[]`, `[42]`},
		{"remote_rtc_uids", list(128), list(129)},
		{"token", `null`, `1`},
		{"enable_string_uid", `true`, `"yes"`},
		{"idle_timeout", `259200`, `259201`},
		{"idle_timeout", `0`, `-1`},
		{"idle_timeout", `null`, `1.5`},
		{"labels", `{"a":"b"}`, `{"a":1}`},
		{"labels", `{}`, `["a"]`},
		{"geofence.area", `"ASIA"`, `"MARS"`},
		{"advanced_features.enable_rtm", `false`, `1`},
		{"llm.url", `""`, `"ftp://llm.example/"`},
		{"llm.url", `"http://127.0.0.1:1/v1"`, `"http:///v1"`},
		{"llm.url", `"https://llm.example"`, `"https://user:pass@llm.example/"`},
		{"llm.url", `"https://llm.example/` + strings.Repeat("x", 2000) + `"`, `"https://llm.example/` + strings.Repeat("x", 2048) + `"`},
		{"llm.api_key", long(8192), long(8193)},
		{"llm.api_key", `""`, `"a\r\nX-Evil: 1"`},
		{"llm.credential_mode", `"managed"`, `"mine"`},
		{"llm.vendor", `"custom"`, long(65)},
		{"llm.style", `"anthropic"`, `"klingon"`},
		{"llm.model", long(256), long(257)},
		{"llm.system_messages", `[{"role":"system","content":"a"}]`, `["a"]`},
		{"llm.params", `{"model":"m"}`, `[]`},
		{"llm.params", `null`, `"m"`},
		{"llm.max_history", `1024`, `1025`},
		{"llm.max_history", `0`, `-1`},
		{"llm.greeting_configs.mode", `"single_first"`, `"twice"`},
		{"llm.greeting_configs.delay_ms", `5000`, `5001`},
		{"llm.greeting_configs.audio_download_timeout_ms", `200`, `199`},
		{"llm.template_variables", `{"a":"b"}`, `{"a":{}}`},
		{"llm.headers", `{"X-Tenant":"t"}`, `{"X Tenant":"t"}`},
		{"llm.headers", `{}`, `{"X-Tenant":"a\nb"}`},
		{"llm.mcp_servers", `[{"name":"m","endpoint":"https://m.example"}]`, `[{"endpoint":"https://m.example"}]`},
		{"tts.vendor", `"microsoft"`, `"` + strings.Repeat("v", 65) + `"`},
		{"rtc.encryption_mode", `8`, `9`},
		{"asr.credential_mode", `"byok"`, `"mine"`},
		{"sal.sal_mode", `"locking"`, `"open"`},
		{"parameters.data_channel", `"rtm"`, `"smoke"`},
		{"parameters.audio_scenario", `"chorus"`, `"bar"`},
		{"llm.input_modalities", `["text","image"]`, `["smell"]`},
		{"filler_words.trigger.mode", `"fixed_time"`, `"never"`},
		{"tts.skip_patterns", `[1,5]`, `[6]`},
		{"turn_detection.config.speech_threshold", `0.5`, `1`},
		{"turn_detection.config.start_of_speech.mode", `"vad"`, `"loud"`},
		{"turn_detection.config.start_of_speech.vad_config.interrupt_duration_ms", `120`, `119`},
		{"turn_detection.config.end_of_speech.vad_config.silence_duration_ms", `2000`, `2001`},
		{"turn_detection.config.end_of_speech.semantic_config.max_wait_ms", `-1`, `499`},
		{"turn_detection.interrupt_keywords", list(128), list(129)},
		{"interruption.mode", `"keywords"`, `"never"`},
		{"interruption.keywords_config.trigger_keywords", list(128), list(129)},
		{"filler_words.trigger.fixed_time_config.response_wait_ms", `100`, `99`},
		{"filler_words.content.static_config.phrases", list(100), list(101)},
		{"filler_words.content.static_config.selection_rule", `"shuffle"`, `"best"`},
		{"parameters.silence_config.timeout_ms", `0`, `60001`},
		{"parameters.silence_config.action", `"think"`, `"shout"`},
		{"parameters.farewell_config.graceful_timeout_seconds", `120`, `121`},
		{"heardlog.mode", `"inject"`, `"both"`},
		{"heardlog.on_disconnect", `"drain"`, `"ignore"`},
		{"heardlog.duplicates", `"join"`, `"both"`},
		{"heardlog.timeouts.first_token_ms", `10`, `9`},
	} {
		parts := strings.Split(tt.path, ".")
		join := func(value string) answer {
			t.Helper()
			p := voice(nil)
			at := p
			for _, k := range parts[:len(parts)-1] {
				next, _ := at[k].(map[string]any)
				if next == nil {
					next = map[string]any{}
					at[k] = next
				}
				at = next
			}
			at[parts[len(parts)-1]] = json.RawMessage(value)
			return s.post(v1+"/join", map[string]any{"name": fmt.Sprint("n", i, len(value), value[:1]), "properties": p})
		}
		if got := join(tt.good); got.status != http.StatusOK {
			t.Errorf("%s = %.60s: %d %s", tt.path, tt.good, got.status, got.body)
		}
		got := join(tt.bad)
		if got.status != http.StatusBadRequest {
			t.Errorf("%s = %.60s was taken", tt.path, tt.bad)
			continue
		}
		var e struct{ Detail, Reason string }
		if err := json.Unmarshal(got.body, &e); err != nil {
			t.Fatal(err)
		}
		if (e.Reason != "InvalidFieldValue" && e.Reason != "MissingRequiredField") || !strings.HasPrefix(e.Detail, "properties."+tt.path) {
			t.Errorf("%s = %.60s: %s %q", tt.path, tt.bad, e.Reason, e.Detail)
		}
	}
}

func TestJoinBodies(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, tt := range []struct{ name, body, reason, word string }{
		{"nothing", ``, "InvalidRequestBody", "empty"},
		{"not JSON", `{"name"`, "InvalidRequestBody", "JSON"},
		{"a list", `[]`, "InvalidRequestBody", "object"},
		{"two values", `{"name":"a"}{"name":"b"}`, "InvalidRequestBody", "more than one"},
		{"trailing text", `{"name":"a"} x`, "InvalidRequestBody", ""},
		{"a number for a name", `{"name":1}`, "InvalidFieldValue", "name"},
		{"a long name", `{"name":"` + strings.Repeat("x", 257) + `"}`, "InvalidFieldValue", "name"},
		{"NUL in a name", `{"name":"a\u0000"}`, "InvalidFieldValue", "name"},
		{"properties that are no object", `{"name":"a","properties":"x"}`, "InvalidFieldValue", "properties"},
		{"silence without content", `{"name":"a","properties":{"parameters":{"silence_config":{"timeout_ms":100}}}}`, "MissingRequiredField", "silence_config.content"},
		{"greeting audio without greeting", `{"name":"a","properties":{"llm":{"greeting_audio_url":"https://a.example/x.mp3"}}}`, "MissingRequiredField", "greeting_message"},
		{"an exclusion outside GLOBAL", `{"name":"a","properties":{"geofence":{"area":"ASIA","exclude_area":"JAPAN"}}}`, "InvalidFieldValue", "exclude_area"},
	} {
		got := s.post(v1+"/join", tt.body)
		t.Run(tt.name, func(t *testing.T) { got.t = t; got.refused(http.StatusBadRequest, tt.reason, tt.word) })
	}
	// As curl -d sends it.
	s.post(v1+"/join", `{"name":"form"}`, "Content-Type", "application/x-www-form-urlencoded").ok(nil)
	s.post(v1+"/join", `{"name":"x"}`, "Content-Type", "a b;c").refused(http.StatusBadRequest, "InvalidRequestBody", "Content-Type")
	s.post(v1+"/join", `{"name":"x"}`, "Content-Encoding", "gzip").refused(http.StatusBadRequest, "InvalidRequestBody", "Content-Encoding")
}

// TestJoinConflict: the answer to a taken name has the fields of all documented forms, per project,
// until the agent ends.
func TestJoinConflict(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("same", nil)
	const agoras, own = "create agent failed, code: 409, msg: task conflict", `name: a running agent has the name "same" already`
	for path, detail := range map[string]string{v1 + "/join": own, v1 + "/agents": own, agora + "/join": agoras, cn + "/join/": agoras} {
		got := s.post(path, map[string]any{"name": "same", "properties": voice(nil)})
		got.refused(http.StatusConflict, "TaskConflict", detail)
		var e map[string]string
		if err := json.Unmarshal(got.body, &e); err != nil {
			t.Fatal(err)
		}
		if e["agent_id"] != id || e["taskId"] != id {
			t.Errorf("%s: %s does not name the running agent %s", path, got.body, id)
		}
	}
	other := strings.Replace(agora, "default", "another", 1)
	// Names belong to a project.
	s.post(other+"/join", map[string]any{"name": "same", "properties": voice(nil)}).ok(nil)
	s.post(agent(id, "/leave"), nil).ok(nil)
	if again := s.join("same", nil); again == id {
		t.Error("the second agent has the first one's id")
	}
}

func TestJoinIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := start(t)
	props := map[string]any{"llm": map[string]any{"greeting_message": "Hi"}}
	first := s.join("a", props, "Idempotency-Key", "k-1")
	if second := s.join("a", props, "Idempotency-Key", "k-1"); second != first {
		t.Errorf("the same call again made %s beside %s", second, first)
	}
	if got := texts(s.history(first).Contents); len(got) != 1 {
		t.Errorf("the repeated join said the greeting again: %q", got)
	}
	s.post(v1+"/join", map[string]any{"name": "b"}, "Idempotency-Key", "k-1").refused(http.StatusConflict, "TaskConflict", "Idempotency-Key")
	s.post(v1+"/join", map[string]any{"name": "c"}, "Idempotency-Key", strings.Repeat("k", 101)).refused(http.StatusBadRequest, "InvalidFieldValue", "Idempotency-Key")
	s.post(v1+"/join", map[string]any{"name": "c"}, "Idempotency-Key", "a b").refused(http.StatusBadRequest, "InvalidFieldValue", "Idempotency-Key")
	s = s.again()
	if third := s.join("a", props, "Idempotency-Key", "k-1"); third != first {
		t.Errorf("after a restart the same call made %s beside %s", third, first)
	}
}

func TestQuota(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_MAX_AGENTS=2")
	a := s.join("a", nil)
	s.join("b", nil)
	for _, path := range []string{v1 + "/join", v1 + "/agents"} {
		s.post(path, map[string]any{"name": "c"}).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "2")
	}
	s.post(strings.Replace(agora, "default", "other", 1)+"/join", map[string]any{"name": "c", "properties": voice(nil)}).ok(nil)
	s.post(agent(a, "/leave"), nil).ok(nil)
	s.join("c", nil)
}

// TestMessageQuota: a full ledger refuses new messages, but stores answers to accepted ones and
// recognizes repeats.
func TestMessageQuota(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "Hi."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_MAX_MESSAGES=4")
	id := s.join("a", nil)
	s.say(id, map[string]any{"id": "m-1", "role": "user", "content": "a"}, assistant("b"))
	s.post(agent(id, "/messages"), map[string]any{"messages": []any{user("c"), user("d"), user("e")}}).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "4", id)
	s.chat(agent(id, "/chat/completions"), "c", false).ok(nil)
	s.chat(agent(id, "/chat/completions"), "d", false).failed(http.StatusUnprocessableEntity, "quota", "4")
	for _, path := range []string{"/speak", "/think"} {
		s.post(agent(id, path), `{"text":"x"}`).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "4")
	}
	s.say(id, map[string]any{"id": "m-1", "role": "user", "content": "a"}) // is there already
	if got := len(s.history(id).Contents); got != 4 {
		t.Errorf("%d messages in history, want 4", got)
	}
	s.post(agent(id, "/leave"), nil).ok(nil)
}

// TestTemplateVariables: variables are replaced once, and not in values.
func TestTemplateVariables(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", map[string]any{"llm": map[string]any{
		"greeting_message": "Hello {{who}}, {{ who }}, {{nobody}} {{", "template_variables": map[string]string{"who": "{{who}} & {{other}}", "other": "x"},
	}})
	want := []string{"0 assistant: Hello {{who}} & {{other}}, {{who}} & {{other}}, {{nobody}} {{"}
	if diff := cmp.Diff(want, texts(s.history(id).Contents)); diff != "" {
		t.Error(diff)
	}
}
