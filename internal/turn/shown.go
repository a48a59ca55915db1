package turn

import (
	"net/http"
	"time"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// shown is how one call tells the conversation.
type shown struct {
	*memory.View
	zone   *time.Location // of View.Timestamp
	custom bool           // every field goes up
}

// projectionOf reads ProjectionHeader.
func projectionOf(req *http.Request) (memory.Projection, error) {
	name := req.Header.Get(ProjectionHeader)
	if name == "" {
		return "", nil
	}
	return memory.ParseProjection(ProjectionHeader, name)
}

// zone gives the location of timestamps. It is read once for each name: there are some hundred, and only known ones are stored.
func (r *Runner) zone(p *memory.TimestampPrefix) *time.Location {
	if z, ok := r.zones.Load(p.Zone); ok {
		return z.(*time.Location)
	}
	z, err := p.Location()
	if err != nil { // it was known at join; this machine has another list of zones
		z = time.UTC
	}
	r.zones.Store(p.Zone, z)
	return z
}

// rewrite gives out the text that the model is told of m, a message of the ledger.
func (v shown) rewrite(out *llmadapter.Message, m *memory.Message) {
	if text := v.Content(m, m.Content); text != m.Content {
		out.Content, out.Text = nil, text
	}
	v.prefix(out, m)
}

// prefix puts in front of out's text when m was said, and by whom.
func (v shown) prefix(out *llmadapter.Message, m *memory.Message) {
	// A bare tool call says nothing, and has nothing to stand in front of.
	if !v.Prefixes() || out.Text == "" && out.Content == nil || string(out.Content) == "null" {
		return
	}
	if prefix := v.Prefix(m.Role, m.Timestamp, m.Metadata, v.zone); prefix != "" {
		out.Prefix(prefix)
	}
}
