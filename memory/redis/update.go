package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// maxTries is how often a change is decided that other servers keep overtaking. Each try waits a little longer, and in each somebody's write has succeeded.
const maxTries = 60

// Update runs a decision and writes what it says. In this process the decisions of an agent run one after the other; another server may write between a decision and its
// commit, and the decision runs again then. A caller whose context ends before its turn is not served; one whose turn has come waits for the outcome, so that
// the decision never runs behind its caller's back.
func (s *Store) Update(ctx context.Context, project, id string, decide memory.Decision) error {
	k := key{project, id}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if err := s.turn(ctx, k); err != nil {
		return err
	}
	defer s.locks.give(k)
	if ctx.Err() != nil {
		return ended(ctx)
	}
	var refused error
	err := s.call(context.WithoutCancel(ctx), "write", func(ctx context.Context) (err error) {
		refused, err = s.update(ctx, k, decide)
		return err
	})
	if err == nil {
		err = refused
	}
	return err
}

// turn waits for the agent's lock, no longer than a call may take.
func (s *Store) turn(ctx context.Context, k key) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, fault.New(fault.Unavailable, "the writes before this one did not come to an end in time"))
	defer cancel()
	return s.locks.take(ctx, k)
}

// outcome is what a script found instead of what was expected.
type outcome string

func (o outcome) Error() string { return string(o) }

const (
	errStale  outcome = "the agent is not what the decision saw"
	errAbsent outcome = "the agent is gone"
	errTaken  outcome = "there is an agent of that id"
	errVoid   outcome = "the claim was given up before its agent was made"
)

// update gives the decision's own error apart, since it reaches the caller as it is.
func (s *Store) update(ctx context.Context, k key, decide memory.Decision) (refused, err error) {
	v := s.cache.get(k)
	for try := range maxTries {
		sure := v == nil // that v holds now
		if sure {
			if v, err = s.load(ctx, k); err != nil {
				return nil, err
			}
		}
		t := &tx{ctx: ctx, s: s, k: k, view: v}
		c, refused := run(decide, t)
		if t.err != nil {
			return nil, t.err
		}
		if refused == nil && !c.Empty() {
			if err = check(k, c); err == nil {
				err = s.commit(ctx, k, v, c)
			}
			if !errors.Is(err, errStale) && !errors.Is(err, errAbsent) {
				return nil, err
			}
		} else {
			if sure && !t.asked {
				return refused, nil
			}
			now, err := s.stamp(ctx, k)
			if err != nil || now == v.stamp() {
				return refused, err
			}
		}
		s.cache.Drop(k)
		v = nil
		if try > 2 {
			pause(ctx, try)
		}
	}
	return nil, fault.New(fault.Unavailable, "other servers write to agent %s all the time", k.id)
}

// pause waits a little, differently each time.
func pause(ctx context.Context, try int) {
	t := time.NewTimer(time.Duration(rand.Int64N(int64(min(try+1, 20)) * int64(time.Millisecond))))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// run turns a panic of the decision into its caller's error.
func run(decide memory.Decision, t *tx) (c memory.Change, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Wrap(fault.Internal, fmt.Errorf("panic in a decision: %v\n%s", p, debug.Stack()), "the store failed")
		}
	}()
	return decide(t)
}

// check refuses a change that is wrong in itself.
func check(k key, c memory.Change) error {
	if len(c.Events) > 0 {
		return fault.New(fault.Unsupported, "a Redis store keeps no events: webhooks want another store")
	}
	if c.Agent != nil && (c.Agent.ID != k.id || c.Agent.Project != k.project) {
		return fault.New(fault.Internal, "a decision changed the agent's id or project")
	}
	seqs, ids := map[int64]bool{}, map[string]bool{}
	for i := range c.Append {
		m := &c.Append[i]
		switch {
		case m.Seq < 1:
			return fault.New(fault.Internal, "a decision appended a message without seq")
		case seqs[m.Seq]:
			return seqTaken(m.Seq)
		case m.ID != "" && ids[m.ID]:
			return idTaken(m.ID)
		}
		seqs[m.Seq], ids[m.ID] = true, true
	}
	return nil
}

func seqTaken(seq int64) error {
	return fault.New(fault.Conflict, "there is a message with seq %d already", seq)
}

func idTaken(id string) error {
	return fault.New(fault.Conflict, "there is a message with the id %q already", id)
}

// commit writes a change if the agent still is what the view shows. It fails with errStale or errAbsent where it is not.
func (s *Store) commit(ctx context.Context, k key, v *view, c memory.Change) error {
	next := v.apply(c)
	args, err := s.commitArgs(v.stamp(), next, c)
	if err != nil {
		return err
	}
	items, err := s.putItems(ctx, k, v, c)
	if err != nil {
		return err
	}
	if c.Agent != nil && c.Agent.Status.Ended() && !v.head.Agent.Status.Ended() {
		s.due(ctx, k)
	}
	began := time.Now()
	answer, err := s.eval(ctx, commitScript, s.agentKeys(k)[:kWork], args...).AsStrSlice()
	err = s.written(answer, err)
	if err == nil || broken(err) {
		s.observe(Commit{time.Since(began), err})
	}
	if err != nil {
		if !broken(err) { // else it may have been written
			_ = s.dropItems(ctx, items.project, items.added)
		}
		s.cache.Drop(k)
		return err
	}
	s.cache.put(k, next)
	s.lasts(ctx, k, answer[len(answer)-1])
	_ = s.dropItems(ctx, items.project, items.gone)
	if c.Agent != nil && differs(&v.head.Agent, c.Agent) {
		s.reindexed(ctx, k, v.claim, c.Agent)
	}
	return nil
}

// lasts gives an agent's keys that commitScript does not see the end that it has given the others: ms, "-1" for none, "0" for the one they have. Where that fails they go with the end that they had, which is never before
// the longest life of an agent.
func (s *Store) lasts(ctx context.Context, k key, after string) {
	var cmds rueidis.Commands
	for i := kWork; i < kVoid && after != "0"; i++ {
		at := s.agentKey(k, i)
		if ms, err := strconv.ParseInt(after, 10, 64); err == nil && ms > 0 {
			cmds = append(cmds, s.client.B().Pexpire().Key(at).Milliseconds(ms).Build())
		} else if err == nil {
			cmds = append(cmds, s.client.B().Persist().Key(at).Build())
		}
	}
	if len(cmds) > 0 {
		s.client.DoMulti(ctx, cmds...)
	}
}

// written reads the answer of a script that writes messages.
func (s *Store) written(answer []string, err error) error {
	if err != nil {
		return err
	}
	if len(answer) == 0 {
		return errBadRow
	}
	switch answer[0] {
	case "ok":
		return nil
	case "stale":
		return errStale
	case "gone":
		return errAbsent
	case "taken":
		return errTaken
	case "void":
		return errVoid
	case "seq":
		return fault.New(fault.Conflict, "there is a message with seq %s already", answer[1])
	case "id":
		return idTaken(answer[1])
	case "absent":
		return fault.New(fault.Internal, "a decision replaced message %s, which is not there under its id", answer[1])
	}
	return errBadRow
}

// commitArgs gives the arguments of commitScript and createScript.
func (s *Store) commitArgs(was string, next *view, c memory.Change) ([]string, error) {
	h := &next.head
	agent := ""
	if c.Agent != nil {
		var err error
		if agent, err = s.encodeAgent(&h.Agent); err != nil {
			return nil, fault.Wrap(fault.Internal, err, "the store failed")
		}
	}
	ttl, life := s.ttl, s.life
	if h.Agent.StopMS == math.MaxInt64 { // the one that keeps the items of no agent
		ttl, life = 0, 0
	}
	args := append(make([]string, 0, 13+5*(len(c.Append)+len(c.Replace))),
		was, next.stamp(), itoa(h.Rev), itoa(h.NextSeq), itoa(h.LastTurn), itoa(int64(h.Agent.Status)), agent, itoa(int64(maxTail(&h.Agent))),
		flag(h.Agent.Status.Ended()), itoa(ttl.Milliseconds()), itoa(life.Milliseconds()), itoa(int64(len(c.Append))), itoa(int64(len(c.Replace))))
	for _, list := range [][]memory.Message{c.Append, c.Replace} {
		for i := range list {
			m := &list[i]
			text, err := encodeBody(m)
			if err != nil {
				return nil, fault.Wrap(fault.Internal, err, "the store failed")
			}
			args = append(args, itoa(m.Seq), m.ID, itoa(m.TurnID), itoa(m.Rev), text)
		}
	}
	return args, nil
}

// tx is what a decision reads. It answers from the view wherever that holds enough and asks the server otherwise. What it reads then may be younger than the view: the commit, or a
// look at the stamp where nothing is committed, finds that out.
type tx struct {
	ctx   context.Context
	s     *Store
	k     key
	view  *view
	asked bool
	err   error // of a query: whatever the decision makes of it
}

var _ memory.AgentView = (*tx)(nil)

// Head gives the agent's head.
func (t *tx) Head() memory.Head { return t.view.head }

// fail keeps an error of a query for the caller of Update.
func (t *tx) fail(err error) error {
	if err != nil && t.err == nil {
		t.err = err
	}
	return err
}

// bySeq reads messages; those that are not there are left out.
func (t *tx) bySeq(seqs []string) ([]memory.Message, error) {
	t.asked = true
	list, err := t.s.bodies(t.ctx, t.k, seqs)
	return list, t.fail(err)
}

// Last gives the newest n messages.
func (t *tx) Last(n int) ([]memory.Message, error) {
	if list, ok := t.view.newest(n, false); ok {
		return list, nil
	}
	t.asked = true
	got, err := t.s.readAgent(t.ctx, t.k, n, false)
	return got.list, t.fail(err)
}

// ByIDs gives the messages with these client ids.
func (t *tx) ByIDs(ids []string) (map[string]memory.Message, error) {
	out, want := map[string]memory.Message{}, map[string]bool{}
	for _, id := range ids {
		if id != "" {
			want[id] = true
		}
	}
	for _, m := range t.view.tail {
		if want[m.ID] {
			out[m.ID] = *m
			delete(want, m.ID)
		}
	}
	if t.view.full || len(want) == 0 {
		return out, nil
	}
	t.asked = true
	list := make([]string, 0, len(want))
	for id := range want {
		list = append(list, id)
	}
	c := t.s.client
	found, err := c.Do(t.ctx, c.B().Hmget().Key(t.s.agentKey(t.k, kClient)).Field(list...).Build()).ToArray()
	if err != nil {
		return nil, t.fail(err)
	}
	var seqs []string
	for i := range found {
		if seq, err := found[i].ToString(); err == nil {
			seqs = append(seqs, seq)
		}
	}
	got, err := t.bySeq(seqs)
	for _, m := range got {
		out[m.ID] = m
	}
	return out, err
}

// Turn gives the messages of one turn. Where a turn's number went down anything may stand anywhere, so that only the whole ledger, or a tail that begins before the turn, answers alone.
func (t *tx) Turn(turnID int64) (out []memory.Message, err error) {
	v := t.view
	if turnID > v.head.LastTurn || turnID < 0 {
		return nil, nil
	}
	if v.full || len(v.tail) > 0 && v.tail[0].TurnID < turnID {
		for _, m := range v.tail {
			if m.TurnID == turnID {
				out = append(out, *m)
			}
		}
		return out, nil
	}
	t.asked = true
	c, turn := t.s.client, itoa(turnID)
	seqs, err := c.Do(t.ctx, c.B().Zrangebyscore().Key(t.s.agentKey(t.k, kTurn)).Min(turn).Max(turn).Build()).AsStrSlice()
	if err != nil {
		return nil, t.fail(err)
	}
	out, err = t.bySeq(seqs)
	return slices.DeleteFunc(out, func(m memory.Message) bool { return m.TurnID != turnID }), err // scores above 2^53 run together
}

// Seq gives one message.
func (t *tx) Seq(seq int64) (memory.Message, error) {
	i, ok := t.view.find(seq)
	if ok {
		return *t.view.tail[i], nil
	}
	if !t.view.full && i == 0 && seq > 0 {
		list, err := t.bySeq([]string{itoa(seq)})
		if err != nil {
			return memory.Message{}, err
		}
		if len(list) == 1 {
			return list[0], nil
		}
	}
	return memory.Message{}, fault.New(fault.NotFound, "there is no message with seq %d", seq)
}

// claimOf gives the claim of a stamp.
func claimOf(stamp string) string {
	claim, _, _ := strings.Cut(stamp, ".")
	return claim
}
