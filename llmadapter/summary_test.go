package llmadapter_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/llmadapter"
)

// TestSummary checks that the summary follows all system messages, inside the last of them if that
// is a text, below its heading.
//
// Rules: 001-28
func TestSummary(t *testing.T) {
	t.Parallel()
	const heading = `[Earlier conversation summary]\n`
	user := llmadapter.Message{Role: "user", Text: "Hi"}
	for _, tt := range []struct {
		name     string
		system   []string
		request  string
		messages []llmadapter.Message
		want     string
	}{
		{"no system message", nil, "", []llmadapter.Message{user}, `{"role":"system","content":"` + heading + `She said \"yes\"."},{"role":"user","content":"Hi"}`},
		{"the agent's", []string{`{"role":"system","content":"One."}`, `{"content":"Two, {{who}}.","role":"system","name":"x"}`}, "", []llmadapter.Message{user},
			`{"role":"system","content":"One."},{"content":"Two, Ann.\n\n` + heading + `She said \"yes\".","role":"system","name":"x"},{"role":"user","content":"Hi"}`},
		{"parts", []string{`{"role":"system","content":[{"type":"text","text":"One."}]}`}, "", []llmadapter.Message{user},
			`{"role":"system","content":[{"type":"text","text":"One."}]},{"role":"system","content":"` + heading + `She said \"yes\"."},{"role":"user","content":"Hi"}`},
		{"empty", []string{`{"role":"system","content":""}`}, "", []llmadapter.Message{user},
			`{"role":"system","content":""},{"role":"system","content":"` + heading + `She said \"yes\"."},{"role":"user","content":"Hi"}`},
		{"the client's behind", []string{`{"role":"system","content":"One."}`}, `{"messages":[{"role":"system","content":"Client's."},{"role":"user","content":"Hi"}]}`, []llmadapter.Message{user},
			`{"role":"system","content":"One."},{"role":"system","content":"Client's.\n\n` + heading + `She said \"yes\"."},{"role":"user","content":"Hi"}`},
		{"the memory's behind", []string{`{"role":"system","content":"One."}`}, "", []llmadapter.Message{{Role: "system", Text: "Kept."}, user, {Role: "system", Text: "Later."}},
			`{"role":"system","content":"One."},{"role":"system","content":"Kept.\n\n` + heading + `She said \"yes\"."},{"role":"user","content":"Hi"},{"role":"system","content":"Later."}`},
		{"nothing else", []string{`{"role":"system","content":"One."}`}, "", nil, `{"role":"system","content":"One.\n\n` + heading + `She said \"yes\"."}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, room := range []int{0, 1 << 12} {
				a := llmadapter.Assembly{Summary: `She said "yes".`, Messages: append([]llmadapter.Message{}, tt.messages...), Variables: map[string]string{"who": "Ann"}}
				for _, s := range tt.system {
					a.System = append(a.System, json.RawMessage(s))
				}
				if tt.request != "" {
					a.Request = parse(t, tt.request)
				}
				got := string(a.Append(make([]byte, 0, room)))
				list := strings.TrimSuffix(strings.TrimPrefix(got, `{"messages":[`), "]}")
				if !json.Valid([]byte(got)) {
					t.Fatalf("not JSON: %s", got)
				}
				if diff := cmp.Diff(tt.want, list); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}
