// Package prompt connects a client's list of messages with the memory, in both directions. A Plan
// finds what a call adds to the memory: new words, and what the list says about how much of earlier
// answers was heard. A Prompt is what the LLM is given then: the conversation with all that was
// heard and nothing that was not, and the request body around it.
package prompt

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/echo"
	"github.com/heardlog/heardlog/memory/heard"
	"github.com/heardlog/heardlog/memory/redact"
	"github.com/heardlog/heardlog/memory/view"
	"github.com/heardlog/heardlog/memory/window"
)

// Modes: how a client uses the proxy.
const (
	ModeInject    = "inject"    // it sends only what is new
	ModeReconcile = "reconcile" // it sends its whole history with each call
	// ModeOff, in ModeHeader only, is for a question that is not a turn of the conversation, such
	// as a platform's request for a summary.
	ModeOff = "off"
)

// Values of memory.LLMSettings.OnQuestion.
const (
	OnQuestionCut  = "cut"
	OnQuestionKeep = "keep"
)

// ModeHeader chooses the mode for one call. It wins over the agent's setting.
const ModeHeader = "X-Heardlog-Mode"

// Call is a client's request, and what is known of it.
type Call struct {
	Request *llmadapter.Request
	// Key is the client's Idempotency-Key and becomes the ID of its user message. It has at most
	// memory.MaxMessageID characters.
	Key string
	// User is the caller, for an agent that has no user in its scope yet; "" if unknown.
	User string
	// After is the Seq of the answer that the call continues: the call then brings only what is
	// new, unless ModeHeader says otherwise. 0 names none.
	After int64
	// Resends reports whether the client is known to send its whole history with each call. It is
	// called only if neither a setting nor the list itself decides that. It may be nil.
	Resends func() bool
}

// Plan is what a call adds to the memory.
type Plan struct {
	rules      Rules
	req        *llmadapter.Request
	header     string          // ModeHeader of the call, or ""
	key, user  string          // Call.Key, Call.User
	resends    func() bool     // Call.Resends
	projection view.Projection // of ProjectionHeader, or ""
	policy     *window.Policy  // of the request's body, or nil
	after      int64           // Call.After
	account    echo.Account    // of NewAccount

	// Set by Decide.
	mode  string
	rec   echo.Result
	known []int64 // Seq of each message that was given to Reconcile
	ghost bool    // the call asks again for an answer that was asked for before
}

// Rules are those of the server.
type Rules struct {
	// Redactor returns what replaces personal data in an agent's texts; the result may be nil.
	Redactor   func(*memory.Agent) *redact.Redactor
	OnQuestion string // for agents that do not set it
}

// NewPlan checks what a call asks for, in its body and in its headers.
func NewPlan(rules Rules, h http.Header, c *Call) (*Plan, error) {
	p := &Plan{rules: rules, req: c.Request, header: h.Get(ModeHeader), key: c.Key, user: c.User, after: c.After, resends: c.Resends}
	if p.header != "" && p.header != ModeInject && p.header != ModeReconcile {
		return nil, fault.At(fault.Invalid, ModeHeader, "must be %s or %s", ModeInject, ModeReconcile)
	}
	var err error
	if p.projection, err = projectionOf(h); err != nil {
		return nil, err
	}
	p.removeThoughts()
	p.policy, err = policyOf(c.Request)
	return p, err
}

// NewAccount plans what a platform's own history adds to the memory, outside a call. body is that
// history as a chat request has it: all of it if the call is over, else its newest messages.
func NewAccount(rules Rules, body []byte, over bool) (*Plan, error) {
	req, err := llmadapter.ParseRequest(body)
	if err != nil {
		return nil, err
	}
	p := &Plan{rules: rules, req: req, header: ModeReconcile, account: echo.Noted}
	if over {
		p.account = echo.Final
	}
	p.removeThoughts()
	return p, nil
}

// One plans the list's messages as new ones; see agents.Turns.Note.
func (p *Plan) One(head memory.Head, _ []memory.Message) (agents.Plan, error) {
	var which []int
	for i := range p.req.Messages {
		which = append(which, i)
	}
	p.mode = ModeReconcile
	out, err := p.messages(which, head.LastTurn)
	return agents.Plan{Append: out}, err
}

// Depth returns how many messages of the ledger the plan needs. The ledger has more messages than
// the list, such as replaced answers and tool results.
func (p *Plan) Depth() int { return 2*len(p.req.Messages) + 16 }

// Begin returns the request that begins the plan's turn.
func (p *Plan) Begin() agents.TurnRequest {
	return agents.TurnRequest{Plan: p.Decide, Projection: p.projection, Depth: p.Depth(), Policy: p.policy, User: p.user}
}

// Ghost reports, after Decide, whether the call asks again for an answer that was asked for before.
func (p *Plan) Ghost() bool { return p.ghost }

// Digest returns a hash of what makes calls identical. It is that of the call as it came until
// Decide has run.
func (p *Plan) Digest() [sha256.Size]byte {
	d := p.req.Digest()
	b := d[:]
	for _, s := range []string{p.header, p.key, string(p.projection), strconv.FormatInt(p.after, 10)} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return sha256.Sum256(b)
}

// Decide returns what the call adds to an agent's memory. It may run more than once, and then
// starts again.
func (p *Plan) Decide(head memory.Head, recent []memory.Message) (agents.Plan, error) {
	if head.Agent.Settings.Memory.Remember.Prompts() {
		p.removeRecalled()
	}
	if by := p.rules.Redactor(head.Agent); by != nil { // calls and results are known by what is stored
		p.key = by.ID(p.key)
		for i := range p.req.Messages {
			m := &p.req.Messages[i]
			m.ToolCallID, m.ToolCalls = by.ID(m.ToolCallID), by.CallIDs(m.ToolCalls)
		}
	}
	p.mode = cmp.Or(p.header, head.Agent.Settings.LLM.Mode)
	switch {
	case p.after > 0 && p.header == "":
		p.mode = ModeInject
		if out, ok, err := p.continued(head, recent); ok || err != nil {
			return out, err
		}
	case p.mode == "":
		p.mode = ModeInject
		if slices.ContainsFunc(p.req.Messages, isAnswer) || resent(p.req.Messages, recent, p.rules.Redactor(head.Agent)) || p.resends != nil && p.resends() {
			p.mode = ModeReconcile
		}
	}
	if p.mode == ModeReconcile {
		return p.reconcile(head, recent)
	}
	return p.inject(head, recent)
}

func isAnswer(m llmadapter.Incoming) bool { return m.Role == "assistant" }

// resent reports whether a list without an answer is a platform's whole history all the same. It is
// if it begins with the caller's first words and goes on, since no answer was heard so far, or if
// it has only the first words, perhaps longer, while their answer is being made or was cut.
func resent(in []llmadapter.Incoming, recent []memory.Message, by *redact.Redactor) bool {
	told := func(m *memory.Message) string { return heard.Normalize(m.Renamed(by).Content) }
	users, at := 0, -1
	for i := range in {
		if in[i].Role == "user" {
			if users++; users == 1 {
				at = i
			}
		}
	}
	if at < 0 {
		return false
	}
	said := newSaid(in, recent, by).text(at)
	first := heard.Normalize(said)
	if first == "" {
		return false
	}
	var stored *memory.Message
	whole := false // there is an answer that was not cut
	paused := false
	for i := range recent {
		m := &recent[i]
		paused = paused || m.Paused()
		switch {
		case m.Role == memory.User && stored == nil:
			stored = m
		case m.Role == memory.User && users < 2:
			return false
		case m.Role == memory.Assistant && m.State == memory.Final && stored != nil && !m.Interrupted:
			whole = true
		}
	}
	switch {
	case paused && users > 1: // the list may repeat words that must not be stored
		return true
	case stored == nil || stored.TurnID > 1: // only a greeting may precede the first words
		return false
	case stored.Paused():
		return !whole
	case users > 1:
		return told(stored) == first
	}
	more, ok := strings.CutPrefix(first, told(stored))
	return ok && !whole && (more == "" || more[0] == ' ')
}

// inject plans a request that holds only what is new.
func (p *Plan) inject(head memory.Head, recent []memory.Message) (agents.Plan, error) {
	var all []int
	for i := range p.req.Messages {
		if !p.req.Messages[i].IsSystem() {
			all = append(all, i)
		}
	}
	out := agents.Plan{}
	all, err := p.injectResults(p.withoutResent(all, recent, p.rules.Redactor(head.Agent)), recent, &out)
	if err != nil {
		return out, err
	}
	if out.Append, err = p.messages(all, head.LastTurn); err != nil {
		return out, err
	}
	p.ghost = false
	onQuestion := cmp.Or(head.Agent.Settings.LLM.OnQuestion, p.rules.OnQuestion)
	out.Overtakes = hasUser(out.Append) && onQuestion != OnQuestionKeep
	// If the call is repeated, its first answer is replaced unless it is known to be heard.
	if p.key != "" {
		at := latest(recent, func(m *memory.Message) bool { return m.ID == p.key && m.Role == memory.User })
		if at >= 0 && recent[at].TurnID == head.LastTurn {
			for i := range recent[at+1:] {
				if m := &recent[at+1+i]; m.Provisional() && m.TurnID == head.LastTurn {
					out.Supersede = append(out.Supersede, m.Seq)
				}
			}
			p.ghost, out.Overtakes = true, false
		}
	}
	if p.after > 0 {
		p.branch(recent, &out)
	}
	out.Unsolicited = p.unsolicited(out.Append, true)
	return out, nil
}

// reconcile plans a request that holds the whole history of a platform.
func (p *Plan) reconcile(head memory.Head, recent []memory.Message) (agents.Plan, error) {
	p.removeFillers(recent)
	known := make([]echo.Known, 0, len(recent))
	p.known = p.known[:0]
	by := p.rules.Redactor(head.Agent)
	texts := newSaid(p.req.Messages, recent, by)
	texts.findNames()
	command := false // the last user message was not the caller's
	for i := range recent {
		m := &recent[i]
		if by.Detects() {
			renamed := m.Renamed(by)
			m = &renamed
		}
		if m.Role == memory.User {
			command = m.Source == memory.SourceCommand || m.Source == memory.SourceSilence
		}
		played := m.Role == memory.Assistant && sentByProxy(m) && m.Original() != ""
		switch m.State {
		case memory.Empty, memory.Merged, memory.Removed:
			continue
		case memory.Superseded:
			if !played {
				continue
			}
		}
		if m.Status != memory.Accepted || m.Role == memory.System || m.Role == memory.Developer {
			continue // platforms do not have it
		}
		k := echo.Known{
			Role: string(m.Role), Text: m.Content, Original: m.Original(), ID: m.UpstreamID,
			Provisional: m.Role == memory.Assistant && m.State == memory.Final && m.Method.Rank() < memory.EchoDiff.Rank(),
			Aside:       command || m.Role == memory.Assistant && !sentByProxy(m),
			Unheard:     m.State == memory.Unplayed || m.State == memory.Replaced,
			Echoed:      m.State == memory.Final && m.Method == memory.EchoDiff && played,
			Ghost:       m.State == memory.Superseded,
			First:       m.TurnID <= 1,
			Paused:      m.Hidden(),
			Reported:    m.State == memory.Final && m.Method == memory.EchoDiff && m.Timings == nil && (m.Source == memory.SourceCommand || m.Source == memory.SourceLLM),
		}
		if m.ToolCallID != "" {
			k.CallIDs = []string{m.ToolCallID}
		} else {
			k.CallIDs, k.ToolCalls = llmadapter.CallIDs(m.ToolCalls), m.ToolCalls
		}
		known = append(known, k)
		p.known = append(p.known, m.Seq)
	}
	in := incoming(p.req.Messages, texts, known)
	for i := range in {
		in[i].Own = p.account != echo.Asked && in[i].Role == "assistant" && p.req.Messages[i].MetadataString("source") == string(memory.SourceCommand)
	}
	p.rec = p.account.Reconcile(in, known)
	out := agents.Plan{}
	var err error
	if out.Append, err = p.messages(p.rec.New, head.LastTurn); err != nil {
		return out, err
	}
	p.placeInTurn(recent, head.LastTurn, out.Append)
	p.placeBefore(recent, &out)
	if err := p.lateResults(recent, &out); err != nil {
		return out, err
	}
	for _, f := range p.rec.Answers {
		e := memory.Evidence{Seq: p.known[f.Known], Method: memory.Method(f.Method), Confidence: int64(f.Confidence), Later: true}
		switch f.Outcome {
		case echo.Full:
			if e.Full = !p.saysCut(f.Known); !e.Full {
				e.Heard, e.Cut, e.Confidence = recentText(recent, e.Seq), true, unsureCut
			}
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
	for _, x := range p.rec.Extend {
		text, err := text.Clean("messages", x.Text, memory.MaxText)
		if err != nil {
			return out, err
		}
		out.Extend = append(out.Extend, agents.Extension{Seq: p.known[x.Known], Content: text})
	}
	for _, j := range p.rec.Gone {
		out.Supersede = append(out.Supersede, p.known[j])
	}
	if p.account != echo.Asked {
		return out, nil
	}
	asked, ghosts := p.askedBefore(recent)
	out.Supersede = append(out.Supersede, ghosts...)
	out.Resent, out.Overtakes = true, hasUser(out.Append)
	p.ghost = asked || !out.Overtakes && (len(out.Supersede) > 0 || len(out.Extend) > 0)
	last := p.lastSpoken()
	voiced := last >= 0 && (p.rec.Pair[last] < 0 || known[p.rec.Pair[last]].Aside)
	out.Unsolicited = p.unsolicited(out.Append, voiced)
	return out, nil
}

// unsureCut is the confidence in the text of an answer that was cut where the list does not say.
const unsureCut = 50

// saysCut reports whether the list's copy of a known answer says that it was interrupted.
func (p *Plan) saysCut(known int) bool {
	i := slices.Index(p.rec.Pair, known)
	if i < 0 || p.req.Messages[i].Metadata == nil {
		return false
	}
	var in struct {
		Interrupted any `json:"interrupted"`
	}
	_ = json.Unmarshal(p.req.Messages[i].Metadata, &in) // checked where messages are stored
	return in.Interrupted == true
}

// recentText returns all that was generated of an answer.
func recentText(recent []memory.Message, seq int64) string {
	return recent[latest(recent, func(m *memory.Message) bool { return m.Seq == seq })].Original()
}

// sentByProxy reports whether an assistant message is the model's and went to the platform as the
// answer to a call.
func sentByProxy(m *memory.Message) bool {
	return (m.Source == memory.SourceLLM || m.Source == memory.SourceGreeting) && m.Timings != nil
}

func hasUser(list []memory.Message) bool {
	return latest(list, func(m *memory.Message) bool { return m.Role == memory.User }) >= 0
}

// unsolicited reports whether the call asks the agent to speak without being asked by the caller:
// its list has only instructions, or ends with an answer of the model. add are its new messages.
// Any other assistant message at the end (voiced) is to be voiced or continued, unless
// instructions follow it.
func (p *Plan) unsolicited(add []memory.Message, voiced bool) bool {
	last := p.lastSpoken()
	switch {
	case hasUser(add):
		return false
	case last < 0:
		return true
	case p.req.Messages[last].Role != "assistant" || p.req.Messages[last].ToolCalls != nil:
		return false
	}
	return !voiced || last < len(p.req.Messages)-1
}

// lastSpoken returns the index of the last message of the list that is not an instruction, or -1.
func (p *Plan) lastSpoken() int {
	last := len(p.req.Messages) - 1
	for last >= 0 && p.req.Messages[last].IsSystem() {
		last--
	}
	return last
}

// placeInTurn puts what the platform said in place of an answer into that answer's turn, unless a
// later turn has begun. What the platform said before that goes with it, since turn numbers never
// decrease.
func (p *Plan) placeInTurn(recent []memory.Message, lastTurn int64, add []memory.Message) {
	for i := range add {
		k, ok := p.rec.Place[p.rec.New[i]]
		if !ok {
			continue
		}
		at := latest(recent, func(m *memory.Message) bool { return m.Seq == p.known[k] })
		if recent[at].TurnID != lastTurn || hasUser(add[:i]) {
			continue
		}
		for j := range add[:i+1] {
			add[j].TurnID, add[j].GivenTurn = lastTurn, true
		}
	}
}

// askedBefore reports whether the list ends with a user message for which an answer was requested
// before. It returns the Seq of the answers to it that have no text because their client went away.
func (p *Plan) askedBefore(recent []memory.Message) (asked bool, ghosts []int64) {
	last := p.lastSpoken()
	if last < 0 || p.req.Messages[last].Role != "user" || p.rec.Pair[last] < 0 {
		return false, nil
	}
	seq := p.known[p.rec.Pair[last]]
	at := latest(recent, func(m *memory.Message) bool { return m.Seq == seq })
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
