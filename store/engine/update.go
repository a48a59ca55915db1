package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/codec"
)

// Update implements memory.Ledger.
func (e *Engine) Update(ctx context.Context, project, id string, decide memory.Decision) error {
	_, err := e.update(ctx, project, id, decide, nil)
	return err
}

// UpdateEarly implements memory.Ledger. Over a shared store it is never early, since another
// process may make the decision stale.
func (e *Engine) UpdateEarly(ctx context.Context, project, id string, decide memory.Decision, whenStored func(error)) (bool, error) {
	if e.o.Shared {
		return false, e.Update(ctx, project, id, decide)
	}
	return e.update(ctx, project, id, decide, whenStored)
}

const (
	// maxTries bounds how often a call decides again. More than a few tries mean that others change
	// the agent all the time.
	maxTries = 100
	// patience is after how many tries a call waits before the next, a little longer each time.
	patience = 4
)

func (e *Engine) update(ctx context.Context, project, id string, decide memory.Decision, whenStored func(error)) (early bool, err error) {
	if err := e.begin(ctx); err != nil {
		return false, err
	}
	defer e.calls.RUnlock()
	began := time.Now()
	if e.o.Shared { // whose reads take time, too
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, e.o.Timeout, errSlow)
		defer cancel()
	}
	a := e.agents.enter(memory.Ref{Project: project, ID: id})
	defer e.agents.leave(a)
	for try := 1; ; try++ {
		wait, err := e.decide(ctx, a, decide, whenStored, began)
		if wait != nil {
			early, err = wait(err)
		}
		if early || !errors.Is(err, memory.ErrStale) {
			return early, err
		}
		if try == maxTries {
			return false, fault.Wrap(fault.Unavailable, err, "others change the agent all the time; try again")
		}
		if try < patience {
			continue
		}
		pause := time.NewTimer(time.Duration(try-patience+1) * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return false, fault.Ended(ctx)
		}
	}
}

// decide runs the decision in the agent's turn and queues what it writes. If there is something to
// wait for, the caller then calls wait, outside the turn, with decide's error; its error takes the
// place of decide's. began is when the call began.
func (e *Engine) decide(ctx context.Context, a *agent, decide memory.Decision, whenStored func(error), began time.Time) (wait func(error) (bool, error), err error) {
	if err := a.lock(ctx, e.o.Timeout/2); err != nil {
		return nil, err
	}
	defer a.unlock()
	epoch := e.o.Epoch()
	s, last, fails := a.base()
	if last == nil {
		ok := false
		if s, ok = e.cache.Get(a.ref); !ok {
			// Most decisions, of appends, need no messages; Last loads more.
			if s, err = e.load(ctx, a.ref, 1, memory.Version{}); err != nil {
				return nil, err
			}
		}
	}
	view := &agentView{e: e, ctx: ctx, a: a, s: s}
	c, err := run(decide, view)
	if view.err != nil {
		return nil, view.err
	}
	s = view.s
	if err != nil || c.Empty() {
		return func(err error) (bool, error) { return false, e.confirm(ctx, a, s, last, epoch, err) }, err
	}
	if s.head.Agent.Cold != nil {
		return nil, e.thaw(ctx, a.ref)
	}
	if len(c.Rewritten) > 0 && last != nil {
		// What the decision has read from the store is without the events of the last write.
		return func(error) (bool, error) {
			select {
			case <-last.done:
				return false, memory.ErrStale
			case <-ctx.Done():
				return false, fault.Ended(ctx)
			}
		}, nil
	}
	if c.Tally, err = tally(view, &s.head, c); err != nil {
		return nil, err
	}
	w := &write{
		Write: memory.Write{Ref: a.ref, Version: s.version(), Before: s.head.Agent.Status, Change: c, Epoch: epoch},
		agent: a, fails: fails, began: began, done: make(chan struct{}), whenStored: whenStored,
	}
	if err := encode(&w.Write, s.head.Agent, c.Agent); err != nil {
		return nil, err
	}
	w.after = s.apply(c)
	w.Head = &w.after.head
	if w.Retagged = w.Head.Retagged(&s.head, &c); w.Retagged && c.Agent != nil {
		w.Lost = w.Head.Lost(&s.head)
	}
	commit, err := e.queue(w)
	if err != nil {
		return nil, err
	}
	return func(error) (bool, error) { return e.await(ctx, w, commit) }, nil
}

// thaw brings the rows of a call back from the archive, and returns memory.ErrStale: the next try
// decides on these.
func (e *Engine) thaw(ctx context.Context, ref memory.Ref) error {
	archive, ok := e.store.(interface {
		Thaw(ctx context.Context, ref memory.Ref) error
	})
	if !ok {
		return fault.New(fault.Unavailable, "the call is in an archive, and this server has none")
	}
	if err := archive.Thaw(ctx, ref); err != nil {
		return err
	}
	e.forget(ref)
	return memory.ErrStale
}

// confirm returns the error of a decision that writes nothing, once it is certain that what it
// read was on disk during the call; else memory.ErrStale.
func (e *Engine) confirm(ctx context.Context, a *agent, s *snapshot, last *write, epoch int64, err error) error {
	if last != nil {
		select {
		case <-last.done:
		case <-ctx.Done():
			return fault.Ended(ctx)
		}
		if last.err != nil {
			return memory.ErrStale
		}
		return err
	}
	if !e.o.Shared {
		return err
	}
	switch _, failed := e.load(ctx, a.ref, minTail, s.version()); {
	case failed == nil, errors.Is(failed, memory.ErrUnchanged) && e.o.Epoch() != epoch:
		return memory.ErrStale // and the next try decides on what was loaded
	case errors.Is(failed, memory.ErrUnchanged):
		return err
	default:
		return failed
	}
}

// run runs a decision. A panic in it becomes its error.
func run(decide memory.Decision, view *agentView) (c memory.Change, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Wrap(fault.Internal, fmt.Errorf("panic in a decision: %v\n%s", p, debug.Stack()), "the store failed")
		}
	}()
	return decide(view)
}

// encode checks w.Change and sets what w holds encoded. old and new are the agent before and after
// the change; old is nil for a new agent, new is nil if the agent itself does not change.
func encode(w *memory.Write, old, new *memory.Agent) error {
	c := &w.Change
	if new != nil && (new.Project != w.Project || new.ID != w.ID) {
		return fault.New(fault.Internal, "a decision changed the agent's id or project")
	}
	for i := range c.Append {
		m := &c.Append[i]
		if m.Seq < 1 {
			return fault.New(fault.Internal, "a decision appended a message without seq")
		}
		for j := range c.Append[:i] {
			if c.Append[j].Seq == m.Seq {
				return fault.New(fault.Conflict, "there is a message with seq %d already", m.Seq)
			}
			if m.ID != "" && c.Append[j].ID == m.ID {
				return fault.New(fault.Conflict, "there is a message with the id %q already", m.ID)
			}
		}
	}
	if n := len(c.Append) + len(c.Replace); n > 0 {
		w.Bodies = make([]string, 0, n)
	}
	for _, list := range [][]memory.Message{c.Append, c.Replace} {
		for i := range list {
			body, err := codec.EncodeMessage(&list[i])
			if err != nil {
				return fault.Wrap(fault.Internal, err, "the store failed")
			}
			w.Bodies = append(w.Bodies, body)
		}
	}
	if new == nil {
		return nil
	}
	if old != nil && reflect.DeepEqual(old.Settings, new.Settings) && bytes.Equal(old.Properties, new.Properties) {
		return nil
	}
	private, err := codec.EncodeAgent(new)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the store failed")
	}
	w.Private = private
	return nil
}

// tally returns the agent's tally after a change, nil if it stays. view is nil for a new agent.
func tally(view *agentView, h *memory.Head, c memory.Change) (*memory.Tally, error) {
	if len(c.Append)+len(c.Replace) == 0 {
		return nil, nil
	}
	after, own := h.Tally.Clone(), h.Agent.Settings.Memory.OwnSince()
	now := make(map[int64]*memory.Message, len(c.Replace)) // what the change has made of a message so far
	for i := range c.Append {
		if m := &c.Append[i]; m.Seq > own {
			after.Add(m, 1)
			if len(c.Replace) > 0 {
				now[m.Seq] = m
			}
		}
	}
	for i := range c.Replace {
		m := &c.Replace[i]
		if m.Seq <= own {
			continue
		}
		was := now[m.Seq]
		if was == nil {
			old, err := view.Seq(m.Seq)
			if fault.Is(err, fault.NotFound) {
				continue // the store refuses the change
			}
			if err != nil {
				return nil, err
			}
			was = &old
		}
		after.Add(was, -1)
		after.Add(m, 1)
		now[m.Seq] = m
	}
	if h.Tally == nil && reflect.DeepEqual(after, &memory.Tally{}) {
		return nil, nil
	}
	return after, nil
}

// agentView is an agent as a decision sees it. It reads through to the store where the snapshot
// does not hold enough.
type agentView struct {
	e   *Engine
	ctx context.Context
	a   *agent
	s   *snapshot
	err error // the first failed read, which is the end of the decision whatever it returns
}

// Head implements memory.AgentView.
func (v *agentView) Head() memory.Head { return v.s.head }

// settle waits until the store holds what the snapshot shows, so that it can be asked for more.
func (v *agentView) settle() error {
	if v.err != nil {
		return v.err
	}
	last := v.a.queued()
	if last == nil {
		return nil
	}
	<-last.done
	if last.err != nil {
		v.err = memory.ErrStale
	}
	return v.err
}

// Last implements memory.AgentView.
func (v *agentView) Last(n int) ([]memory.Message, error) {
	if list, ok := v.s.newest(n, false); ok {
		return list, nil
	}
	if err := v.settle(); err != nil {
		return nil, err
	}
	s, err := v.e.load(v.ctx, v.a.ref, max(n, minTail), memory.Version{})
	if err == nil && s.version() != v.s.version() {
		err = memory.ErrStale
	}
	if err != nil {
		v.err = err
		return nil, err
	}
	v.s = s // with a longer tail
	list, _ := s.newest(n, false)
	return list, nil
}

// page reads messages from the store, as of the snapshot.
func (v *agentView) page(q memory.MessageQuery) ([]memory.Message, error) {
	if err := v.settle(); err != nil {
		return nil, err
	}
	q.Agent = v.s.head.Agent
	list, err := v.e.store.Page(v.ctx, v.s.no, q)
	if slices.ContainsFunc(list, func(m memory.Message) bool { return m.Rev > v.s.head.Rev }) {
		v.e.forget(v.a.ref)
		err = memory.ErrStale
	}
	if err != nil {
		v.err = err
	}
	return list, err
}

// ByIDs implements memory.AgentView.
func (v *agentView) ByIDs(ids []string) (map[string]memory.Message, error) {
	out, want := map[string]memory.Message{}, map[string]bool{}
	for _, id := range ids {
		if id != "" {
			want[id] = true
		}
	}
	for i := range v.s.tail {
		if m := &v.s.tail[i]; want[m.ID] {
			out[m.ID] = *m
			delete(want, m.ID)
		}
	}
	if v.s.full || len(want) == 0 {
		return out, nil
	}
	q := memory.MessageQuery{Limit: len(want)}
	for id := range want {
		q.IDs = append(q.IDs, id)
	}
	found, err := v.page(q)
	for _, m := range found {
		out[m.ID] = m
	}
	return out, err
}

// Turn implements memory.AgentView.
func (v *agentView) Turn(turnID int64) ([]memory.Message, error) {
	if turnID > v.s.head.LastTurn {
		return nil, nil
	}
	if !v.s.full { // a turn's messages may be anywhere
		return v.page(memory.MessageQuery{Turn: &turnID, Limit: 1 << 20})
	}
	var out []memory.Message
	for i := range v.s.tail {
		if v.s.tail[i].TurnID == turnID {
			out = append(out, v.s.tail[i])
		}
	}
	return out, nil
}

// Seq implements memory.AgentView.
func (v *agentView) Seq(seq int64) (memory.Message, error) {
	i, ok := v.s.find(seq)
	if ok {
		return v.s.tail[i], nil
	}
	if !v.s.full && i == 0 && seq > 0 && seq <= v.s.head.Last.Seq {
		list, err := v.page(memory.MessageQuery{AfterSeq: seq - 1, Limit: 1})
		if err != nil {
			return memory.Message{}, err
		}
		if len(list) == 1 && list[0].Seq == seq {
			return list[0], nil
		}
	}
	return memory.Message{}, fault.New(fault.NotFound, "there is no message with seq %d", seq)
}
