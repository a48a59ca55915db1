package llmadapter_test

import (
	"testing"

	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/llmadapter"
)

// TestThinking checks that what a model thinks is not what it says, however it is split.
func TestThinking(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"<think>\nA train?\n</think>\n\nAt nine.":      "At nine.",
		" <think></think>At nine.":                     "At nine.",
		"At <think>nine or ten?</think>nine.":          "At nine.",
		"<think>one</think> <think>two</think> Three.": "Three.",
		"<think>never said":                            "",
		"1 < 2, <b>yes</b>, <thing>":                   "1 < 2, <b>yes</b>, <thing>",
		"a <think":                                     "a <think",
		"<think>a </thin</think>b":                     "b",
	} {
		if got := llmadapter.Spoken(in); got != want && !(in[0] == ' ' && got == " "+want) {
			t.Errorf("Spoken(%q) = %q, want %q", in, got, want)
		}
		for size := 1; size <= len(in); size++ {
			var r llmadapter.Record
			for rest := in; rest != ""; {
				n := min(size, len(rest))
				r.Chunk([]byte(`{"choices":[{"index":0,"delta":{"content":` + string(text.AppendJSON(nil, rest[:n])) + `}}]}`))
				rest = rest[n:]
			}
			if got := r.Generated(); got != want && !(in[0] == ' ' && got == " "+want) {
				t.Errorf("%q in pieces of %d: %q, want %q", in, size, got, want)
			}
			if want == "" && r.Spoke() {
				t.Errorf("%q counts as spoken", in)
			}
		}
	}
}
