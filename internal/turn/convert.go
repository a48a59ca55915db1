package turn

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

func itoa(i int) string { return strconv.Itoa(i) }

// ProjectionHeader chooses for one call what the model is told of answers that were cut; it wins over the agent's setting.
const ProjectionHeader = "X-Heardlog-Projection"

// told returns the conversation as it goes to the model.
func (x *exchange) told(custom bool) []llmadapter.Message {
	v := x.llm.View
	if x.turn.Window != nil {
		v = x.turn.Window.View
	}
	if x.plan != nil {
		v = v.With(x.plan.projection)
	}
	s := shown{View: v, custom: custom}
	if v.Prefixes() && v.Timestamp != nil {
		s.zone = x.zone(v.Timestamp)
	}
	if x.plan != nil && x.plan.mode == ModeReconcile {
		return x.obey(x.plan.corrected(x.turn, s))
	}
	context := x.turn.ContextAs(v)
	out := make([]llmadapter.Message, 0, len(context))
	for _, m := range context {
		out = append(out, fromMemory(m, custom))
	}
	if x.plan != nil && custom {
		x.plan.keepUnknown(out)
	}
	if s.Changes() {
		for i, m := range context {
			s.rewrite(&out[i], m)
		}
	}
	if !complete(out) {
		seqs := make([]int64, len(context))
		for i, m := range context {
			seqs[i] = m.Seq
		}
		return newEffects(s, x.turn.Recent(), out, seqs).mend()
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
// heard: an answer of which stronger evidence than the platform's echo has come. What the view says holds for the messages that the list
// pairs with the ledger, and for those that tell themselves what they are.
func (p *plan) corrected(t *memory.Turn, v shown) []llmadapter.Message {
	recent := t.Recent()
	lost := false // the ledger has what the platform may have dropped: results of tools, answers that nobody heard
	stored := make(map[int64]*memory.Message, len(recent))
	for i := range recent {
		stored[recent[i].Seq] = &recent[i]
		m := &recent[i]
		lost = lost || m.Role == memory.Tool || m.State == memory.Unplayed && v.Shows(m)
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
			// It was cleared or cut, or stands before what was. What is asked now goes up all the same, be it asked once more.
			if i < asked || s != nil && (s.Status != memory.Accepted || s.State == memory.Removed) {
				continue
			}
		}
		m, ok := v.correct(in, s, i, p.rec.Part[i])
		if !ok {
			continue
		}
		out = append(out, m)
		if lost {
			seqs = append(seqs, seqOf(s))
		}
	}
	if !lost && complete(out) {
		return out
	}
	if seqs == nil {
		seqs = make([]int64, len(out))
	}
	e := newEffects(v, recent, out, seqs)
	e.platforms = true
	if e.restore(); complete(e.list) {
		return e.list
	}
	return e.mend()
}

// lastUser gives where the user's newest words stand in the list; its length where he says nothing.
func (p *plan) lastUser() int {
	for i := range slices.Backward(p.req.Messages) {
		if p.req.Messages[i].Role == "user" {
			return i
		}
	}
	return len(p.req.Messages)
}

func seqOf(m *memory.Message) int64 {
	if m == nil {
		return 0
	}
	return m.Seq
}

// correct gives message i of a list as the model is told it; s is what the ledger has of it, or nil, and more what the platform said behind our words in the
// same message. It is false for an answer of which nothing is told.
func (v shown) correct(in *llmadapter.Incoming, s *memory.Message, i int, more string) (llmadapter.Message, bool) {
	m := llmadapter.FromIncoming(in)
	if s != nil && v.custom {
		content, raw := m.Content, m.Raw
		m = fromMemory(s, true)
		m.Content, m.Raw = content, raw
	}
	if s == nil && v.Changes() { // not of ours: its own fields may say when, by whom and how much of it
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
	if better || more != "" && s.WasCut() {
		if text = v.Content(s, s.Content); more != "" {
			text = strings.TrimSpace(text + " " + more)
		}
	} else {
		text = v.Content(s, text)
	}
	if text != whole {
		m.Content, m.Text = nil, text
	}
	v.prefix(&m, s)
	return m, text != "" || !better || len(s.ToolCalls) > 0
}

// pairNew finds the ledger's records of the messages that this request brought: the newest of recent, in the same order.
func (p *plan) pairNew(recent []memory.Message, into map[int]*memory.Message) {
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

// fromMemory gives a message of the ledger for the way up. What only the custom form shows is left out otherwise.
func fromMemory(m *memory.Message, custom bool) llmadapter.Message {
	out := llmadapter.Message{
		Role: string(m.WireRole()), Text: m.Content, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, Name: m.ToolName,
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
