package tests

import (
	"net/http"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// TestVendorsBlocks: parts that only some vendor knows are taken for the vendor custom alone. Parts
// that no model takes are refused.
func TestVendorsBlocks(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Yes."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	const body = `{"messages":[{"role":"user","content":[{"type":"text","text":"See?"},{"type":"scene","of":"here"},{"type":"image_url","image_url":{"url":"http://h.example/a.png"}}]}]}`
	for vendor, sent := range map[string]bool{"": false, "custom": true} {
		id := s.join("v"+vendor, map[string]any{"llm": map[string]any{"url": base + "/chat/completions", "vendor": vendor}})
		if !sent {
			s.post(agent(id, "/chat/completions"), body).failed(http.StatusBadRequest, "invalid", "messages[0].content[1].type")
			s.post(agent(id, "/chat/completions"), strings.Replace(body, `{"type":"scene","of":"here"},`, "", 1)).ok(nil)
		} else {
			s.post(agent(id, "/chat/completions"), body).ok(nil)
		}
		seen := llm.Requests()
		got := string(seen[len(seen)-1].Body)
		if strings.Contains(got, `"scene"`) != sent || !strings.Contains(got, `"See?"`) || !strings.Contains(got, "a.png") {
			t.Errorf("vendor %q got %s", vendor, got)
		}
		if parts := string(s.ledger(id)[0].Parts); strings.Contains(parts, `"scene"`) != sent {
			t.Errorf("the ledger has %s", parts)
		}
		s.post(agent(id, "/chat/completions"), `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`).failed(http.StatusBadRequest, "invalid", "messages[0].content[0].image_url")
		for _, kind := range []string{"text", "refusal"} {
			for _, rest := range []string{"", `,"` + kind + `":null`, `,"` + kind + `":7`} {
				s.post(agent(id, "/chat/completions"), `{"messages":[{"role":"assistant","content":[{"type":"`+kind+`"`+rest+`}]},{"role":"user","content":"a"}]}`).failed(http.StatusBadRequest, "invalid", "messages[0].content[0]."+kind+": must be a string")
			}
		}
		for _, part := range []string{`{}`, `{"type":""}`, `{"type":1,"text":"a"}`, `{"text":"a"}`} {
			s.post(agent(id, "/chat/completions"), `{"messages":[{"role":"user","content":[`+part+`]}]}`).failed(http.StatusBadRequest, "invalid", "messages[0].content[0].type")
			s.post(agent(id, "/messages"), `{"role":"user","content":[`+part+`]}`).refused(http.StatusBadRequest, "InvalidFieldValue", "content[0].type: must be a string")
		}
	}
}

// TestNoBlocks: a content without parts, which models refuse, is an empty text.
func TestNoBlocks(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Yes."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", nil)
	s.post(agent(id, "/messages"), `{"role":"user","content":[]}`).ok(nil)
	s.post(agent(id, "/chat/completions"), `{"messages":[{"role":"user","content":"Time?"},{"role":"assistant","content":[ ],"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c","content":[]}]}`).ok(nil)
	s.chat(agent(id, "/chat/completions"), "Sure?", false).ok(nil)
	for _, seen := range llm.Requests() {
		if strings.Contains(string(seen.Body), `"content":[`) {
			t.Errorf("the upstream got %s", seen.Body)
		}
	}
	for _, m := range s.ledger(id) {
		if m.Parts != nil {
			t.Errorf("message %d has the parts %s", m.Seq, m.Parts)
		}
	}
}

// TestLongResult: the result of a tool may be far longer than what people say.
func TestLongResult(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Done."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	long := strings.Repeat("row ", 125_000)
	id := s.join("n", nil)
	s.post(agent(id, "/chat/completions"), `{"messages":[{"role":"user","content":"All of it."},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"all","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c","content":"`+long+`"}]}`).ok(nil)
	if body := string(llm.Requests()[0].Body); !strings.Contains(body, long) {
		t.Errorf("the upstream got %d bytes", len(body))
	}
	s.post(agent(id, "/messages"), map[string]any{"role": "user", "content": long}).ok(nil)
	if m := s.last(id); m.Content != long {
		t.Errorf("%d bytes are stored", len(m.Content))
	}
}

// TestLateInstructions: the system messages of a platform's list stay in their places.
func TestLateInstructions(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "ok"})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", nil)
	chat := func(messages string) {
		t.Helper()
		s.post(agent(id, "/chat/completions"), `{"messages":[`+messages+`]}`).ok(nil)
	}
	const first = `{"role":"system","content":"Be brief."},{"role":"user","content":"one"}`
	chat(first)
	const second = first + `,{"role":"assistant","content":"ok"},{"role":"system","content":"The caller is angry."},{"role":"user","content":"two"}`
	chat(second)
	sameSent(t, "between", llm, "system: Be brief.", "user: one", "assistant: ok", "system: The caller is angry.", "user: two")
	third := second + `,{"role":"assistant","content":"ok"},{"role":"user","content":"three"},{"role":"developer","content":"Answer in French."}`
	chat(third)
	sameSent(t, "after the question", llm, "system: Be brief.", "user: one", "assistant: ok", "system: The caller is angry.", "user: two", "assistant: ok", "user: three", "developer: Answer in French.")
	s.post(agent(id, "/update"), `{"heardlog":{"policy":{"max_messages":2}}}`).ok(nil)
	chat(third + `,{"role":"assistant","content":"ok"},{"role":"user","content":"four"}`)
	sameSent(t, "what is cut takes none with it", llm, "system: Be brief.", "system: The caller is angry.", "developer: Answer in French.", "assistant: ok", "user: four")
}
