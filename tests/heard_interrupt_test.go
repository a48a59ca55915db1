package tests

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const trainAnswer = "The train leaves at 9:05 from **platform 2**. Anything else?"

// said makes an agent that has said something in turn 0.
func (s *server) said(name string) string {
	s.t.Helper()
	id := s.join(name, map[string]any{"channel": "room-1"})
	s.say(id, user("When is my train?"), assistant(trainAnswer))
	return id
}

func (s *server) interrupt(id string, body any) answer {
	s.t.Helper()
	return s.post(agent(id, "/interrupt"), body)
}

// last returns the last message of the ledger.
func (s *server) last(id string) message {
	s.t.Helper()
	l := s.ledger(id)
	return l[len(l)-1]
}

// TestInterruptForms is each way to say what was heard.
func TestInterruptForms(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, tt := range map[string]struct {
		body   any
		heard  string
		method string
		cut    bool
	}{
		"empty body":           {nil, trainAnswer, "disconnect_only", true},
		"empty object":         {`{}`, trainAnswer, "disconnect_only", true},
		"text":                 {`{"heard":"The train leaves at"}`, "The train leaves at", "vendor_text", true},
		"text and turn":        {`{"turn_id":0,"heard":"The train"}`, "The train", "vendor_text", true},
		"nothing heard":        {`{"heard":""}`, "", "vendor_text", true},
		"case and punctuation": {`{"heard":"the TRAIN, leaves"}`, "The train leaves", "vendor_text", true},
		"without markdown":     {`{"heard":"The train leaves at 9:05 from platform 2"}`, "The train leaves at 9:05 from **platform 2", "vendor_text", true},
		"half a word":          {`{"heard":"The train lea"}`, "The train lea", "vendor_text", true},
		"all of it":            {`{"heard":"` + trainAnswer + `"}`, trainAnswer, "vendor_text", false},
		"time far behind":      {`{"heard_ms":600000}`, trainAnswer, "audio_ms", false},
		"no time at all":       {`{"heard_ms":0}`, "", "audio_ms", true},
		"text before time":     {`{"heard":"The train","heard_ms":600000}`, "The train", "vendor_text", true},
	} {
		t.Run(name, func(t *testing.T) {
			id := s.said(name)
			var out struct {
				AgentID string `json:"agent_id"`
				Channel string `json:"channel"`
				StartTS int64  `json:"start_ts"`
				Changed []struct {
					TurnID                   int64 `json:"turn_id"`
					Seq                      int64
					Generated, Heard, Method string
				} `json:"interrupted"`
			}
			s.interrupt(id, tt.body).ok(&out)
			m := s.last(id)
			if out.AgentID != id || out.Channel != "room-1" || out.StartTS == 0 || len(out.Changed) != 1 {
				t.Fatalf("%+v", out)
			}
			if c := out.Changed[0]; c.TurnID != m.TurnID || c.Seq != m.Seq || c.Generated != trainAnswer || c.Heard != m.Content || c.Method != tt.method {
				t.Errorf("the answer says that %+v has changed", c)
			}
			if s.interrupt(id, tt.body).ok(&out); len(out.Changed) > 0 {
				t.Errorf("a repeat has changed %+v", out.Changed)
			}
			if strings.TrimRight(m.Content, "*. ") != strings.TrimRight(tt.heard, "*. ") || m.Heard != m.Content || m.Generated != trainAnswer || m.Evidence.Method != tt.method {
				t.Errorf("heard %q by %s of %q; want %q by %s", m.Content, m.Evidence.Method, m.Generated, tt.heard, tt.method)
			}
			h := s.history(id).Contents
			md := h[len(h)-1].Metadata
			if !tt.cut {
				if diff := cmp.Diff(map[string]any{"source": "llm"}, md); diff != "" {
					t.Error(diff)
				}
				return
			}
			if md["interrupted"] != true || md["original"] != trainAnswer || md["interrupt_timestamp"] == nil {
				t.Errorf("metadata %v", md)
			}
			if h[len(h)-1].Content != m.Content {
				t.Errorf("history shows %q, the ledger %q", h[len(h)-1].Content, m.Content)
			}
			if diff := cmp.Diff(m, func() message { s.interrupt(id, tt.body).ok(nil); return s.last(id) }()); diff != "" {
				t.Errorf("the same call again changed something:\n%s", diff)
			}
		})
	}
	// Agora's paths take unknown keys.
	id, body := s.said("unknown keys"), `{"interruptable":true,"heard":"The"}`
	s.interrupt(id, body).refused(http.StatusBadRequest, "InvalidFieldValue", "interruptable: is not a field")
	s.post(agora+"/agents/"+id+"/interrupt", body).ok(nil)
	if m := s.last(id); m.Content != "The" || m.Evidence.Method != "vendor_text" {
		t.Errorf("%+v", m)
	}
}

// TestInterruptEvidence: stronger evidence replaces weaker and never the other way, in any order.
func TestInterruptEvidence(t *testing.T) {
	t.Parallel()
	s := start(t)
	cut, timed, text := `{}`, `{"heard_ms":0}`, `{"heard":"The train leaves"}`
	for name, order := range map[string][]string{
		"rising": {cut, timed, text}, "falling": {text, timed, cut}, "mixed": {timed, text, cut}, "the other": {timed, cut, text},
	} {
		id := s.said(name)
		for _, body := range order {
			s.interrupt(id, body).ok(nil)
		}
		if m := s.last(id); m.Content != "The train leaves" || m.Evidence.Method != "vendor_text" || m.Generated != trainAnswer {
			t.Errorf("%s: %q by %s", name, m.Content, m.Evidence.Method)
		}
	}
	id := s.said("late")
	s.post(agent(id, "/leave"), nil).ok(nil)
	s.interrupt(id, text).ok(nil) // evidence may come after the end
	if m := s.last(id); m.Content != "The train leaves" {
		t.Errorf("after the end: %q", m.Content)
	}
}

func TestInterruptTimes(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, tt := range map[string]struct {
		at   string
		want int64
	}{"ms": {"1780000013900", 1780000013900}, "seconds": {"1780000013", 1780000013000}} {
		id := s.said(name)
		s.interrupt(id, `{"heard":"The","at":`+tt.at+`}`).ok(nil)
		if m := s.last(id); m.Metadata["interrupt_timestamp"] != float64(tt.want) || m.Evidence.At != tt.want {
			t.Errorf("%s: %v, %d", name, m.Metadata, m.Evidence.At)
		}
	}
	id, before := s.said("now"), time.Now().UnixMilli()
	s.interrupt(id, nil).ok(nil)
	if at, _ := s.last(id).Metadata["interrupt_timestamp"].(float64); int64(at) < before || int64(at) > time.Now().UnixMilli() {
		t.Errorf("interrupt_timestamp %v is not now", at)
	}
}

// TestInterruptTargets: interrupt cuts the named turn, else the last answer. A user message cannot
// be interrupted.
func TestInterruptTargets(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	s.interrupt(id, nil).ok(nil) // nothing is said: nothing to cut
	s.interrupt(id, `{"heard":"x"}`).refused(http.StatusConflict, "TaskConflict", "nothing")
	s.say(id, user("a"), assistant("first answer"), user("b"), assistant("second answer"), user("c"))
	s.interrupt(id, `{"turn_id":2}`).refused(http.StatusConflict, "TaskConflict", "turn_id", "turn 2", "user message")
	s.interrupt(id, `{"turn_id":7}`).refused(http.StatusNotFound, "TaskNotFound", "turn_id", "7")
	s.interrupt(id, `{"turn_id":0,"heard":"first"}`).ok(nil)
	s.interrupt(id, `{"heard":"second"}`).ok(nil)
	if diff := cmp.Diff([]string{"0 user: a", "0 assistant: first", "1 user: b", "1 assistant: second", "2 user: c"}, texts(s.history(id).Contents)); diff != "" {
		t.Error(diff)
	}
	s.interrupt(id, `{"heard":"something else entirely"}`).refused(http.StatusBadRequest, "InvalidFieldValue", "heard", "not a part")
	s.interrupt(id, `{"turn_id":0,"heard":"second"}`).refused(http.StatusBadRequest, "InvalidFieldValue", "heard", "turn 0")
	for body, field := range map[string]string{
		`{"turn_id":-1}`: "turn_id", `{"turn_id":"x"}`: "turn_id", `{"heard":1}`: "heard", `{"heard":"a\u0000"}`: "heard", `{"heard_ms":-1}`: "heard_ms",
		`{"heard_ms":86400001}`: "heard_ms", `{"at":-1}`: "at", `{"at":1e18}`: "at",
	} {
		s.interrupt(id, body).refused(http.StatusBadRequest, "InvalidFieldValue", field)
	}
	s.interrupt(id, `{`).refused(http.StatusBadRequest, "InvalidRequestBody")
	s.interrupt(id, `[]`).refused(http.StatusBadRequest, "InvalidRequestBody")
	s.interrupt("unknown", nil).refused(http.StatusNotFound, "TaskNotFound")
	for _, base := range []string{agora, cn} {
		s.post(base+"/agents/"+id+"/interrupt", `{"turn_id":0}`).ok(nil)
	}
}

func TestSpeak(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.said("n")
	for i, path := range []string{agent(id, "/speak"), agora + "/agents/" + id + "/speak", cn + "/agents/" + id + "/speak"} {
		var out map[string]any
		s.post(path, map[string]any{"text": "Taxi " + string(rune('a'+i)), "priority": []string{"", "APPEND", "IGNORE"}[i], "interruptable": true}).ok(&out)
		if out["agent_id"] != id || out["channel"] != "room-1" {
			t.Errorf("%s: %v", path, out)
		}
	}
	h := s.history(id).Contents
	if diff := cmp.Diff([]string{"1 assistant: Taxi a", "2 assistant: Taxi b", "3 assistant: Taxi c"}, texts(h[2:])); diff != "" {
		t.Error(diff)
	}
	if h[2].Metadata["source"] != "command" {
		t.Errorf("metadata %v", h[2].Metadata)
	}
	s.post(agent(id, "/speak"), map[string]any{"text": strings.Repeat("ö", 256)}).ok(nil)
	for body, words := range map[string]string{
		`{}`: "text", `{"text":""}`: "text", `{"text":"` + strings.Repeat("ö", 256) + `x"}`: "512", `{"text":"a","priority":"LATER"}`: "priority",
		`{"text":1}`: "text", `{"text":"a","interruptable":"no"}`: "interruptable",
	} {
		got := s.post(agent(id, "/speak"), body)
		if got.status != http.StatusBadRequest || !strings.Contains(string(got.body), words) {
			t.Errorf("%.40s: %d %s", body, got.status, got.body)
		}
	}
	key := []string{"Idempotency-Key", "k-1"}
	s.post(agent(id, "/speak"), `{"text":"once"}`, key...).ok(nil)
	s.post(agent(id, "/speak"), `{"text":"once"}`, key...).ok(nil)
	s.post(agent(id, "/speak"), `{"text":"other"}`, key...).refused(http.StatusConflict, "TaskConflict", "Idempotency-Key")
	n := 0
	for _, m := range s.ledger(id) {
		if m.Content == "once" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the text was said %d times", n)
	}
	s.post(agent("unknown", "/speak"), `{"text":"x"}`).refused(http.StatusNotFound, "TaskNotFound")
}

// TestTurnTable: the table of turns agrees with the history.
func TestTurnTable(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", map[string]any{"channel": "room-1", "llm": map[string]any{"greeting_message": "Hello"}})
	s.say(id, map[string]any{"role": "user", "content": "a", "timestamp": 1780000001000}, map[string]any{"role": "assistant", "content": "b c d", "timestamp": 1780000002000})
	s.interrupt(id, `{"heard":"b","at":1780000003000}`).ok(nil)
	s.post(agent(id, "/speak"), `{"text":"x"}`).ok(nil)
	s.interrupt(id, nil).ok(nil)
	s.say(id, map[string]any{"role": "assistant", "content": "Still there?", "source": "silence"}, user("open"))
	type edge struct {
		StartAt  int64          `json:"start_at"`
		EndAt    int64          `json:"end_at"`
		Type     string         `json:"type"`
		Metadata map[string]any `json:"metadata"`
	}
	type turn struct {
		TurnID int64 `json:"turn_id"`
		Start  edge  `json:"start"`
		End    *edge `json:"end"`
	}
	var table struct {
		Total      int `json:"total_turn_count"`
		Pagination struct {
			PageIndex  int  `json:"page_index"`
			TotalPages int  `json:"total_pages"`
			IsLastPage bool `json:"is_last_page"`
		} `json:"pagination"`
		Turns []turn `json:"turns"`
	}
	s.get(agent(id, "/turns")).ok(&table)
	for i := range table.Turns { // what the server's own clock said
		tr := &table.Turns[i]
		if tr.TurnID != 1 {
			if tr.Start.StartAt == 0 || (tr.End != nil && tr.End.EndAt == 0) {
				t.Errorf("turn %d has no times", tr.TurnID)
			}
			tr.Start.StartAt = 0
			if tr.End != nil {
				tr.End.EndAt = 0
			}
		}
	}
	want := []turn{
		{0, edge{Type: "greeting", Metadata: map[string]any{"greeting_nth": 1.0}}, &edge{Type: "ok", Metadata: map[string]any{}}},
		{1, edge{StartAt: 1780000001000, Type: "voice_input", Metadata: map[string]any{}}, &edge{EndAt: 1780000003000, Type: "interrupted", Metadata: map[string]any{"caused_by": "api_interrupt", "transport": "http"}}},
		{2, edge{Type: "api_speak", Metadata: map[string]any{"transport": "http"}}, &edge{Type: "interrupted", Metadata: map[string]any{"caused_by": "api_interrupt", "transport": "http"}}},
		{3, edge{Type: "silence_timeout", Metadata: map[string]any{"action": "speak"}}, &edge{Type: "ok", Metadata: map[string]any{}}},
		{4, edge{Type: "voice_input", Metadata: map[string]any{}}, nil},
	}
	if diff := cmp.Diff(want, table.Turns); diff != "" {
		t.Error(diff)
	}
	var many []map[string]any
	for range 20 {
		many = append(many, user("u"), assistant("a"))
	}
	s.say(id, many...)
	for query, want := range map[string][]int{"": {24, 1, 1}, "?page_size=10": {10, 1, 3}, "?page_size=10&page_index=3": {4, 3, 3}, "?page_size=10&page_index=9": {0, 9, 3}} {
		s.get(agent(id, "/turns", query)).ok(&table)
		got := []int{len(table.Turns), table.Pagination.PageIndex, table.Pagination.TotalPages}
		if diff := cmp.Diff(want, got); diff != "" || table.Total != 24 || table.Pagination.IsLastPage != (want[1] >= want[2]) {
			t.Errorf("turns%s: total %d, %+v\n%s", query, table.Total, table.Pagination, diff)
		}
	}
	for _, bad := range []string{"page_size=9", "page_size=201", "page_index=-1", "page_index=x"} {
		field, _, _ := strings.Cut(bad, "=")
		s.get(agent(id, "/turns?", bad)).refused(http.StatusBadRequest, "InvalidFieldValue", field)
	}
	for _, base := range []string{agora, cn} {
		s.get(base + "/agents/" + id + "/turns").ok(nil)
	}
	empty := s.join("empty", nil)
	s.get(agent(empty, "/turns")).ok(&table)
	if table.Total != 0 || len(table.Turns) != 0 || !table.Pagination.IsLastPage {
		t.Errorf("%+v", table)
	}
}
