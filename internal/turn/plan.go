package turn

import (
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/echo"
	"github.com/heardlog/heardlog/memory/heard"
	"github.com/heardlog/heardlog/memory/window"
)

// Modes: how a client uses the proxy.
const (
	ModeInject    = "inject"    // it sends only what is new
	ModeReconcile = "reconcile" // it sends its whole history with each call
)

// ModeHeader chooses the mode for one call. It wins over the agent's setting.
const ModeHeader = "X-Heardlog-Mode"

// decision is a memory.TurnRequest.Plan.
type decision = func(head memory.Head, recent []memory.Message) (memory.Plan, error)

// plan is what a client's request adds to the memory.
type plan struct {
	req        *llmadapter.Request
	check      func(memory.LLMSettings) error
	header     string            // ModeHeader of the call, or ""
	key        string            // Call.Key
	resends    func() bool       // Call.Resends
	projection memory.Projection // of ProjectionHeader, or ""
	policy     *window.Policy    // of the request's body, or nil

	// Set by decide.
	mode  string
	rec   echo.Result
	known []int64 // Seq of each message that was given to Reconcile
	ghost bool    // the call asks again for an answer that was asked for before

	hash   [sha256.Size]byte // see digest
	hashed bool
}

// newPlan checks what a call asks for.
func (r *Runner) newPlan(req *http.Request, c *Call) (*plan, error) {
	if r.cfg.Client.Looped(req.Header) {
		return nil, fault.At(fault.Invalid, "llm.url", "points back at this server, which would call itself without end; set the address of an LLM")
	}
	p := &plan{req: c.Request, check: r.checkLLM, header: req.Header.Get(ModeHeader), key: c.Key, resends: c.Resends}
	if p.header != "" && p.header != ModeInject && p.header != ModeReconcile {
		return nil, fault.At(fault.Invalid, ModeHeader, "must be %s or %s", ModeInject, ModeReconcile)
	}
	var err error
	if p.projection, err = projectionOf(req); err != nil {
		return nil, err
	}
	p.policy, err = policyOf(c.Request)
	return p, err
}

// decide is the plan's decision. It may run more than once, and then starts again.
func (p *plan) decide(head memory.Head, recent []memory.Message) (memory.Plan, error) {
	if err := p.check(head.Agent.Settings.LLM); err != nil {
		return memory.Plan{}, err
	}
	p.mode = p.header
	setDefault(&p.mode, head.Agent.Settings.LLM.Mode)
	if p.mode == "" {
		p.mode = ModeInject
		if p.hasAnswer() || resent(p.req.Messages, recent) || p.resends != nil && p.resends() {
			p.mode = ModeReconcile
		}
	}
	if p.mode == ModeReconcile {
		return p.reconcile(head, recent)
	}
	return p.inject(head, recent)
}

// hasAnswer reports whether the request's list has an assistant message.
func (p *plan) hasAnswer() bool {
	return slices.ContainsFunc(p.req.Messages, func(m llmadapter.Incoming) bool { return m.Role == "assistant" })
}

// resent reports whether a list without an answer is a platform's whole history all the same. It is
// if it begins with the caller's first words and goes on, since no answer was heard so far, or if
// it has only the first words, perhaps longer, while their answer is being made or was cut.
func resent(in []llmadapter.Incoming, recent []memory.Message) bool {
	first, users := "", 0
	for i := range in {
		if in[i].Role == "user" {
			if users++; users == 1 {
				first = heard.Normalize(in[i].Text())
			}
		}
	}
	if first == "" {
		return false
	}
	var stored *memory.Message
	whole := false // there is an answer that was not cut
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
	case stored == nil || stored.TurnID > 1: // only a greeting may precede the first words
		return false
	case users > 1:
		return heard.Normalize(stored.Content) == first
	}
	more, ok := strings.CutPrefix(first, heard.Normalize(stored.Content))
	return ok && !whole && (more == "" || more[0] == ' ')
}

// inject plans a request that holds only what is new.
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
	// If the call is repeated, its first answer is replaced unless it is known to be heard.
	if p.key != "" {
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

// reconcile plans a request that holds the whole history of a platform.
func (p *plan) reconcile(head memory.Head, recent []memory.Message) (memory.Plan, error) {
	p.removeFillers(recent)
	known := make([]echo.Known, 0, len(recent))
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
			continue // platforms do not have it
		}
		k := echo.Known{
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
	p.rec = echo.Reconcile(incoming(p.req.Messages), known)
	out := memory.Plan{}
	var err error
	if out.Append, err = p.messages(p.rec.New, head.LastTurn); err != nil {
		return out, err
	}
	p.placeInTurn(recent, head.LastTurn, out.Append)
	for _, f := range p.rec.Answers {
		e := memory.Evidence{Seq: p.known[f.Known], Method: memory.Method(f.Method), Confidence: int64(f.Confidence)}
		switch f.Outcome {
		case echo.Full:
			e.Full = true
		case echo.Interrupted:
			e.Heard = f.Heard
		case echo.Unplayed:
			e.State = memory.Unplayed
		case echo.Replaced:
			e.State = memory.Replaced
		case echo.Ghost:
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

// placeInTurn puts what the platform said in place of an answer into that answer's turn, unless a
// later turn has begun. What the platform said before that goes with it, since turn numbers never
// decrease.
func (p *plan) placeInTurn(recent []memory.Message, lastTurn int64, add []memory.Message) {
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

// askedBefore reports whether the list ends with a user message for which an answer was requested
// before. It returns the Seq of the answers to it that have no text because their client went away.
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

// incoming returns a request's messages as package echo takes them.
func incoming(in []llmadapter.Incoming) []echo.Message {
	out := make([]echo.Message, len(in))
	for i := range in {
		m := &in[i]
		out[i] = echo.Message{Role: m.Role, CallID: m.ToolCallID, CallIDs: llmadapter.CallIDs(m.ToolCalls), ToolCalls: m.ToolCalls}
		if !m.IsSystem() {
			out[i].Text = m.Text()
		}
	}
	return out
}
