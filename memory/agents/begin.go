package agents

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Begin stores the call's messages and opens or joins a turn; see Turns of package internal/turn.
func (s *Turns) Begin(ctx context.Context, project, id string, r TurnRequest) (*Turn, error) {
	// Open the answer before the turn is stored. Otherwise another call in between would take the
	// turn for unanswered.
	if err := s.policies.Check("heardlog.policy", r.Policy); err != nil {
		return nil, err
	}
	ref := memory.Ref{Project: project, ID: id}
	t := &Turn{answer: s.live.open(ref, r.Cut, r.Generated, s.cfg.Now())}
	b := beginTry{overtaking: true, asking: s.peers != nil && s.peers.others.Load() && (s.cfg.Away == nil || !s.cfg.Away.Away())}
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

// beginTry is how far a call is that begins a turn.
type beginTry struct {
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
func (s *Turns) storeCall(ctx context.Context, ref memory.Ref, r TurnRequest, t *Turn, b *beginTry) error {
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
