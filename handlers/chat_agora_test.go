package handlers_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// TestAgoraEngine makes a call as Agora's engine does: the ledger has its turn and time, the
// answer's metadata reaches the client, and fields that only the engine understands are sent to a
// custom upstream and to no other.
func TestAgoraEngine(t *testing.T) {
	t.Parallel()
	const more = `"turn_id":7,"timestamp":1780000009010,"interruptable":false,"model":"m1","stream":true,"context":{"presence":{"42":{"selection":"ticket 17"}}}`
	own := `{"messages":[{"role":"user","content":"When?","turn_id":5,"timestamp":1780000009000,"metadata":{"source":"asr","user":"42"}}],` + more + `}`
	bare := `{"messages":[{"role":"user","content":"When?"}],` + more + `}`
	for name, tt := range map[string]struct {
		body   string
		turn   int64
		at     int64
		vendor string
	}{
		"of the message":           {own, 5, 1780000009000, ""},
		"of the top level":         {bare, 7, 1780000009010, ""},
		"of a call to another one": {own, 5, 1780000009000, memory.VendorCustom},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, nil)
			agent := p.join(func(l *memory.LLMSettings) { l.Vendor, l.URL = tt.vendor, p.back+"/v1/chat/completions" })
			res := p.post(t.Context(), agent, tt.body)
			p.read(res)
			if m := p.ledger(agent)[0]; m.TurnID != tt.turn || m.Timestamp != tt.at || res.StatusCode != 200 {
				t.Errorf("%s: turn %d at %d, want %d at %d", res.Status, m.TurnID, m.Timestamp, tt.turn, tt.at)
			}
			var sent map[string]json.RawMessage
			if err := json.Unmarshal(p.llm.Requests()[0].Body, &sent); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, key := range []string{"turn_id", "interruptable", "context"} {
				if v, ok := sent[key]; ok {
					got[key] = string(v)
				}
			}
			want := map[string]string{}
			if tt.vendor == memory.VendorCustom {
				want = map[string]string{"turn_id": "5", "interruptable": "false", "context": `{"presence":{"42":{"selection":"ticket 17"}}}`}
			}
			if diff := cmp.Diff(want, got); diff != "" || tt.vendor == "" && strings.Contains(string(sent["messages"]), "asr") {
				t.Errorf("%s\n%s", sent["messages"], diff)
			}
		})
	}
}

// TestAgoraGreetingVoiced checks that a greeting that the LLM voices is in the history once. An
// answer that the client only starts is not a greeting.
func TestAgoraGreetingVoiced(t *testing.T) {
	t.Parallel()
	greet := `{"messages":[{"role":"assistant","content":"Hello, I am Ann.","turn_id":0,"metadata":{"source":"greeting"}}],"turn_id":0,"stream":true}`
	for name, tt := range map[string]struct {
		audio string
		want  []string
	}{
		"voiced":    {"Hello, I am Ann.", []string{"assistant: Hello, I am Ann.", "assistant: Hello, I am Ann. (superseded)"}},
		"continued": {" And you?", []string{"assistant: Hello, I am Ann.", "assistant:  And you?"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, nil)
			agent := p.join(func(l *memory.LLMSettings) {
				l.URL = raw(t, "text/event-stream", `data: {"id":"c","choices":[{"index":0,"delta":{"audio":{"id":"a","transcript":"`+tt.audio+`"}},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
			})
			p.read(p.post(t.Context(), agent, greet))
			msgs := p.ledger(agent)
			if diff := cmp.Diff(tt.want, lines(msgs)); diff != "" {
				t.Fatal(diff)
			}
			if name == "voiced" {
				heard := "Hello"
				if _, err := p.mem.Turns.Interrupt(t.Context(), "p1", agent, agents.InterruptRequest{Heard: &heard}); err != nil {
					t.Fatal(err)
				}
				if m := p.ledger(agent)[0]; m.Content != "Hello" || !m.Interrupted || m.Source != memory.SourceGreeting {
					t.Errorf("%+v", m)
				}
			}
		})
	}
}
