package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type page struct {
	Data struct {
		Count int `json:"count"`
		List  []struct {
			AgentID string `json:"agent_id"`
			Name    string `json:"name"`
			Status  string `json:"status"`
			Channel string `json:"channel"`
			StartTS int64  `json:"start_ts"`
		} `json:"list"`
	} `json:"data"`
	Meta struct {
		Cursor string `json:"cursor"`
		Total  int    `json:"total"`
	} `json:"meta"`
}

func (p page) names() []string {
	out := []string{}
	for _, a := range p.Data.List {
		out = append(out, a.Name)
	}
	return out
}

func (s *server) list(query string) page {
	s.t.Helper()
	var p page
	s.get(agora + "/agents" + query).ok(&p)
	if p.Data.Count != len(p.Data.List) {
		s.t.Errorf("list%s: count %d for %d agents", query, p.Data.Count, len(p.Data.List))
	}
	return p
}

func TestListFilters(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.join("a", map[string]any{"channel": "red"})
	b := s.join("b", map[string]any{"channel": "red"})
	s.join("c", map[string]any{"channel": "blue"})
	s.post(agent(b, "/leave"), nil).ok(nil)
	now := time.Now().Unix()
	for _, tt := range []struct {
		query string
		want  []string
	}{
		{"", []string{"c", "a"}}, // running ones, newest first
		{"?", []string{"c", "a"}},
		{"?state=4", []string{"b"}},
		{"?state=2,4", []string{"c", "b", "a"}},
		{"?state=0%2C1%2C2", []string{"c", "a"}}, // as one client escapes it
		{"?state=6", []string{}},
		{"?channel=red", []string{"a"}},
		{"?channel=red&state=2,4", []string{"b", "a"}},
		{"?channel=green", []string{}},
		{"?name=c", []string{"c"}},
		{fmt.Sprint("?to_time=", now+60), []string{"c", "a"}},
		{fmt.Sprint("?to_time=", now-3600), []string{}},
		{fmt.Sprint("?from_time=", now+3600), []string{}},
		{fmt.Sprint("?from_time=", now-10, "&to_time=", now+10), []string{"c", "a"}},
		{"?limit=1", []string{"c"}},
		{"?channel=&state=&from_time=&limit=", []string{"c", "a"}}, // empty values count as absent
	} {
		if diff := cmp.Diff(tt.want, s.list(tt.query).names()); diff != "" {
			t.Errorf("list%s:\n%s", tt.query, diff)
		}
	}
	for _, bad := range []string{"state=7", "state=RUNNING", "state=2,,4", "state=-1", "limit=-1", "limit=1001", "limit=x", "from_time=-1", "from_time=yesterday", "to_time=1e9", "cursor=a%20b", fmt.Sprint("from_time=", now, "&to_time=", now-1)} {
		field, _, _ := strings.Cut(bad, "=")
		if strings.Contains(bad, "&") {
			field = "to_time"
		}
		s.get(agora+"/agents?"+bad).refused(http.StatusBadRequest, "InvalidFieldValue", field)
	}
}

// TestListPaging: a walk through the pages misses no agent and shows none twice, while others start
// and end.
func TestListPaging(t *testing.T) {
	t.Parallel()
	s := start(t)
	var ids, want []string
	for i := range 7 {
		name := fmt.Sprint("n", i)
		ids = append(ids, s.join(name, nil))
		want = append([]string{name}, want...)
	}
	var got []string
	query := "?limit=3"
	for n := 0; ; n++ {
		p := s.list(query)
		got = append(got, p.names()...)
		if n == 0 && p.Meta.Total != 7 {
			t.Errorf("total %d, want 7", p.Meta.Total)
		}
		if p.Meta.Cursor == "" {
			break
		}
		if n == 0 { // between two pages one comes and one that was shown goes
			s.join("late", nil)
			s.post(agent(ids[6], "/leave"), nil).ok(nil)
		}
		if n > 5 {
			t.Fatal("the pages do not end")
		}
		query = "?limit=3&cursor=" + p.Meta.Cursor
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", map[string]any{"llm": map[string]any{"params": map[string]any{"model": "a"}}})
	for _, path := range []string{agent(id, "/update"), agora + "/agents/" + id + "/update", cn + "/agents/" + id + "/update"} {
		var out map[string]any
		s.post(path, `{"properties":{"token":"t","llm":{"system_messages":[{"role":"system","content":"x"}],"params":{"model":"b"}},"mllm":{"params":{}}}}`).ok(&out)
		if out["agent_id"] != id || out["status"] != "RUNNING" || out["create_ts"] == 0 {
			t.Errorf("%s: %v", path, out)
		}
	}
	s.post(agent(id, "/update"), `{}`).ok(nil)
	s.post(agora+"/agents/"+id+"/update", `{"properties":{"unknown":1,"llm":{"params":null}}}`).ok(nil)
	s.post(agent(id, "/update"), `{"properties":{"unknown":1,"llm":{"params":null}}}`).refused(http.StatusBadRequest, "InvalidFieldValue", "properties.unknown: is not a field")
	for body, field := range map[string]string{
		`{"properties":{"llm":{"params":[]}}}`:                 "properties.llm.params",
		`{"properties":{"mllm":{"params":1}}}`:                 "properties.mllm.params",
		`{"properties":{"llm":{"system_messages":["a"]}}}`:     "properties.llm.system_messages",
		`{"llm":{"params":"x"}}`:                               "llm.params",
		`{"properties":{"token":1}}`:                           "token",
		`{"properties":{"llm":{"system_messages":"be nice"}}}`: "system_messages",
	} {
		s.post(agent(id, "/update"), body).refused(http.StatusBadRequest, "InvalidFieldValue", field)
	}
	s.post(agent(id, "/update"), ``).refused(http.StatusBadRequest, "InvalidRequestBody")
	s.post(agent("unknown", "/update"), `{}`).refused(http.StatusNotFound, "TaskNotFound")
	s.post(agent(id, "/leave"), nil).ok(nil)
	s.post(agent(id, "/update"), `{"token":"t"}`).refused(http.StatusNotFound, "TaskNotFound", "OK")
}

// TestLeave: 200 with an empty body, then 404, and the agent stays readable.
func TestLeave(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i, base := range []string{v1, agora, cn} {
		id := s.join(fmt.Sprint("n", i), map[string]any{"llm": map[string]any{"greeting_message": "Hi"}})
		s.say(id, user("Hello"), assistant("Yes?"))
		before := s.history(id)
		got := s.post(base+"/agents/"+id+"/leave", nil)
		if got.status != http.StatusOK || len(got.body) != 0 {
			t.Errorf("%s: %d %q; 200 with an empty body is wanted", base, got.status, got.body)
		}
		for range 2 {
			s.post(base+"/agents/"+id+"/leave", nil).refused(http.StatusNotFound, "TaskNotFound", id, "OK")
		}
		after := s.history(id)
		if after.Status != "STOPPED" || after.StopTS == nil || *after.StopTS < after.StartTS {
			t.Errorf("history after the end: %+v", after)
		}
		if diff := cmp.Diff(before.Contents, after.Contents); diff != "" {
			t.Errorf("the memory changed with the end:\n%s", diff)
		}
		a := s.agent(id)
		if a.Status != "STOPPED" || a.StopTS == 0 || a.Message != "agent exits with reason: OK" {
			t.Errorf("the stopped agent: %+v", a)
		}
		s.get(agent(id, "/turns")).ok(nil)
		s.get(agent(id, "/messages")).ok(nil)
		stopped := s.post(agent(id, "/messages"), user("too late"))
		stopped.refused(http.StatusGone, "TaskNotFound", id, "stopped at ", "OK")
		s.post(agent(id, "/speak"), `{"text":"x"}`).refused(http.StatusNotFound, "TaskNotFound", "OK")
		s.post(agent(id, "/think"), `{"text":"x"}`).refused(http.StatusNotFound, "TaskNotFound", "OK")
		s.post(agent(id, "/interrupt"), nil).refused(http.StatusNotFound, "TaskNotFound", "OK")
	}
	s.post(agent("unknown", "/leave"), nil).refused(http.StatusNotFound, "TaskNotFound", "unknown")
}

// TestQuirks checks twelve peculiarities of Agora's API.
func TestQuirks(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	agents := agora + "/agents"
	for name, test := range map[string]func(t *testing.T, s *server){
		"1 update without properties": func(t *testing.T, s *server) {
			s.post(agents+"/"+id+"/update", `{"token":"t","llm":{"system_messages":[{"role":"system","content":"x"}],"params":{"model":"m"}}}`).ok(nil)
		},
		"2 speak with interrupt": func(t *testing.T, s *server) {
			s.post(agents+"/"+id+"/speak", `{"text":"x","priority":"APPEND","interrupt":false}`).ok(nil)
		},
		"3 update answers state and status": func(t *testing.T, s *server) {
			var out struct{ State, Status string }
			s.post(agents+"/"+id+"/update", `{}`).ok(&out)
			if out.State != "RUNNING" || out.Status != "RUNNING" {
				t.Errorf("%+v", out)
			}
		},
		"4 an empty query": func(t *testing.T, s *server) {
			if got := s.get(agents + "?").ok(nil); !strings.Contains(string(got.body), id) {
				t.Errorf("%s", got.body)
			}
		},
		"5 a present, empty cursor ends the list": func(t *testing.T, s *server) {
			var p page
			s.get(agents + "?cursor=").ok(&p)
			if p.Data.Count != 0 || len(p.Data.List) != 0 || p.Meta.Cursor != "" {
				t.Errorf("%+v", p)
			}
			if got := string(s.get(agents + "?cursor=&limit=5").body); !strings.Contains(got, `"list":[]`) {
				t.Errorf("%s", got)
			}
		},
		"6 leave answers exactly 200": func(t *testing.T, s *server) {
			gone := s.join("leaves", nil)
			if got := s.post(agents+"/"+gone+"/leave", nil); got.status != 200 || len(got.body) != 0 {
				t.Errorf("%d %q", got.status, got.body)
			}
		},
		"7 every error has a JSON body": func(t *testing.T, s *server) {
			for _, got := range []answer{
				s.get(agents + "/unknown"), s.get(agora + "/nothing"), s.do("DELETE", agents, nil), s.post(agora+"/join", "{"),
				s.get("/api/conversational-ai-agent/v2/projects/bad%20name/agents"), s.get(agents + "/a%2Fb"), s.get(agents + "/" + strings.Repeat("x", 129)),
				s.post(agora+"/join", strings.Repeat("[", 100)), s.get(agents, "Host", "evil.example"),
			} {
				var e struct{ Detail, Reason string }
				if err := json.Unmarshal(got.body, &e); err != nil || e.Detail == "" || e.Reason == "" || got.status < 400 || got.header.Get("Content-Type") != "application/json" {
					t.Errorf("%s: %d %q %q", got.call, got.status, got.header.Get("Content-Type"), got.body)
				}
			}
		},
		"8 an empty Authorization header": func(t *testing.T, s *server) {
			s.get(agents, "Authorization", "").ok(nil)
			s.get(agents+"/"+id, "Authorization", "Basic ").ok(nil)
		},
		"9 Content-Type on bodyless calls": func(t *testing.T, s *server) {
			s.get(agents+"/"+id, "Content-Type", "application/json;charset=utf-8").ok(nil)
			s.post(agents+"/"+id+"/interrupt", nil, "Content-Type", "application/json;charset=utf-8").ok(nil)
			gone := s.join("leaves with a type", nil)
			s.post(agents+"/"+gone+"/leave", nil, "Content-Type", "application/json;charset=utf-8").ok(nil)
		},
		"10 keys that the documentation lacks or has dropped": func(t *testing.T, s *server) {
			s.post(agora+"/join", map[string]any{"name": "old", "unknown": 1, "properties": voice(func(p map[string]any) {
				p["turn_detection"] = map[string]any{"language": "en-US", "type": "agora_vad", "threshold": 0.5, "create_response": true}
				p["silence_timeout"], p["agent_rtm_uid"], p["vad"] = 5, "7", map[string]any{"threshold": 0.5}
				p["advanced_features"] = map[string]any{"enable_aivad": true}
				p["llm"].(map[string]any)["silence_message"] = "hm"
				p["llm"].(map[string]any)["ignore_empty"] = true
			})}).ok(nil)
		},
		"11 zero values for optional fields": func(t *testing.T, s *server) {
			s.post(agora+"/join", map[string]any{"name": "zero", "pipeline_id": "", "preset": "", "properties": voice(func(p map[string]any) {
				p["idle_timeout"], p["enable_string_uid"], p["labels"], p["geofence"] = 0, false, nil, nil
				p["turn_detection"] = map[string]any{"interrupt_keywords": nil, "config": map[string]any{"speech_threshold": nil, "start_of_speech": map[string]any{"mode": "", "vad_config": map[string]any{"interrupt_duration_ms": 0}}}}
				p["parameters"] = map[string]any{"silence_config": map[string]any{"timeout_ms": 0, "action": "", "content": ""}, "farewell_config": map[string]any{"graceful_enabled": false, "graceful_timeout_seconds": 0}}
				p["asr"], p["mllm"], p["avatar"] = map[string]any{}, map[string]any{}, nil
				llm := p["llm"].(map[string]any)
				llm["max_history"], llm["style"], llm["greeting_message"], llm["params"], llm["system_messages"], llm["headers"] = 0, "", "", nil, nil, nil
			})}).ok(nil)
		},
		"12 a superset in answers": func(t *testing.T, s *server) {
			s.say(id, user("Hi"))
			got := s.get(agents + "/" + id + "/history").ok(nil)
			for _, key := range []string{`"role":"user"`, `"content":"Hi"`, `"turn_id":`, `"timestamp":`, `"metadata":{"source":"message"}`} {
				if !strings.Contains(string(got.body), key) {
					t.Errorf("%s is not in %s", key, got.body)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			sub := *s
			sub.t = t
			test(t, &sub)
		})
	}
}
