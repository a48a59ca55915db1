package turn

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/heard"
	"github.com/heardlog/heardlog/memory/window"
)

// The ways a client talks to the proxy (DESIGN, section 6).
const (
	ModeInject    = "inject"
	ModeReconcile = "reconcile"
)

// ModeHeader chooses the way for one call; it wins over the agent's setting.
const ModeHeader = "X-Heardlog-Mode"

// plan is what a request brings, worked out anew on each run of Plan.
type plan struct {
	req     *llmadapter.Request
	speaks  func(memory.LLMSettings) error
	header  string      // ModeHeader of the call, "" for none
	key     string      // Idempotency-Key of the call, the id of its user message
	resends func() bool // Call.Resends
	// projection is that of ProjectionHeader, "" for none
	projection memory.Projection
	// policy is that of the body's own member, nil for none
	policy *window.Policy

	mode  string
	rec   llmadapter.Reconciliation
	known []int64 // Seq of each message that was given to Reconcile
	ghost bool

	identity   [sha256.Size]byte // see identify
	identified bool
}

// make implements memory.TurnRequest.Plan.
func (p *plan) make(head memory.Head, recent []memory.Message) (memory.Plan, error) {
	if err := p.speaks(head.Agent.Settings.LLM); err != nil {
		return memory.Plan{}, err
	}
	p.mode = p.header
	if p.mode == "" {
		p.mode = head.Agent.Settings.LLM.Mode
	}
	if p.mode == "" {
		p.mode = ModeInject
		if slices.ContainsFunc(p.req.Messages, func(m llmadapter.Incoming) bool { return m.Role == "assistant" }) || resent(p.req.Messages, recent) || p.resends != nil && p.resends() {
			p.mode = ModeReconcile
		}
	}
	if p.mode == ModeReconcile {
		return p.reconcile(head, recent)
	}
	return p.inject(head, recent)
}

// resent tells whether a list without an answer is one that a platform sent again: one whose answers all remained unheard begins with the first words of the
// call, and the first words themselves come again, perhaps longer, while their answer is still being made or was cut. Whoever sends only what is new
// sends something else.
func resent(in []llmadapter.Incoming, recent []memory.Message) bool {
	first, users := "", 0
	for i := range in {
		if in[i].Role == "user" {
			if users++; users == 1 {
				first = llmadapter.Normalise(in[i].Text())
			}
		}
	}
	if first == "" {
		return false
	}
	var stored *memory.Message
	whole := false // an answer that nobody cut
	for i := range recent {
		switch m := &recent[i]; {
		case m.Role == memory.User && stored == nil:
			stored = m
		case m.Role == memory.User && users < 2:
			return false
		case m.Role == memory.Assistant && m.State == memory.Final && stored != nil && !m.Interrupted:
			whole = true
		}
	}
	switch {
	case stored == nil || stored.TurnID > 1: // only a greeting may stand before the first words
		return false
	case users > 1:
		return llmadapter.Normalise(stored.Content) == first
	}
	more, ok := strings.CutPrefix(first, llmadapter.Normalise(stored.Content))
	return ok && !whole && (more == "" || more[0] == ' ')
}

func (p *plan) inject(head memory.Head, recent []memory.Message) (memory.Plan, error) {
	var all []int
	for i := range p.req.Messages {
		if !p.req.Messages[i].IsSystem() {
			all = append(all, i)
		}
	}
	out := memory.Plan{}
	var err error
	if out.Append, err = p.messages(all, head.LastTurn); err != nil {
		return out, err
	}
	p.ghost = false
	if p.key != "" { // the same call again: its first answer, if nobody heard it for certain, is replaced
		at := slices.IndexFunc(recent, func(m memory.Message) bool { return m.ID == p.key && m.Role == memory.User })
		if at >= 0 && recent[at].TurnID == head.LastTurn {
			for _, m := range recent[at+1:] {
				if m.Provisional() && m.TurnID == head.LastTurn {
					out.Supersede = append(out.Supersede, m.Seq)
				}
			}
			p.ghost = true
		}
	}
	return out, nil
}

func (p *plan) reconcile(head memory.Head, recent []memory.Message) (memory.Plan, error) {
	p.withoutFillers(recent)
	known := make([]llmadapter.Known, 0, len(recent))
	p.known = p.known[:0]
	command := false // the last user message was not the caller's
	for i := range recent {
		m := &recent[i]
		if m.Role == memory.User {
			command = m.Source == memory.SourceCommand || m.Source == memory.SourceSilence
		}
		switch m.State {
		case memory.Superseded, memory.Empty, memory.Merged, memory.Removed:
			continue
		}
		if m.Status != memory.Accepted || m.Role == memory.System || m.Role == memory.Developer {
			continue // no platform knows of it
		}
		k := llmadapter.Known{
			Role: string(m.Role), Text: m.Content, Original: m.Original(),
			Provisional: m.Role == memory.Assistant && m.State == memory.Final && m.Method.Rank() < memory.EchoDiff.Rank(),
			Aside:       command || m.Role == memory.Assistant && (m.Source != memory.SourceLLM || m.Timings == nil),
			Unheard:     m.State != memory.Final && m.State != memory.Dropped,
		}
		if m.ToolCallID != "" {
			k.CallIDs = []string{m.ToolCallID}
		} else {
			k.CallIDs, k.ToolCalls = llmadapter.CallIDs(m.ToolCalls), m.ToolCalls
		}
		known = append(known, k)
		p.known = append(p.known, m.Seq)
	}
	p.rec = llmadapter.Reconcile(p.req.Messages, known, heard.Align)
	out := memory.Plan{}
	var err error
	if out.Append, err = p.messages(p.rec.New, head.LastTurn); err != nil {
		return out, err
	}
	p.placed(recent, head.LastTurn, out.Append)
	for _, f := range p.rec.Answers {
		e := memory.Evidence{Seq: p.known[f.Known], Method: memory.Method(f.Method), Confidence: int64(f.Confidence)}
		switch f.Outcome {
		case llmadapter.Full:
			e.Full = true
		case llmadapter.Interrupted:
			e.Heard = f.Heard
		case llmadapter.Unplayed:
			e.State = memory.Unplayed
		case llmadapter.Replaced:
			e.State = memory.Replaced
		case llmadapter.Ghost:
			out.Supersede = append(out.Supersede, e.Seq)
			continue
		default:
			continue
		}
		out.Evidence = append(out.Evidence, e)
	}
	if x := p.rec.Extend; x != nil {
		text, err := memory.CleanText("messages", x.Text, memory.MaxText)
		if err != nil {
			return out, err
		}
		out.Extend = &memory.Extension{Seq: p.known[x.Known], Content: text}
	}
	asked, ghosts := p.askedBefore(recent)
	out.Supersede = append(out.Supersede, ghosts...)
	p.ghost = asked || len(out.Supersede) > 0 || out.Extend != nil
	out.Overtakes = slices.ContainsFunc(out.Append, func(m memory.Message) bool { return m.Role == memory.User })
	return out, nil
}

// placed puts what the platform said instead of an answer into that answer's turn, where no later one has begun, and with it what it said before that in the same
// place, which would open a turn otherwise: turn numbers never go down.
func (p *plan) placed(recent []memory.Message, lastTurn int64, add []memory.Message) {
	for i := range add {
		k, ok := p.rec.Place[p.rec.New[i]]
		if !ok {
			continue
		}
		at := slices.IndexFunc(recent, func(m memory.Message) bool { return m.Seq == p.known[k] })
		if recent[at].TurnID != lastTurn || slices.ContainsFunc(add[:i], func(m memory.Message) bool { return m.Role == memory.User }) {
			continue
		}
		for j := range add[:i+1] {
			add[j].TurnID, add[j].GivenTurn = lastTurn, true
		}
	}
}

// askedBefore tells whether the list ends with words of the caller to which an answer was asked for before, and gives (by Seq) the answers to them of which nothing
// came because their client went away: no text of theirs has to be replaced, but ghosts they are.
func (p *plan) askedBefore(recent []memory.Message) (asked bool, ghosts []int64) {
	last := len(p.req.Messages) - 1
	for last >= 0 && p.req.Messages[last].IsSystem() {
		last--
	}
	if last < 0 || p.req.Messages[last].Role != "user" || p.rec.Pair[last] < 0 {
		return false, nil
	}
	seq := p.known[p.rec.Pair[last]]
	at := slices.IndexFunc(recent, func(m memory.Message) bool { return m.Seq == seq })
	for i := at + 1; i < len(recent); i++ {
		m := &recent[i]
		if m.Role != memory.Assistant || m.TurnID != recent[at].TurnID || m.Timings == nil {
			continue
		}
		asked = true
		if m.State == memory.Empty && m.Failure == nil {
			ghosts = append(ghosts, m.Seq)
		}
	}
	return asked, ghosts
}

// messages gives incoming messages as the ledger takes them. The last user message carries the call's key.
func (p *plan) messages(which []int, lastTurn int64) ([]memory.Message, error) {
	var out []memory.Message
	afterUser := false
	reached := lastTurn // the latest turn that the messages before may have opened
	for _, i := range which {
		in := &p.req.Messages[i]
		m, err := toMemory(in, i, afterUser)
		if err != nil {
			return nil, err
		}
		if text, ok := p.rec.Part[i]; ok && p.mode == ModeReconcile {
			if m.Content, err = memory.CleanText(field(i), text, memory.MaxText); err != nil {
				return nil, err
			}
			m.Parts = nil
		}
		afterUser = in.Role == "user" || afterUser && in.Role != "assistant" || in.ToolCalls != nil
		switch {
		case in.Role == "user" && in.HasTurn && in.TurnID > lastTurn && in.TurnID >= reached:
			m.TurnID, m.GivenTurn = in.TurnID, true
			lastTurn, reached = in.TurnID, in.TurnID
		case in.Role == "user", m.Role == memory.Assistant && m.Source != memory.SourceLLM:
			reached++
		}
		out = append(out, m)
	}
	if p.key != "" {
		for i, m := range slices.Backward(out) {
			if m.Role == memory.User {
				out[i].ID = p.key
				break
			}
		}
	}
	return out, nil
}

// toMemory gives message i for the ledger. What it keeps is copied: the ledger outlives the request.
func toMemory(in *llmadapter.Incoming, i int, afterUser bool) (memory.Message, error) {
	m := memory.Message{Role: memory.Role(in.Role), ToolCallID: in.ToolCallID, ToolName: in.Name, ToolCalls: bytes.Clone(in.ToolCalls)}
	if in.Role == "function" {
		m.Role = memory.Tool
	}
	var err error
	if m.Content, err = memory.CleanText(field(i), in.Text(), memory.MaxText); err != nil {
		return m, err
	}
	if in.IsParts() {
		m.Parts = bytes.Clone(in.Content)
	}
	if in.Timestamp > 0 {
		m.Timestamp = in.Timestamp
		if m.Timestamp < 1e11 { // printed examples have seconds
			m.Timestamp *= 1000
		}
	}
	m.Source = given(in, memory.SourceMessage, memory.SourceASR, memory.SourceCommand)
	if m.Role != memory.User {
		m.Source = given(in, memory.SourceCommand, memory.SourceLLM, memory.SourceGreeting, memory.SourceSilence, memory.SourceLLMFailure)
		if m.Source == memory.SourceCommand && afterUser {
			m.Source = memory.SourceLLM
		}
		m.Method = memory.EchoDiff // the platform's own account of what it said
	}
	if m.Role == memory.Tool {
		m.Source, m.Method = "", ""
	}
	return m, metadata(in, &m)
}

func field(i int) string {
	return "messages[" + itoa(i) + "].content"
}

// given gives the source that a message names itself, if it is one of those allowed; else the first.
func given(in *llmadapter.Incoming, allowed ...memory.Source) memory.Source {
	s := memory.Source(in.MetadataString("source"))
	if slices.Contains(allowed, s) {
		return s
	}
	return allowed[0]
}

// metadata takes over a message's metadata; our own keys are not kept twice.
func metadata(in *llmadapter.Incoming, m *memory.Message) error {
	if in.Metadata == nil {
		return nil
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(in.Metadata, &all); err != nil {
		return fault.Wrap(fault.Invalid, err, "metadata of a message is not a JSON object")
	}
	for _, own := range []string{"source", "interrupted", "interrupt_timestamp", "original", "agent_id"} {
		if raw, ok := all[own]; ok {
			if m.Role == memory.Assistant {
				takeInterruption(m, own, raw)
			}
			delete(all, own)
		}
	}
	if len(all) > 0 {
		m.Metadata = all
	}
	if !m.Interrupted {
		m.InterruptMS, m.Generated = 0, ""
	}
	return nil
}

// takeInterruption reads what a platform says itself about an answer that was cut.
func takeInterruption(m *memory.Message, key string, raw json.RawMessage) {
	switch key {
	case "interrupted":
		m.Interrupted = string(raw) == "true"
	case "interrupt_timestamp":
		_ = json.Unmarshal(raw, &m.InterruptMS) // anything but a number is none
	case "original":
		_ = json.Unmarshal(raw, &m.Generated)
		if strings.TrimSpace(m.Generated) == strings.TrimSpace(m.Content) {
			m.Generated = ""
		}
	}
}

// speaks refuses an agent that has no LLM, or one that wants another form than OpenAI's: such an agent has history, turns and
// webhooks, but no proxy. It is asked before anything is stored.
func (r *Runner) speaks(l memory.LLMSettings) error {
	switch {
	case l.Style != "" && l.Style != "openai":
		return fault.At(fault.Unsupported, "llm.style", "%q: only the style openai can be called", l.Style)
	case l.URL == "" && r.cfg.Defaults.URL == "":
		return fault.At(fault.Missing, "llm.url", "is not set for this agent, and the server has no default")
	}
	return nil
}
