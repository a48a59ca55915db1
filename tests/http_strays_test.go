package tests

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// TestUnknownParameters: under /v1 a parameter that a call does not have is refused, and those of
// the description are not.
func TestUnknownParameters(t *testing.T) {
	t.Parallel()
	sp, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	s := start(t)
	n := 0
	for call, names := range sp.Parameters() {
		method, path, _ := strings.Cut(call, " ")
		public := strings.HasPrefix(path, "/v1/ingest") || strings.HasPrefix(path, "/v1/webhooks/fetch")
		openAI := strings.Contains(path, "/chat/completions") || strings.Contains(path, "/responses") || strings.Contains(path, "/models") && path != "/v1/embeddings/models" || path == "/v1/embeddings" || strings.Contains(path, "/realtime") ||
			strings.HasPrefix(path, "/v1/conversations") && (method == http.MethodPost || strings.Contains(path, "/items"))
		if !strings.HasPrefix(path, "/v1/") || public || openAI {
			continue
		}
		n++
		path = regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(path, "x")
		got := s.do(method, path+"?limt=1", nil)
		if method == http.MethodHead { // no body
			got.is(http.StatusBadRequest, nil)
			continue
		}
		got.refused(http.StatusBadRequest, "InvalidFieldValue", "limt: is not a parameter of this call")
		for _, name := range names {
			if name == "limit" && !strings.Contains(string(got.body), "did you mean limit?") {
				t.Errorf("%s: %s", call, got.body)
			}
			if got := s.do(method, path+"?"+name+"=0", nil); strings.Contains(string(got.body), "is not a parameter") {
				t.Errorf("%s: %s", call, got.body)
			}
		}
	}
	if n < 80 {
		t.Errorf("only %d calls were tried", n)
	}
	s.get(v1+"/usage?x=1").refused(http.StatusBadRequest, "InvalidFieldValue", "x: is not a parameter of this call, which has none")
	s.get(v1+"/agents?limit=1&limit=2").refused(http.StatusBadRequest, "InvalidFieldValue", "limit: is given 2 times")
	// Agora ignores what it does not know, and so do its paths here. A header names it.
	id := s.join("n", nil)
	for path, want := range map[string]string{
		"/agents?limt=1&cursor=&channel=c&name=n&from_time=0&to_time=0&state=2&a%20%0a=b": "a ?, limt",
		"/agents?limit=1": "",
		"/agents/" + id + "/history?limit=1&confidence=true&since=1h": "since",
		"/agents/" + id + "/turns?page_index=1&page_size=20&page=2":   "page",
		"/agents/" + id + "?x": "x",
	} {
		for _, base := range []string{agora, "/cn" + agora} {
			if h := s.get(base + path).ok(nil).header.Get("X-Heardlog-Ignored"); h != want {
				t.Errorf("%s%s: X-Heardlog-Ignored %q, want %q", base, path, h, want)
			}
		}
	}
}

// TestUnknownFields: under /v1 a field that a call does not have is refused with the name that it
// is most like. Agora's paths list it in a header.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	for _, tt := range []struct{ path, body, words string }{
		{v1 + "/join", `{"name":"m","what":1}`, "what: is not a field of this call; known here are: name, "},
		{v1 + "/join", `{"name":"m","propertes":{}}`, `did you mean "properties"?`},
		{v1 + "/agents", `{"name":"m","properties":{"heardlog":{"plicy":"full"}}}`, `properties.heardlog.plicy: is not a field of this call; did you mean "policy"?`},
		{v1 + "/join", `{"name":"m","properties":{"heardlog":{"timeouts":{"total":5}}}}`, `properties.heardlog.timeouts.total: is not a field`},
		{v1 + "/join", `{"name":"m","properties":{"llm":{"greetng_message":"Hi"}}}`, `properties.llm.greetng_message: is not a field of this call; did you mean "greeting_message"?`},
		{v1 + "/join", `{"name":"m","properties":{"llm":{"urll":"http://h.example/"}}}`, `properties.llm.urll: is not a field of this call; did you mean "url"?`},
		{v1 + "/join", `{"name":"m","properties":{"lml":{"url":"http://h.example/"}}}`, `properties.lml: is not a field of this call; did you mean "llm"?`},
		{agent(id, "/update"), `{"propertiez":{}}`, `propertiez: is not a field of this call; did you mean "properties"?`},
		{agent(id, "/update"), `{"properties":{"lables":{"a":"b"}}}`, `properties.lables: is not a field of this call; did you mean "labels"?`},
		{agent(id, "/update"), `{"properties":{"heardlog":{"scope":{}}}}`, `properties.heardlog.scope: is set by the join and cannot change`},
		{agent(id, "/speak"), `{"text":"a","priorty":"IGNORE"}`, `did you mean "priority"?`},
		{agent(id, "/think"), `{"text":"a","more":1}`, `more: is not a field`},
		{agent(id, "/interrupt"), `{"hard":"a"}`, `did you mean "heard"?`},
		{agent(id, "/trim"), `{"keep_recnt":1}`, `did you mean "keep_recent"?`},
		{agent(id, "/messages"), `{"role":"user","contnt":"a","content":"b"}`, `contnt: is not a field of this call; did you mean "content"?`},
	} {
		s.post(tt.path, tt.body).refused(http.StatusBadRequest, "InvalidFieldValue", tt.words)
	}
	// Agora's own objects have more fields than are known here.
	s.post(v1+"/join", `{"name":"o","properties":{"asr":{"params":{}},"vad":{"threshold":0.5},"advanced_features":{"enable_aivad":true}}}`).ok(nil)

	var joined struct {
		AgentID string `json:"agent_id"`
	}
	got := s.post(agora+"/join", `{"name":"a","what":1,"properties":{"channel":"c","token":"t","agent_rtc_uid":"0","remote_rtc_uids":["1"],"asr":{"params":{}},
		"llm":{"url":"http://h.example/","greetng_message":"Hi"},"tts":{"vendor":"v","params":{"k":"v"}},"heardlog":{"plicy":"full"}}}`).ok(&joined)
	if h := got.header.Get("X-Heardlog-Ignored"); h != "what, properties.heardlog.plicy, properties.llm.greetng_message" {
		t.Errorf("X-Heardlog-Ignored %q", h)
	}
	got = s.post(agora+"/agents/"+joined.AgentID+"/speak", `{"text":"b","priorty":"IGNORE"}`).ok(nil)
	if h := got.header.Get("X-Heardlog-Ignored"); h != "priorty" {
		t.Errorf("X-Heardlog-Ignored %q", h)
	}
}

// TestProvidersFields: what a provider adds to its messages is kept in their metadata.
func TestProvidersFields(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	s.post(agent(id, "/messages"), `{"messages":[{"role":"user","content":"When?"},
		{"role":"assistant","content":"At nine.","refusal":null,"annotations":[{"type":"url_citation"}],"reasoning_content":"hm","metadata":{"k":1}},
		{"role":"tool","tool_call_id":"c","source":"tool","content":"9:00"}]}`).ok(nil)
	h := s.ledger(id)
	if len(h) != 3 {
		t.Fatalf("%+v", h)
	}
	m := h[1].Metadata
	if m["reasoning_content"] != "hm" || m["annotations"] == nil || m["k"] != 1.0 {
		t.Errorf("%v", m)
	}
	if _, ok := m["refusal"]; ok {
		t.Error("null is kept")
	}
	if source := h[2].Metadata["source"]; source != "tool" {
		t.Errorf("a tool's source is %v", source)
	}
}
