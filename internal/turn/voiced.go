package turn

import (
	"strings"

	"github.com/heardlog/heardlog/llmadapter"
)

// voicedBy gives the words that a call wants voiced: those of an assistant message at its end, normalised; "" where there are none. It may as well be the
// beginning of an answer that is to be continued, which shows in what comes back.
func voicedBy(r *llmadapter.Request) string {
	last := &r.Messages[len(r.Messages)-1]
	if last.Role != "assistant" || last.ToolCalls != nil {
		return ""
	}
	return llmadapter.Normalise(last.Text())
}

// repeats tells whether what was generated are the words that were to be voiced, or the beginning of them.
func (x *exchange) repeats(generated string) bool {
	if x.voiced == "" {
		return false
	}
	said := llmadapter.Normalise(generated)
	return said != "" && strings.HasPrefix(x.voiced, said)
}
