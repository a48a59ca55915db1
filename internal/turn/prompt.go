package turn

import (
	"time"

	"github.com/heardlog/heardlog/internal/toolbox"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/redact"
)

// ProjectionHeader chooses for one call how cut answers are shown to the model. It wins over the
// agent's setting.
const ProjectionHeader = "X-Heardlog-Projection"

// prompt is what a turn asks of an LLM: the conversation as the model is shown it, and the request
// body around it.
type prompt struct {
	turn      *agents.Turn
	llm       *memory.LLMSettings
	plan      *plan // nil without a client
	arrivedMS int64
	stream    bool // a stream is asked for
	// Blocks of the memory, "" for none; see exchange.remember.
	known, recalled string
	// tools runs the tools of the memory; nil offers none.
	tools toolbox.Run
	hide  *redact.Redactor
	told  []int64 // Seq of each message of the ledger in the last body, in order
}

// newPrompt returns the prompt of a turn that has begun; p is nil without a client.
func (x *exchange) newPrompt(p *plan) *prompt {
	return &prompt{
		turn: x.turn, llm: &x.llm, plan: p, arrivedMS: x.arrived.UnixMilli(),
		stream: p == nil || p.req.Stream, hide: x.hide,
	}
}

// secrets returns the secrets in the body.
func (p *prompt) secrets() []string {
	if p.plan == nil {
		return llmadapter.BodySecrets(p.llm.Params, nil)
	}
	return llmadapter.BodySecrets(p.llm.Params, p.plan.req)
}

// release frees what bodies are made of. An answer may take minutes, and does not need its
// question.
func (p *prompt) release() {
	p.plan = nil
	p.turn.Release()
}

// body returns the request body for an upstream.
func (p *prompt) body(t *target) []byte {
	var req *llmadapter.Request
	if p.plan != nil {
		req = p.plan.req
	}
	list := p.hidden(p.withMemory(p.messages(t.to.Custom), t.to.Custom))
	p.noteTold(list)
	a := llmadapter.Assembly{
		Summary: p.summary(),
		System:  p.llm.SystemMessages, Variables: p.llm.Variables, Request: req,
		Trailing: p.turn.Unsolicited, InPlace: p.reconciles(), Messages: list, To: t.to,
		Shape: t.shape, Cache: t.cache, CacheKey: p.turn.Agent.ID, TurnID: p.turn.TurnID, TimestampMS: p.arrivedMS,
		Params: p.llm.Params, Model: p.llm.Model, OnlyModel: t.model, Stream: req == nil,
	}
	return a.Append(make([]byte, 0, a.Size()))
}

// summary returns the summary that the model is shown. A platform's own list still has what was
// summarized, unless that has left the memory: then it is removed from the list too.
func (p *prompt) summary() string {
	if m := &p.turn.Agent.Settings.Memory; p.reconciles() && m.BaseSeq == 0 && m.SummaryUpTo == 0 {
		return ""
	}
	return p.turn.Summary
}

// hidden returns the conversation without personal data, if the LLM is to see none.
func (p *prompt) hidden(list []llmadapter.Message) []llmadapter.Message {
	if !p.hide.HidesFromUpstream() {
		return list
	}
	for i := range list {
		m := &list[i]
		m.Text, m.Content, m.Raw, m.ToolCalls = p.hide.Text(m.Text), p.hide.Parts(m.Content), p.hide.Message(m.Raw), p.hide.Calls(m.ToolCalls)
		m.Members, m.Signed = string(p.hide.Message([]byte(m.Members))), p.hide.Calls(m.Signed)
	}
	return list
}

func (p *prompt) reconciles() bool { return p.plan != nil && p.plan.mode == ModeReconcile }

// messages returns the conversation for the model. With custom, every field of a message is sent.
func (p *prompt) messages(custom bool) []llmadapter.Message {
	v := p.llm.View
	if p.turn.Window != nil {
		v = p.turn.Window.View
	}
	if p.plan != nil {
		v = v.With(p.plan.projection)
	}
	text := texts{View: v, custom: custom}
	if v.Prefixes() && v.Timestamp != nil {
		var err error
		if text.zone, err = v.Timestamp.Location(); err != nil {
			text.zone = time.UTC // it was known at join, but this machine has another list of zones
		}
	}
	if p.reconciles() {
		return p.applyWindow(p.plan.correctedList(p.turn, text))
	}
	return p.ledgerList(text)
}

// ledgerList returns the conversation as the ledger has it.
func (p *prompt) ledgerList(text texts) []llmadapter.Message {
	context := p.turn.ContextAs(text.View)
	out := make([]llmadapter.Message, 0, len(context))
	for _, m := range context {
		out = append(out, fromMemory(m, text.custom))
	}
	if text.Changes() {
		for i, m := range context {
			text.rewrite(&out[i], m)
		}
	}
	if toolCallsComplete(out) {
		return out
	}
	seqs := make([]int64, len(context))
	for i, m := range context {
		seqs[i] = m.Seq
	}
	return newToolCalls(text, p.turn.Recent(), out, seqs).mend()
}
