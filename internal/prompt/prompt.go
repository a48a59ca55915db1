package prompt

import (
	"slices"
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

// Prompt is what a turn asks of an LLM: the conversation as the model is shown it, and the request
// body around it.
type Prompt struct {
	turn      *agents.Turn
	llm       *memory.LLMSettings
	plan      *Plan // nil without a client
	arrivedMS int64
	stream    bool // a stream is asked for
	// Blocks of the memory, "" for none; see Remember.
	known, recalled string
	// tools runs the tools of the memory; nil offers none.
	tools toolbox.Run
	hide  *redact.Redactor
	given []int64 // Seq of each message of the ledger in the last body, in order
}

// New returns the prompt of a turn that has begun. p is nil without a client, hide what replaces
// personal data, llm are the agent's settings with the server's defaults.
func New(t *agents.Turn, llm *memory.LLMSettings, p *Plan, hide *redact.Redactor, arrivedMS int64) *Prompt {
	return &Prompt{turn: t, llm: llm, plan: p, arrivedMS: arrivedMS, stream: p == nil || p.req.Stream, hide: hide}
}

// Hide sets what replaces personal data from now on.
func (p *Prompt) Hide(by *redact.Redactor) { p.hide = by }

// Stream reports whether a stream is asked for.
func (p *Prompt) Stream() bool { return p.stream }

// Tools returns what runs the tools of the memory, or nil if none are offered.
func (p *Prompt) Tools() toolbox.Run { return p.tools }

// Secrets returns the secrets in the body.
func (p *Prompt) Secrets() []string {
	if p.plan == nil {
		return llmadapter.BodySecrets(p.llm.Params, nil)
	}
	return llmadapter.BodySecrets(p.llm.Params, p.plan.req)
}

// Release frees what bodies are made of. An answer may take minutes, and does not need its
// question.
func (p *Prompt) Release() {
	p.plan = nil
	p.turn.Release()
}

// Recipient is an upstream that a prompt is for.
type Recipient struct {
	llmadapter.Recipient
	Shape string // llm.shape
	Cache string // llm.cache
	Model string // in place of any other; "" = none
}

// Body returns the request body for an upstream.
func (p *Prompt) Body(to *Recipient) []byte {
	var req *llmadapter.Request
	if p.plan != nil {
		req = p.plan.req
	}
	list := p.hidden(p.withMemory(p.messages(to.Custom), to.Custom))
	p.noteRequest(list)
	a := llmadapter.Assembly{
		Summary: p.summary(),
		System:  p.llm.SystemMessages, Variables: p.llm.Variables, Request: req,
		Trailing: p.turn.Unsolicited, InPlace: p.reconciles(), Messages: list, To: to.Recipient,
		Shape: to.Shape, Cache: to.Cache, CacheKey: p.turn.Agent.ID, TurnID: p.turn.TurnID, TimestampMS: p.arrivedMS,
		Params: p.llm.Params, Model: p.llm.Model, OnlyModel: to.Model, Stream: req == nil,
	}
	return a.Append(make([]byte, 0, a.Size()))
}

// summary returns the summary that the model is shown. A platform's own list still has what was
// summarized, unless that has left the memory: then it is removed from the list too.
func (p *Prompt) summary() string {
	if m := &p.turn.Agent.Settings.Memory; p.reconciles() && m.BaseSeq == 0 && m.SummaryUpTo == 0 {
		return ""
	}
	return p.turn.Summary
}

// hidden returns the conversation without personal data, if the LLM is to see none.
func (p *Prompt) hidden(list []llmadapter.Message) []llmadapter.Message {
	if !p.hide.HidesFromUpstream() {
		return list
	}
	pieces := p.spread(list)
	for i := range list {
		m, hide := &list[i], p.hide.Knowing(pieces[i])
		m.Text, m.Content, m.Raw, m.ToolCalls = hide.Text(m.Text), hide.Parts(m.Content), hide.Message(m.Raw), hide.Calls(m.ToolCalls)
		m.Members, m.Signed = string(hide.Message([]byte(m.Members))), hide.Calls(m.Signed)
	}
	return list
}

// spread returns what is replaced in each message because other messages have the rest of a number.
// A platform's own list may lack those: then the ledger shows it.
func (p *Prompt) spread(list []llmadapter.Message) [][]redact.Piece {
	lines := make([]redact.Line, len(list))
	for i := range list {
		lines[i] = redact.Line{Speaker: list[i].Role, Text: list[i].Text}
		if list[i].Content != nil {
			lines[i].Text = llmadapter.ContentText(list[i].Content)
		}
	}
	out := make([][]redact.Piece, len(list))
	copy(out, p.hide.SpreadFrom(memory.Lines(slices.Values(p.turn.Ledger())), lines))
	return out
}

func (p *Prompt) reconciles() bool { return p.plan != nil && p.plan.mode == ModeReconcile }

// messages returns the conversation for the model. With custom, every field of a message is sent.
func (p *Prompt) messages(custom bool) []llmadapter.Message {
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
func (p *Prompt) ledgerList(text texts) []llmadapter.Message {
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
