package llmadapter_test

import (
	"os"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/llmadapter"
)

// TestMembersPage checks that docs/reference/members.md has the table of members that the code has.
func TestMembersPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/members.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "| members | go to |\n| --- | --- |\n")
	table, _, _ := strings.Cut(rest, "\n\n")
	for _, row := range strings.Split(table, "\n") {
		cells := strings.Split(row, "|")
		if len(cells) < 3 || !strings.Contains(cells[1], "`") || strings.HasPrefix(strings.TrimSpace(cells[1]), "any") {
			continue
		}
		for i, name := range strings.Split(cells[1], "`") {
			if i%2 == 0 {
				continue
			}
			if got := llmadapter.FateOf(name); !strings.HasPrefix(strings.TrimSpace(cells[2]), got) {
				t.Errorf("%s goes to %q by the page and to %q by the code", name, strings.TrimSpace(cells[2]), got)
			}
		}
	}
	for _, name := range llmadapter.KnownMembers() {
		if !strings.Contains(table, "`"+name+"`") {
			t.Errorf("the page lacks %s", name)
		}
	}
}

// TestShapes: each shape of a list, with what has to be joined.
func TestShapes(t *testing.T) {
	t.Parallel()
	const list = `{"role":"system","content":"A."},{"role":"assistant","content":"Hello."},{"role":"user","content":"One."},` +
		`{"role":"user","name":"x","content":[{"type":"text","text":"Two."}]},{"role":"developer","content":"B."},` +
		`{"role":"assistant","content":"Let me see.","reasoning_content":"Hm."},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
		`{"role":"tool","tool_call_id":"c","content":"9"},{"role":"assistant","content":"Nine."},{"role":"assistant","content":"Or so."},{"role":"user","content":"Sure?"}`
	call := `"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]`
	for shape, want := range map[string]string{
		llmadapter.ShapeOneSystem: `{"role":"system","content":"A.\n\nB."},{"role":"assistant","content":"Hello."},{"role":"user","content":"One."},` +
			`{"role":"user","content":[{"type":"text","text":"Two."}],"name":"x"},{"role":"assistant","content":"Let me see.","reasoning_content":"Hm."},{"role":"assistant","content":null,` + call + `},` +
			`{"role":"tool","content":"9","tool_call_id":"c"},{"role":"assistant","content":"Nine."},{"role":"assistant","content":"Or so."},{"role":"user","content":"Sure?"}`,
		llmadapter.ShapeAlternate: `{"role":"system","content":"A.\n\nB."},{"role":"user","content":"…"},{"role":"assistant","content":"Hello."},` +
			`{"role":"user","content":[{"type":"text","text":"One."},{"type":"text","text":"Two."}],"name":"x"},` +
			`{"role":"assistant","content":"Let me see.","reasoning_content":"Hm.",` + call + `},{"role":"tool","content":"9","tool_call_id":"c"},{"role":"assistant","content":"Nine.\nOr so."},{"role":"user","content":"Sure?"}`,
	} {
		r, err := llmadapter.ParseRequest([]byte(`{"messages":[` + list + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		a := llmadapter.Assembly{Request: r, InPlace: true, Shape: shape, To: llmadapter.Recipient{Thoughts: llmadapter.ThoughtsAll}}
		for i := range r.Messages {
			if !r.Messages[i].IsSystem() {
				a.Messages = append(a.Messages, llmadapter.FromIncoming(&r.Messages[i]))
			}
		}
		if got := string(a.Append(nil)); got != `{"messages":[`+want+`]}` {
			t.Errorf("%s:\n%s\nwant\n%s", shape, got, want)
		}
	}
}

// TestCacheMarks: where the marks of a prompt cache stand.
func TestCacheMarks(t *testing.T) {
	t.Parallel()
	const mark = `,"cache_control":{"type":"ephemeral"}}`
	for in, want := range map[string]string{
		`{"role":"system","content":"A."},{"role":"user","content":"One."},{"role":"assistant","content":"Two."},{"role":"user","content":"Three."}`: `{"role":"system","content":[{"type":"text","text":"A."` + mark + `]},` +
			`{"role":"user","content":"One."},{"role":"assistant","content":[{"type":"text","text":"Two."` + mark + `]},{"role":"user","content":"Three."}`,
		`{"role":"user","content":"One."}`: `{"role":"user","content":"One."}`,
		`{"role":"system","content":[{"type":"text","text":"A.","cache_control":{"type":"ephemeral"}}]},{"role":"user","content":"One."}`: `{"role":"system","content":[{"type":"text","text":"A."` + mark + `]},{"role":"user","content":"One."}`,
	} {
		r, err := llmadapter.ParseRequest([]byte(`{"messages":[` + in + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		a := llmadapter.Assembly{Request: r, InPlace: true, Cache: llmadapter.CacheAnthropic}
		for i := range r.Messages {
			if !r.Messages[i].IsSystem() {
				a.Messages = append(a.Messages, llmadapter.FromIncoming(&r.Messages[i]))
			}
		}
		if got := string(a.Append(nil)); got != `{"messages":[`+want+`]}` {
			t.Errorf("%s", got)
		}
		a.Cache, a.CacheKey = llmadapter.CacheOpenAI, "bot-1"
		if got := string(a.Append(nil)); !strings.HasSuffix(got, `,"prompt_cache_key":"bot-1"}`) {
			t.Errorf("%s", got)
		}
	}
}

// TestComplaints: which errors are about the order of messages.
func TestComplaints(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]bool{
		"Conversation roles must alternate user/assistant/user/assistant/...":                           true,
		"After the optional system message, conversation roles must alternate user/assistant":           true,
		"System message must be at the beginning.":                                                      true,
		"Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant": true,
		"messages: first message must use the \"user\" role":                                            true,
		"No user query found in messages.":                                                              true,
		"model not found":                                                                               false,
		"max_tokens must be at most 4096":                                                               false,
	} {
		e := llmadapter.UpstreamError{Status: 400, Text: said}
		if e.ComplainsOfOrder() != want {
			t.Errorf("%q: %v", said, !want)
		}
		if e.Status = 429; e.ComplainsOfOrder() {
			t.Errorf("%q with 429", said)
		}
	}
}
