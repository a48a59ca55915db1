package prompt

import (
	"net/http"
	"time"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/view"
)

// texts decides how one call words the messages of a conversation.
type texts struct {
	*view.View
	zone   *time.Location // of View.Timestamp
	custom bool           // every field is sent
}

// projectionOf returns the value of ProjectionHeader, or "".
func projectionOf(h http.Header) (view.Projection, error) {
	name := h.Get(ProjectionHeader)
	if name == "" {
		return "", nil
	}
	return view.Parse(ProjectionHeader, name)
}

// rewrite sets out's text to what the model is shown of m, a message of the ledger.
func (v texts) rewrite(out *llmadapter.Message, m *memory.Message) {
	if text := m.TextFor(v.View, m.Content); text != m.Content {
		out.Content, out.Text = nil, text
	}
	v.prefix(out, m)
}

// prefix puts the time and the speaker of m in front of out's text.
func (v texts) prefix(out *llmadapter.Message, m *memory.Message) {
	// A tool call without text has nothing to put a prefix in front of.
	if !v.Prefixes() || out.Text == "" && out.Content == nil || string(out.Content) == "null" {
		return
	}
	if prefix := v.Prefix(m.Role, m.Timestamp, m.Metadata, v.zone); prefix != "" {
		out.Prefix(prefix)
	}
}
