package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
)

// settleTimeout limits the storing of an answer after its client has gone.
const settleTimeout = 30 * time.Second

// Begin stores the call's messages and opens or joins a turn; see Turns of package internal/turn.
func (s *Turns) Begin(ctx context.Context, project, id string, r TurnRequest) (*Turn, error) {
	// Open the answer before the turn is stored. Otherwise another call in between would take the
	// turn for unanswered.
	if err := s.policies.Check("heardlog.policy", r.Policy); err != nil {
		return nil, err
	}
	ref := memory.Ref{Project: project, ID: id}
	t := &Turn{answer: s.live.open(ref, r.Cut, r.Generated, s.cfg.Now())}
	b := attempt{overtaking: true, asking: s.peers != nil && s.peers.others.Load() && (s.cfg.Away == nil || !s.cfg.Away.Away())}
	err := s.storeCall(ctx, ref, r, t, &b)
	if errors.Is(err, errElsewhere) { // once at most
		b.asking = false
		if b.elsewhere = s.ask(ctx, ref, b.cause, b.before, nil, nil).Turns; b.cause != nil {
			b.elsewhere = nil // it is cut and stored
		}
		err = s.storeCall(ctx, ref, r, t, &b)
	}
	if errors.Is(err, ErrOvertaken) {
		s.cutAnswers(ctx, ref, ErrOvertaken, func(o *openAnswer) bool { return o.turn.Load() != noTurn })
		b.overtaking, b.asking = false, false
		err = s.storeCall(ctx, ref, r, t, &b)
	}
	if err != nil {
		s.endAnswer(ref, t.answer)
		return nil, err
	}
	close(t.answer.placeStored)
	// Not within the decision, which holds up all other writes of the server.
	if r.Window != nil && s.policies.differsFor(&t.Agent, r.Policy) && !t.Passed() {
		if err := r.Window(ctx, t, r.Policy); err != nil {
			s.endAnswer(ref, t.answer)
			return nil, err
		}
		t.showOriginals(s.messages.Redactor(&t.Agent))
	} else {
		// Messages that left the memory are still in Recent, so that a platform's re-sent copies of
		// them are recognized.
		t.Context = newest(t.Agent.Settings.Memory.Since(t.stored), t.added, t.Agent.Settings.LLM.MaxHistory)
	}
	// The memory was cleared, or an earlier question is repeated; it must be answered anyway.
	if t.asksNothing() && !t.Unsolicited {
		t.Context = memory.LastQuestion(t.Recent())
	}
	t.Summary = t.summary()
	// A second call for a turn replaces the answer that is being generated for it.
	for _, o := range s.live.openAnswers(ref) {
		if o.turn.Load() == t.TurnID && o.order.Load() < t.answer.order.Load() {
			// It must not fall for a call that comes to nothing.
			if err := s.Durable(t); err != nil {
				s.endAnswer(ref, t.answer)
				return nil, err
			}
			o.stop(ErrSuperseded)
			t.Replaced++
		}
	}
	if len(t.added) == 0 && !t.Passed() { // the turn was there already
		s.supersedeElsewhere(ctx, ref, t)
	}
	return t, nil
}

// Durable waits until what Begin stored is on disk.
func (s *Turns) Durable(t *Turn) error {
	if t.durable == nil {
		return nil
	}
	return t.durable()
}

// errElsewhere is returned if another process may be answering the turn.
var errElsewhere = errors.New("perhaps being answered by another process")

// attempt is how far a call is that begins a turn.
type attempt struct {
	overtaking bool    // fail where an answer is overtaken
	asking     bool    // fail if another process must be asked first
	cause      error   // why the other process must cut its answer; nil only asks
	before     int64   // the ledger's next Seq when that was decided
	elsewhere  []int64 // turns that other processes are answering
}

// storeCall stores the call's messages, and may return before they are on disk. With overtaking set
// it stores nothing and returns ErrOvertaken if the call brings later words of the caller than
// those that are being answered; that answer must be in the ledger before its heard part can be
// set. With asking set it returns errElsewhere if the turn has a question whose answer is neither
// stored nor being generated here.
func (s *Turns) storeCall(ctx context.Context, ref memory.Ref, r TurnRequest, t *Turn, b *attempt) error {
	durable, err := s.updateTurn(ctx, ref, func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		t.answer.turn.Store(noTurn)
		t.answer.place.Store(0)
		if err := h.Agent.MustBeActive(fault.Stopped); err != nil {
			return memory.Change{}, err
		}
		if h.Agent.Status == memory.Idle {
			return memory.Change{}, fault.New(fault.Stopped, "agent %s is leaving and takes no new turn", ref.ID)
		}
		recent, err := view.Last(r.depth(&h.Agent.Settings.LLM))
		if err != nil {
			return memory.Change{}, err
		}
		plan, err := r.Plan(h, recent)
		if err != nil {
			return memory.Change{}, err
		}
		h.LastTurn = max(h.LastTurn, s.live.lastTurn(ref))
		answering := s.live.isAnswering(ref, h.LastTurn)
		if b.overtaking && plan.Overtakes && answering {
			return memory.Change{}, ErrOvertaken
		}
		if b.asking && !answering && awaited(recent, h.LastTurn) && slices.ContainsFunc(plan.Append, func(m memory.Message) bool { return m.Role == memory.User }) {
			b.before = h.NextSeq
			if b.cause = nil; plan.Overtakes {
				b.cause = ErrOvertaken
			}
			return memory.Change{}, errElsewhere
		}
		p := planner{view: view, redactor: s.messages.Redactor(h.Agent), head: h, rev: h.Rev + 1, now: s.messages.NowMS(), recent: recent}
		if err := p.run(plan, answering || slices.Contains(b.elsewhere, h.LastTurn)); err != nil {
			return memory.Change{}, err
		}
		t.Agent, t.TurnID, t.AnswerSeq, t.UserMS = *h.Agent, p.turn, p.answerSeq, p.userMS
		t.Unsolicited, t.Greeting = plan.Unsolicited, p.greeting
		t.stored, t.added = p.recent, p.change.Append
		t.paused = s.messages.paused(h.Agent) || slices.ContainsFunc(p.recent, func(m memory.Message) bool { return m.TurnID == p.turn && m.Paused() })
		t.answer.place.Store(cmp.Or(p.answerSeq, h.NextSeq))
		t.answer.order.Store(s.live.decisions.Add(1))
		t.answer.turn.Store(p.turn)
		if r.User != "" && h.Agent.Settings.Scope.UserID == "" {
			a := *h.Agent
			a.Settings.Scope.UserID, a.Rev = r.User, p.rev
			p.change.Agent = &a
			t.Agent.Settings.Scope.UserID = r.User
			for i := range p.change.Append {
				p.change.Append[i].ScopeOr(a.Settings.Scope)
			}
		}
		return p.change, nil
	}, t.answer, true)
	t.durable = durable
	return err
}

// awaited reports whether the turn's last question has no stored answer yet.
func awaited(recent []memory.Message, turn int64) bool {
	for i := range slices.Backward(recent) {
		if at := recent[i].AnswerSeq; at != 0 {
			return recent[i].TurnID == turn && !slices.ContainsFunc(recent[i:], func(m memory.Message) bool { return m.Seq == at })
		}
	}
	return false
}

// planner turns a Plan into a Change.
type planner struct {
	view      memory.AgentView
	redactor  *redact.Redactor // nil replaces nothing
	head      memory.Head
	rev, now  int64
	recent    []memory.Message // shared with the store until owned is set
	owned     bool
	change    memory.Change
	turn      int64
	answerSeq int64
	userMS    int64
	greeting  bool
}

// run plans a turn: what apply does, and a place for the answer.
func (p *planner) run(plan Plan, answering bool) error {
	if err := p.apply(plan, answering); err != nil {
		return err
	}
	return p.reserve(plan)
}

// apply adds to the Change what a plan brings.
func (p *planner) apply(plan Plan, answering bool) error {
	for _, e := range plan.Evidence {
		if err := p.replace(e.Seq, func(m memory.Message) (memory.Message, bool, error) { return m.WithEvidence(e, p.now) }); err != nil {
			return err
		}
	}
	for _, seq := range plan.Supersede {
		if err := p.replace(seq, func(m memory.Message) (memory.Message, bool, error) {
			changed := m.State != memory.Superseded
			m.State = memory.Superseded
			return m, changed, nil
		}); err != nil {
			return err
		}
	}
	for _, x := range plan.Extend {
		if err := p.replace(x.Seq, x.extend); err != nil {
			return err
		}
	}
	for _, x := range plan.Results {
		if err := p.replace(x.Seq, func(m memory.Message) (memory.Message, bool, error) {
			m.Content, m.Parts = x.Content, nil
			return m, true, nil
		}); err != nil {
			return err
		}
	}
	for seq, item := range plan.PlatformIDs {
		if err := p.replace(seq, func(m memory.Message) (memory.Message, bool, error) {
			changed := item != "" && m.Heard().PlatformID != item
			if changed {
				m.Amend(func(r *memory.Details) { r.PlatformID = item })
			}
			return m, changed, nil
		}); err != nil {
			return err
		}
	}
	known, err := knownIDs(p.view, plan.Append)
	if err != nil {
		return err
	}
	start := p.head.LastTurn
	for i, m := range plan.Append {
		if answer := plan.Before[i]; answer != 0 && p.placeBefore(m, answer) {
			continue
		}
		if stored, ok := known[m.ID]; ok && m.ID != "" {
			if !memory.SameWords(stored, m.Redacted(p.redactor)) {
				return fault.At(fault.Conflict, "Idempotency-Key", "%q names a stored message with other content", m.ID)
			}
			continue // the same question again: only the answer is generated again
		}
		m, err := p.head.Place(m, p.rev, p.now, answering && p.head.LastTurn == start)
		if err != nil {
			return err
		}
		p.change.Append = append(p.change.Append, m)
	}
	return nil
}

// placeBefore places a message before a stored answer, in its turn. It reports false if there is no
// free Seq.
func (p *planner) placeBefore(m memory.Message, answer int64) bool {
	taken := func(o memory.Message) bool { return o.Seq == answer-1 }
	at := slices.IndexFunc(p.recent, func(o memory.Message) bool { return o.Seq == answer })
	if at <= 0 || slices.ContainsFunc(p.recent, taken) || slices.ContainsFunc(p.change.Append, taken) {
		return false
	}
	next := &p.recent[at]
	m.ScopeOr(p.head.Agent.Settings.Scope)
	m.Seq, m.Rev, m.TurnID, m.TurnHasUser = answer-1, p.rev, next.TurnID, next.TurnHasUser
	m.GivenTurn, m.Opens, m.Marks = false, false, memory.Marks{}
	if m.Timestamp == 0 {
		m.Timestamp = next.Timestamp
	}
	p.change.Append = append(p.change.Append, m)
	return true
}

// firstTranscript is the key of a user message's metadata with the text that came first.
const firstTranscript = "first_transcript"

// extend sets the newer text of a user message.
func (x Extension) extend(m memory.Message) (memory.Message, bool, error) {
	if m.Content == x.Content {
		return m, false, nil
	}
	if _, known := m.Metadata[firstTranscript]; !known && !strings.HasPrefix(x.Content, m.Content) {
		first, err := json.Marshal(m.Content)
		if err != nil {
			return m, false, fault.Wrap(fault.Internal, err, "a text could not be encoded")
		}
		all := maps.Clone(m.Metadata) // copies of messages share it
		if all == nil {
			all = map[string]json.RawMessage{}
		}
		all[firstTranscript] = first
		m.Metadata = all
	}
	m.Content = x.Content
	return m, true, nil
}

// reserve keeps a Seq free for the answer and finds its turn.
func (p *planner) reserve(plan Plan) error {
	last := p.head.Last
	switch {
	case plan.Unsolicited:
		p.turn, p.userMS = p.head.OwnTurn(), p.now
		p.greeting = !slices.ContainsFunc(slices.Concat(p.recent, p.change.Append), memory.Message.InHistory)
		if last.Seq == 0 {
			return nil // no message could keep it
		}
	case last.Seq == 0:
		return fault.At(fault.Missing, "messages", "is required: there is nothing to answer yet")
	default:
		p.turn, p.userMS = last.TurnID, last.Timestamp
		if m := p.lastUser(); m != nil {
			p.turn, p.userMS = max(p.turn, m.TurnID), m.Timestamp
		}
	}
	if p.answerSeq = p.head.NextSeq; plan.Resent {
		p.answerSeq++
	}
	if n := len(p.change.Append); n > 0 && p.change.Append[n-1].Seq == last.Seq {
		p.change.Append[n-1].AnswerSeq = p.answerSeq
		return nil
	}
	return p.replace(last.Seq, func(m memory.Message) (memory.Message, bool, error) {
		m.AnswerSeq = p.answerSeq
		return m, true, nil
	})
}

// lastUser returns the newest user message that counts, or nil.
func (p *planner) lastUser() *memory.Message {
	for _, list := range [][]memory.Message{p.change.Append, p.recent} {
		for i := len(list) - 1; i >= 0; i-- {
			if m := &list[i]; m.Role == memory.User && m.Counts() {
				return m
			}
		}
	}
	return nil
}

// replace changes a stored message in this Change, building on what the Change holds of it already.
func (p *planner) replace(seq int64, edit func(memory.Message) (memory.Message, bool, error)) error {
	at := slices.IndexFunc(p.change.Replace, func(m memory.Message) bool { return m.Seq == seq })
	var m memory.Message
	if at >= 0 {
		m = p.change.Replace[at]
	} else {
		var err error
		if m, err = p.view.Seq(seq); err != nil {
			return err
		}
	}
	m, changed, err := edit(m)
	if err != nil || !changed {
		return err
	}
	m.Rev = p.rev
	if at >= 0 {
		p.change.Replace[at] = m
	} else {
		p.change.Replace = append(p.change.Replace, m)
	}
	if i := slices.IndexFunc(p.recent, func(r memory.Message) bool { return r.Seq == seq }); i >= 0 {
		if !p.owned {
			p.recent, p.owned = slices.Clone(p.recent), true
		}
		p.recent[i] = m
	}
	if p.head.Last.Seq == seq {
		p.head.Last = m
	}
	return nil
}

// Progress marks the phase of the open answer.
func (s *Turns) Progress(t *Turn, p memory.Phase) {
	if o := t.answer; o.phase.Swap(int32(p)) != int32(p) {
		o.agent.mu.Lock()
		o.agent.wakeFollowers()
		o.agent.mu.Unlock()
	}
}

// Settle stores the answer and ends it.
func (s *Turns) Settle(ctx context.Context, t *Turn, a Answer) (memory.Message, error) {
	defer s.endAnswer(t.Agent.Ref(), t.answer)
	if err := s.Durable(t); err != nil { // there is no question to this answer
		return memory.Message{}, err
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer stop()
	now := s.messages.NowMS()
	out := a.message(now)
	out.Seq, out.TurnID, out.TurnHasUser = t.AnswerSeq, t.TurnID, !t.Unsolicited
	if t.Greeting && out.Source == memory.SourceLLM {
		out.Source = memory.SourceGreeting
	}
	// Not within the decision, which holds up all other writes of the server.
	out = t.answer.amended(out, now)
	whole, failure := out, a.Failure
	_, err := s.updateTurn(ctx, t.Agent.Ref(), func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		// The next decision sees the answer in the ledger, even before it is closed.
		t.answer.inLedger.Store(true)
		// This includes an agent that has ended: its ledger must have what was said.
		out.Rev = h.Rev + 1
		if out.Seq = t.AnswerSeq; out.Seq == 0 {
			out.Seq = h.NextSeq
		}
		out.Opens = t.Unsolicited && t.TurnID > h.LastTurn
		if t.paused || s.messages.paused(h.Agent) {
			out = withoutTexts(out)
			failure = withoutText(failure)
		}
		if t := out.Made().Request; t != nil {
			if ok, err := stands(view, t); err != nil {
				return memory.Change{}, err
			} else if !ok {
				out.DropRequest()
			}
		}
		m := out
		c := memory.Change{Append: []memory.Message{m}}
		if a.Failure != nil {
			ev, err := s.messages.event(h.Agent, event.Error, m.Rev, 0, now, EventFacts{TurnID: t.TurnID, Failure: failure})
			if err != nil {
				return memory.Change{}, err
			}
			c.Events = ev
		}
		if !s.policies.differsFor(h.Agent, nil) {
			return c, nil
		}
		return c, s.messages.cutBehind(view, &c)
	}, t.answer, false)
	if err == nil {
		t.AnswerSeq = out.Seq
		s.amendOthers(ctx, t.answer, &whole)
	}
	if err == nil && out.State == memory.Superseded && !a.Repeats {
		s.cfg.Observe.Ghost()
	}
	return out, err
}

// stands reports whether no message of a record was removed since the record was made, nor the
// record that it repeats parts of.
func stands(view memory.AgentView, t *memory.Request) (bool, error) {
	if view.Head().Rev <= t.Rev {
		return true, nil
	}
	for _, seq := range append(t.Own(), t.Of) {
		if seq == 0 {
			continue
		}
		m, err := view.Seq(seq)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return false, err
		}
		if err != nil || m.State == memory.Removed || seq == t.Of && m.Made().Request == nil {
			return false, nil
		}
	}
	return true, nil
}

// message returns the answer as a message of the ledger.
func (a Answer) message(now int64) memory.Message {
	t := a.Timings
	m := memory.Message{
		Role: memory.Assistant, Source: memory.SourceLLM, Content: a.Sent, ToolCalls: a.ToolCalls, FinishRsn: a.FinishRsn, Usage: a.Usage,
		UpstreamID: a.UpstreamID, Failure: a.Failure, Method: memory.AssumedFull, Timestamp: now, Timings: &t, CutGenerated: !a.Complete,
	}
	m.Amend(func(r *memory.Details) {
		r.Upstream, r.Model, r.Cost, r.Filler, r.WithThoughts, r.Request = a.Upstream, a.Model, a.Cost, a.Filler, a.WithThoughts, a.Request
		r.Members, r.Origin = a.Members, a.Origin
		if len(a.Recalled) > 0 {
			r.Recalled = a.Recalled
		}
	})
	if t.StartMS > 0 && t.FirstTokenMS > 0 {
		m.Timestamp = t.StartMS + t.FirstTokenMS
	}
	by, cut := causes[rootCause(a.Err)]
	switch {
	case a.FailureText != "":
		m.Content, m.Source = a.Sent+a.FailureText, memory.SourceLLMFailure
		m.Generated, m.CutGenerated = "", false
		if a.Generated != "" {
			m.Generated, m.CutGenerated = a.Generated, true
		}
	case a.Err == nil:
		m.Content = a.Generated
	case errors.Is(a.Err, ErrSuperseded):
		m.State, m.Method = memory.Superseded, memory.DisconnectOnly
	case cut:
		m.Interrupted, m.InterruptMS, m.InterruptBy, m.Method = true, now, by, memory.DisconnectOnly
	default:
		// The upstream broke: the caller did not interrupt, but heard no more either.
		m.Method = memory.DisconnectOnly
	}
	if m.Content != a.Generated && a.FailureText == "" {
		m.Generated = a.Generated
	}
	if m.Content == "" && !m.CallsTool() && m.State == memory.Final {
		m.State = memory.Empty
	}
	if a.Complete {
		m.CutGenerated = false
	}
	if a.Repeats {
		m.State, m.Source = memory.Superseded, memory.SourceCommand
	}
	return m
}

var causes = map[error]string{
	ErrInterrupted: memory.ByAPIInterrupt, ErrBargeIn: memory.ByStartOfSpeech, ErrThink: memory.ByAPIInterrupt, ErrSpeak: memory.ByAPISpeak, ErrLeave: memory.ByAPILeave,
	ErrClientGone: memory.ByStartOfSpeech, ErrOvertaken: memory.ByStartOfSpeech, ErrSuperseded: memory.ByStartOfSpeech,
}

// rootCause returns which of the Err values err is, or nil.
func rootCause(err error) error {
	for cause := range causes {
		if errors.Is(err, cause) {
			return cause
		}
	}
	return nil
}

// Complete adds, after Settle, what a drained upstream produced in full.
func (s *Turns) Complete(ctx context.Context, t *Turn, generated string) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer stop()
	return s.messages.update(ctx, t.Agent.Ref(), func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		generated := s.messages.Redactor(h.Agent).Text(generated)
		m, err := view.Seq(t.AnswerSeq)
		if err != nil || len(generated) < len(m.Original()) {
			return memory.Change{}, err
		}
		if m.Sent == "" {
			m.Sent = m.SentText()
		}
		m.Generated, m.CutGenerated, m.Rev = generated, false, view.Head().Rev+1
		return memory.Change{Replace: []memory.Message{m}}, nil
	})
}
