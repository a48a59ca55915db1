package answer

import (
	"maps"
	"slices"
	"strconv"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

func itoa(i int) string { return strconv.Itoa(i) }

// upstream appends the conversation as it goes to the model to out, which is empty.
func (p *plan) upstream(t *memory.Turn, custom bool, out []llmadapter.Message) []llmadapter.Message {
	if p != nil && p.mode == ModeReconcile {
		return p.corrected(t, custom, out)
	}
	out = slices.Grow(out, len(t.Context))
	for _, m := range t.Context {
		out = append(out, fromMemory(m, custom))
	}
	if p != nil && custom {
		p.keepUnknown(out)
	}
	return out
}

// keepUnknown gives the messages that this request brought, which stand last, the fields that the ledger does not know.
func (p *plan) keepUnknown(out []llmadapter.Message) {
	i := len(p.req.Messages) - 1
	for j := len(out) - 1; j >= 0; j-- {
		for i >= 0 && p.req.Messages[i].IsSystem() {
			i--
		}
		if i < 0 || out[j].Role != p.req.Messages[i].Role || out[j].Text != p.req.Messages[i].Text() {
			return
		}
		out[j].Raw = p.req.Messages[i].Raw
		i--
	}
}

// corrected gives the platform's own list, in which what the ledger knows better replaces what the platform believes was
// heard: an answer of which stronger evidence than the platform's echo has come.
func (p *plan) corrected(t *memory.Turn, custom bool, out []llmadapter.Message) []llmadapter.Message {
	recent := t.Recent()
	stored := make(map[int64]*memory.Message, len(recent))
	for i := range recent {
		stored[recent[i].Seq] = &recent[i]
	}
	appended := map[int]*memory.Message{}
	if custom {
		p.pairNew(recent, appended)
	}
	out = slices.Grow(out, len(p.req.Messages))
	for i := range p.req.Messages {
		in := &p.req.Messages[i]
		if in.IsSystem() {
			continue
		}
		m := llmadapter.FromIncoming(in)
		var s *memory.Message
		if k := p.rec.Pair[i]; k >= 0 {
			s = stored[p.known[k]]
		} else {
			s = appended[i]
		}
		if s != nil {
			if custom {
				content, raw := m.Content, m.Raw
				m = fromMemory(s, true)
				m.Content, m.Raw = content, raw
			}
			if s.Role == memory.Assistant && s.Method.Rank() > memory.EchoDiff.Rank() && s.Content != in.Text() {
				if s.Content == "" && len(s.ToolCalls) == 0 {
					continue // nothing of it was heard
				}
				m.Content, m.Text = nil, s.Content
			}
		}
		out = append(out, m)
	}
	return out
}

// pairNew finds the ledger's records of the messages that this request brought: the newest of recent, in the same order.
func (p *plan) pairNew(recent []memory.Message, into map[int]*memory.Message) {
	j := len(recent) - 1
	for _, i := range slices.Backward(p.rec.New) {
		in := &p.req.Messages[i]
		for j >= 0 && (string(recent[j].Role) != in.Role || recent[j].Content != in.Text()) {
			j--
		}
		if j < 0 {
			return
		}
		into[i] = &recent[j]
		j--
	}
}

// fromMemory gives a message of the ledger for the way up. What only the custom form shows is left out otherwise.
func fromMemory(m *memory.Message, custom bool) llmadapter.Message {
	out := llmadapter.Message{
		Role: string(m.Role), Text: m.Content, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, Name: m.ToolName,
	}
	if len(m.Parts) > 0 {
		out.Content = m.Parts
	}
	if !custom {
		return out
	}
	e := &llmadapter.Entry{TurnID: m.TurnID, Timestamp: m.Timestamp, Source: string(m.Source)}
	if m.Interrupted {
		e.Interrupted, e.InterruptMS, e.Original = true, m.InterruptMS, m.Original()
	}
	for _, k := range slices.Sorted(maps.Keys(m.Metadata)) {
		e.Metadata = append(e.Metadata, llmadapter.Member{Name: k, Value: m.Metadata[k]})
	}
	out.Entry = e
	return out
}
