package turn

import (
	"net/http"
	"time"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// texts decides how one call words the messages of a conversation.
type texts struct {
	*memory.View
	zone   *time.Location // of View.Timestamp
	custom bool           // every field is sent
}

// projectionOf returns the value of ProjectionHeader, or "".
func projectionOf(req *http.Request) (memory.Projection, error) {
	name := req.Header.Get(ProjectionHeader)
	if name == "" {
		return "", nil
	}
	return memory.ParseProjection(ProjectionHeader, name)
}

// zone returns the time zone of timestamps. Each is loaded once; there are some hundred, and agents
// only have known ones.
func (r *Runner) zone(p *memory.TimestampPrefix) *time.Location {
	if z, ok := r.zones.Load(p.Zone); ok {
		return z.(*time.Location)
	}
	z, err := p.Location()
	if err != nil { // it was known at join, but this machine has another list of zones
		z = time.UTC
	}
	r.zones.Store(p.Zone, z)
	return z
}

// rewrite sets out's text to what the model is shown of m, a message of the ledger.
func (v texts) rewrite(out *llmadapter.Message, m *memory.Message) {
	if text := v.Content(m, m.Content); text != m.Content {
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
