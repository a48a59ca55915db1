package export

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/webhook"
)

// Finding is one fault in a store.
type Finding struct {
	Project string `json:"project,omitempty"`
	Agent   string `json:"agent,omitempty"`
	What    string `json:"what"`
}

// Prober is a store that can check its tables beyond what the records show.
type Prober interface {
	// Probe calls each for every fault: rows that belong to nothing, wrong counts, a damaged file.
	Probe(ctx context.Context, each func(Finding) error) error
}

// Verify reads a scope and calls each for every fault in it, agent by agent. It changes nothing. It
// fails if the store cannot be read at all.
func Verify(ctx context.Context, from Source, s Scope, each func(Finding) error) (Counts, error) {
	var n Counts
	var failed error
	v := &verifier{ids: map[string]bool{}, seqs: map[int64]bool{}, opened: map[int64]int64{}, endpoints: map[string]bool{}, seed: maphash.MakeSeed(), items: map[uint64]uint64{}, each: func(f Finding) {
		if failed == nil {
			failed = each(f)
		}
	}}
	s.Bad = func(where string, err error) { v.each(Finding{What: where + " cannot be read: " + err.Error()}) }
	err := from.Export(ctx, s, func(r Record) error {
		n.Add(r)
		v.record(r)
		if failed != nil {
			return failed
		}
		return ctx.Err()
	})
	if err != nil {
		return n, err
	}
	v.agentDone()
	v.done()
	if p, ok := from.(Prober); ok && failed == nil && s.Project == "" {
		err = p.Probe(ctx, each)
	}
	if failed != nil {
		err = failed
	}
	return n, err
}

// verifier checks one record after the other. It keeps the Seqs and IDs of one agent at a time.
type verifier struct {
	each      func(Finding)
	agent     *Agent
	last      memory.Message
	reserved  int64 // the highest number kept free for an answer so far
	turn      int64
	tally     memory.Tally // of its messages so far
	ids       map[string]bool
	seqs      map[int64]bool
	opened    map[int64]int64 // by turn: the message that opened it
	endpoints map[string]bool
	// items holds, by the hash of an agent's name, a sum over the agent's messages that must be
	// found as items, minus the same sum over the rows that find them: zero if they agree. An agent
	// is kept from its messages until its items come.
	items map[uint64]uint64
	seed  maphash.Seed
}

func (v *verifier) say(format string, args ...any) {
	v.each(Finding{v.agent.Project, v.agent.ID, fmt.Sprintf(format, args...)})
}

func (v *verifier) record(r Record) {
	switch {
	case r.Agent != nil:
		v.agentDone()
		v.begin(r.Agent)
	case r.Message != nil && v.agent != nil:
		v.message(r.Message)
	case r.Item != nil:
		v.item(r.Item.Project, r.Item.AgentID, r.Item.Seq, -1)
	case r.Working != nil:
		if w := r.Working; w.Noted != 0 && w.Noted != w.Size() {
			v.each(Finding{w.Project, w.AgentID, fmt.Sprintf("key %s: its size is noted as %d and is %d", w.Key, w.Noted, w.Size())})
		}
	case r.Value != nil:
		if w := r.Value; w.Noted != 0 && w.Noted != w.Size() {
			v.each(Finding{Project: w.Project, What: fmt.Sprintf("record %s of %s: its size is noted as %d and is %d", w.ID, w.Name, w.Noted, w.Size())})
		}
	case r.Endpoint != nil:
		v.endpoints[r.Endpoint.ID] = true
	case r.Delivery != nil:
		v.delivery(r.Delivery)
	}
}

func (v *verifier) begin(a *Agent) {
	v.agent, v.last, v.reserved, v.turn, v.tally = a, memory.Message{}, 0, -1, memory.Tally{}
	clear(v.ids)
	clear(v.seqs)
	clear(v.opened)
	if a.Status < 0 || int(a.Status) >= memory.Statuses {
		v.say("the status %d is unknown", int(a.Status))
	} else if a.Status.Ended() != (a.StopMS != 0) {
		v.say("its status is %s, and its end is at %d ms", a.Status, a.StopMS)
	}
	if a.Rev > a.HeadRev {
		v.say("its revision %d is above its head's, %d", a.Rev, a.HeadRev)
	}
	m := &a.Settings.Memory
	if m.BaseSeq > a.NextSeq || m.SummaryUpTo >= a.NextSeq && m.SummaryUpTo > 0 {
		v.say("its memory begins at message %d and its summary covers messages up to %d, but the next message is %d", m.BaseSeq, m.SummaryUpTo, a.NextSeq)
	}
}

func (v *verifier) message(m *Message) {
	a := v.agent
	if m.Seq > a.Settings.Memory.OwnSince() {
		v.tally.Add(&m.Message, 1)
	}
	switch {
	case m.Seq < 1:
		v.say("message %d: its number is below 1", m.Seq)
	case v.seqs[m.Seq]:
		v.say("message %d is there twice", m.Seq)
	case m.Unlike:
		v.say("message %d: whether history shows it is noted wrongly", m.Seq)
	case m.Seq >= a.NextSeq:
		v.say("message %d: its number is not below that of the next message, %d, which would be given again", m.Seq, a.NextSeq)
	}
	// A number may be missing only if it was kept free: for an answer, or before one for words that
	// introduce it. A later call for the same question keeps other numbers than the first.
	if free := max(v.last.Seq, v.reserved); m.Seq > free+1 && m.Seq <= a.NextSeq {
		v.say("messages %d to %d are missing", free+1, m.Seq-1)
	}
	if other, ok := v.opened[m.TurnID]; m.Opens && ok {
		v.say("message %d: it opens turn %d, which message %d has opened already", m.Seq, m.TurnID, other)
	} else if m.Opens {
		v.opened[m.TurnID] = m.Seq
	}
	if _, ok := memories.RowOf(&m.Message, a.Project, a.ID); ok {
		v.item(a.Project, a.ID, m.Seq, +1)
	}
	if m.AnswerSeq != 0 && (m.AnswerSeq <= m.Seq || m.AnswerSeq >= a.NextSeq) {
		v.say("message %d: the number kept free for its answer, %d, is not between it and the next message, %d", m.Seq, m.AnswerSeq, a.NextSeq)
	}
	if m.Rev < 1 || m.Rev > a.HeadRev {
		v.say("message %d: its revision %d is not from 1 to the agent's, %d", m.Seq, m.Rev, a.HeadRev)
	}
	if m.TurnID < 0 || m.TurnID > a.LastTurn {
		v.say("message %d: its turn %d is not from 0 to the agent's last, %d", m.Seq, m.TurnID, a.LastTurn)
	}
	if m.ID != "" && v.ids[m.ID] {
		v.say("message %d: another one has its id %q", m.Seq, m.ID)
	}
	switch m.Role {
	case memory.User, memory.Assistant, memory.Tool, memory.System, memory.Developer:
	default:
		v.say("message %d: %q is not a role", m.Seq, string(m.Role))
	}
	switch m.State {
	case memory.Final, memory.Superseded, memory.Empty, memory.Unplayed, memory.Replaced, memory.Dropped, memory.Merged, memory.Removed:
	default:
		v.say("message %d: %q is not a state", m.Seq, string(m.State))
	}
	for _, mark := range []int64{m.Marks.Born, m.Marks.Cut, m.Marks.Heard, m.Marks.Turn, m.Marks.State} {
		if mark < 0 || mark > m.Rev {
			v.say("message %d: a mark, %d, is above its revision, %d", m.Seq, mark, m.Rev)
			break
		}
	}
	v.seqs[m.Seq], v.last, v.reserved = true, m.Message, max(v.reserved, m.AnswerSeq)
	if m.ID != "" {
		v.ids[m.ID] = true
	}
}

// item counts a message that must be found as an item (by = 1), or a row that finds one (by = -1).
func (v *verifier) item(project, agent string, seq int64, by int) {
	k := maphash.String(v.seed, project+"\x00"+agent)
	n := maphash.Comparable(v.seed, seq)
	if by < 0 {
		n = -n
	}
	if v.items[k] += n; v.items[k] == 0 {
		delete(v.items, k)
	}
}

// done reports faults that only the whole scope shows.
func (v *verifier) done() {
	if n := len(v.items); n > 0 {
		v.each(Finding{What: fmt.Sprintf("of %d agents other messages are found as items than those that are to be", n)})
	}
}

// agentDone reports faults that only the whole agent shows.
func (v *verifier) agentDone() {
	if v.agent == nil {
		return
	}
	if t := v.agent.Tally.Clone(); !t.Same(&v.tally) {
		v.say("its tally is noted as %+v and is %+v", *t, v.tally)
	}
	if v.last.Seq > 0 && v.last.AnswerSeq != 0 && v.seqs[v.last.AnswerSeq] {
		v.say("message %d keeps a number free that is taken", v.last.Seq)
	}
	if free := max(v.last.Seq, v.reserved); free+1 < v.agent.NextSeq && v.agent.NextSeq < math.MaxInt64 {
		v.say("messages %d to %d are missing", free+1, v.agent.NextSeq-1)
	}
	v.agent = nil
}

func (v *verifier) delivery(d *Delivery) {
	say := func(format string, args ...any) {
		v.each(Finding{Project: d.Project, What: fmt.Sprintf("delivery %d: ", d.ID) + fmt.Sprintf(format, args...)})
	}
	if !d.Gone && !v.endpoints[d.Endpoint] {
		say("there is no endpoint %q", d.Endpoint)
	}
	if d.Gone && d.State == webhook.Pending {
		say("is pending for an endpoint that was deleted; the next start of a server gives it up")
	}
	if (d.State == webhook.Pending) != (d.DoneMS == 0) {
		say("is %s, and ended at %d ms", d.State, d.DoneMS)
	}
	if len(d.Attempts) > 0 && d.Attempts[len(d.Attempts)-1].N > d.Attempt {
		say("has an attempt %d and counts %d", d.Attempts[len(d.Attempts)-1].N, d.Attempt)
	}
}
