package prompt

import (
	"maps"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// correctedList returns the platform's own list, corrected where the ledger knows better what was
// heard: answers for which stronger evidence than the platform's echo has arrived. The view applies
// to the messages that the ledger has, and to those whose own fields say what they are.
func (p *Plan) correctedList(t *agents.Turn, v texts) []llmadapter.Message {
	recent := t.Recent()
	// The ledger has what the platform may have dropped or misplaced: tool results, unheard
	// answers, heard ones, greetings.
	lost := false
	stored := make(map[int64]*memory.Message, len(recent))
	for i := range recent {
		stored[recent[i].Seq] = &recent[i]
		m := &recent[i]
		lost = lost || m.Role == memory.Tool || m.State == memory.Unplayed && m.ShownBy(v.View) || heardByReport(m) || greets(m)
	}
	appended := map[int]*memory.Message{}
	if v.custom || v.Prefixes() || lost {
		p.pairNew(recent, appended)
	}
	var seqs []int64
	out := make([]llmadapter.Message, 0, len(p.req.Messages))
	asked := p.lastUser()
	for i := range p.req.Messages {
		in := &p.req.Messages[i]
		if in.IsSystem() {
			continue
		}
		var s *memory.Message
		if k := p.rec.Pair[i]; k >= 0 {
			s = stored[p.known[k]]
		} else {
			s = appended[i]
		}
		if s != nil && t.Left(s) || s == nil && t.Agent.Settings.Memory.BaseSeq > 0 && !slices.Contains(p.rec.New, i) {
			// It has left the memory, or stands before something that has. The current question is
			// sent all the same, even if it repeats an old one.
			if i < asked || s != nil && (s.Status != memory.Accepted || s.State == memory.Removed) {
				continue
			}
		}
		m, ok := v.correct(in, s, i, p.rec.Part[i])
		if !ok {
			continue
		}
		out = append(out, m)
		seq := int64(0)
		if lost && s != nil {
			seq = s.Seq
		}
		seqs = append(seqs, seq)
	}
	if !lost && toolCallsComplete(out) {
		return out
	}
	e := newToolCalls(v, recent, out, seqs)
	e.fromPlatform = true
	e.placeGreetings()
	if e.restore(); toolCallsComplete(e.list) {
		return e.list
	}
	return e.mend()
}

// lastUser returns the index of the newest user message in the list, or the list's length if it has
// none.
func (p *Plan) lastUser() int {
	for i := range slices.Backward(p.req.Messages) {
		if p.req.Messages[i].Role == "user" {
			return i
		}
	}
	return len(p.req.Messages)
}

// correct returns message i of a list as the model is shown it. s is the ledger's record of it, or
// nil; more is what the platform said after our words in the same message. correct reports false
// for an answer that is left out.
func (v texts) correct(in *llmadapter.Incoming, s *memory.Message, i int, more string) (llmadapter.Message, bool) {
	m := llmadapter.FromIncoming(in)
	if s != nil && v.custom {
		content, raw := m.Content, m.Raw
		m = fromMemory(s, true)
		m.Content, m.Raw = content, raw
	}
	if s != nil {
		m.Seq, m.Members, m.Origin = s.Seq, s.Made().Members, s.Made().Origin
		if m.ToolCalls != nil && s.ToolCalls != nil {
			m.Signed = s.ToolCalls
		}
	}
	// Its own fields may say when it was said, by whom, and how much of it.
	if s == nil && v.Changes() {
		if own, err := toMemory(in, i, false); err == nil {
			s = &own
		}
	}
	if s == nil {
		return m, true
	}
	better := s.Role == memory.Assistant && s.Method.Rank() > memory.EchoDiff.Rank()
	if !better && !v.Changes() {
		return m, true
	}
	whole := in.Text()
	text := whole
	if better || more != "" && s.Answer().Cut {
		if text = s.TextFor(v.View, s.Content); more != "" {
			text = strings.TrimSpace(text + " " + more)
		}
	} else {
		text = s.TextFor(v.View, text)
	}
	if text != whole {
		m.Content, m.Text = nil, text
	}
	v.prefix(&m, s)
	return m, text != "" || !better || len(s.ToolCalls) > 0
}

// pairNew finds the ledger's records of the messages that this request brought. They are the newest
// of recent, in the same order.
func (p *Plan) pairNew(recent []memory.Message, into map[int]*memory.Message) {
	j := len(recent) - 1
	for _, i := range slices.Backward(p.rec.New) {
		in := &p.req.Messages[i]
		text, part := p.rec.Part[i]
		if !part {
			text = in.Text()
		}
		for j >= 0 && (string(recent[j].Role) != in.Role || recent[j].Content != text) {
			j--
		}
		if j < 0 {
			return
		}
		into[i] = &recent[j]
		j--
	}
}

// fromMemory returns a message of the ledger for an upstream. With custom, it has all fields.
func fromMemory(m *memory.Message, custom bool) llmadapter.Message {
	out := llmadapter.Message{
		Seq: m.Seq, Role: string(m.WireRole()), Text: m.Content, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, Name: m.ToolName,
		Members: m.Made().Members, Origin: m.Made().Origin,
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
