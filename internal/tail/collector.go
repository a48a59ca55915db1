package tail

import (
	"encoding/json"
	"slices"

	"github.com/heardlog/heardlog/memory"
)

// maxCollected is how many bytes of events are made of the store at a time.
const maxCollected = 1 << 20

// eventOverhead is what an event is counted with beside its data, in bytes.
const eventOverhead = 128

// collector makes the events of changes after the position from, up to the revision upTo. The
// events of a message depend on the message as it is stored and on nothing else, so that every
// server makes the same.
type collector struct {
	encode func(m *memory.Message, live bool, base int64) ([]byte, error)
	from   position
	upTo   int64
	kinds  Kinds
	live   bool  // the agent runs: its last answers may be provisional
	base   int64 // first Seq of its memory
	events []event
	bytes  int
	// limit, if not 0, bounds the bytes that are kept. Beyond it the last events are dropped, and
	// with them everything from the position until on; cut is true then.
	limit int
	until position
	cut   bool
}

func newCollector(encode func(*memory.Message, bool, int64) ([]byte, error), a *memory.Agent, from position, upTo int64, kinds Kinds) *collector {
	return &collector{encode: encode, from: from, upTo: upTo, kinds: kinds, live: !a.Status.Ended(), base: a.Settings.Memory.BaseSeq}
}

// wants reports whether an event belongs to what is collected.
func (c *collector) wants(at position, kind Kinds) bool {
	return kind&c.kinds != 0 && at.rev <= c.upTo && at.compare(c.from) > 0 && !(c.cut && at.compare(c.until) >= 0)
}

// add adds an event with the given JSON.
func (c *collector) add(at position, kind Kinds, data []byte) {
	c.events = append(c.events, event{at: at, kind: kind, bytes: data})
	if c.bytes += len(data) + eventOverhead; c.limit > 0 && c.bytes > 2*c.limit {
		c.shrink()
	}
}

// addValue adds an event whose data is v. An event of revision 0 did not happen.
func (c *collector) addValue(at position, kind Kinds, v any) error {
	if at.rev == 0 || !c.wants(at, kind) {
		return nil
	}
	data, err := json.Marshal(v)
	if err == nil {
		c.add(at, kind, data)
	}
	return err
}

// shrink drops the last events until the rest is within the limit.
func (c *collector) shrink() {
	c.sort()
	kept := 0
	for i := range c.events {
		kept += len(c.events[i].bytes) + eventOverhead
		if kept > c.limit && i > 0 {
			c.cut, c.until = true, c.events[i].at
			clear(c.events[i:])
			c.events = c.events[:i]
			break
		}
	}
	c.bytes = min(kept, c.limit)
}

// full reports whether no message after msgs can add an event that is kept. Messages are read in
// the order of Seq. A user's message is stored when it gets its Seq, unlike an answer whose place
// is reserved first, so that everything after it was stored in the same revision or later.
func (c *collector) full(msgs []memory.Message) bool {
	return c.cut && slices.ContainsFunc(msgs, func(m memory.Message) bool {
		return m.Role == memory.User && m.BornRev() > c.until.rev
	})
}

func (c *collector) sort() {
	slices.SortFunc(c.events, func(a, b event) int { return a.at.compare(b.at) })
}

// finish returns the events in order, ready to be sent, and the position of a reader that has all
// of them.
func (c *collector) finish() ([]event, position) {
	if c.limit > 0 && c.bytes > c.limit {
		c.shrink()
	}
	c.sort()
	for i := range c.events {
		e := &c.events[i]
		last := i+1 == len(c.events) && !c.cut || i+1 < len(c.events) && c.events[i+1].at.rev != e.at.rev
		if last { // of its revision
			e.at = endOf(e.at.rev)
		}
		e.bytes = frame(e.kind.name(), &e.at, e.bytes)
	}
	if c.cut {
		return c.events, c.events[len(c.events)-1].at
	}
	return c.events, endOf(c.upTo)
}

// message adds the events of a message. Their order within a revision is part of their IDs and must
// not change.
func (c *collector) message(m *memory.Message) error {
	var failed error
	add := func(rev int64, order int, kind Kinds, v any) {
		if failed == nil {
			failed = c.addValue(position{rev, m.Seq, order}, kind, v)
		}
	}
	ref := messageRef{Seq: m.Seq, ID: m.ID, TurnID: m.TurnID}
	if m.Opens {
		add(m.BornRev(), 0, kindTurn, turnEvent{messageRef: ref, Phase: "opened"})
	}
	add(m.Marks.Turn, 1, kindTurn, turnEvent{messageRef: ref, Phase: "renumbered"})
	if at := (position{m.Rev, m.Seq, 2}); failed == nil && c.wants(at, kindMessage) {
		data, err := c.encode(m, c.live, c.base)
		if err != nil {
			return err
		}
		c.add(at, kindMessage, data)
	}
	if m.Said() {
		add(m.BornRev(), 3, kindSpeak, speakEvent{messageRef: ref, Kind: speakKind(m.Source), Text: m.Original()})
	}
	if text := m.Made().Filler; text != "" {
		add(m.BornRev(), 4, kindSpeak, speakEvent{messageRef: ref, Kind: "filler", Text: text})
	}
	if m.Role == memory.Assistant {
		add(m.CutRev(), 5, kindInterrupted, interruptedEvent{messageRef: ref, CausedBy: m.InterruptBy, TS: m.InterruptMS, Heard: m.Content})
		add(m.HeardRev(), 6, kindEvidence, evidenceEvent{
			messageRef: ref, Method: string(m.Method), State: stateName(m), Heard: m.Content, At: m.EvidenceMS, Confidence: m.Confidence,
		})
		if m.Closes() {
			add(m.BornRev(), 7, kindTurn, turnEvent{messageRef: ref, Phase: "closed", Failed: m.Failure != nil})
		}
	}
	add(m.BornRev(), 8, kindMemory, memoryEvent{Action: memory.ActionAdded, Seq: m.Seq, ID: m.ID})
	switch m.State {
	case memory.Dropped:
		add(m.StateRev(), 9, kindMemory, memoryEvent{Action: memory.ActionTrimmed, Seq: m.Seq, ID: m.ID})
	case memory.Removed:
		add(m.StateRev(), 9, kindMemory, memoryEvent{Action: memory.ActionCleared, Seq: m.Seq, ID: m.ID})
	}
	return failed
}

// agent adds the events about the agent itself.
func (c *collector) agent(a *memory.Agent) error {
	mem := &a.Settings.Memory
	for i, act := range mem.Acts {
		if i+1 < len(mem.Acts) && mem.Acts[i+1].Rev == act.Rev {
			continue
		}
		if err := c.addValue(position{act.Rev, agentSeq, 1}, kindMemory, memoryEvent{Action: act.Action, FromSeq: act.Base}); err != nil {
			return err
		}
	}
	sum := summaryEvent{Set: mem.Summary != "", Summary: mem.Summary, TS: mem.SummaryMS, UpToSeq: mem.SummaryUpTo}
	if err := c.addValue(position{mem.SummaryRev, agentSeq, 2}, kindSummary, sum); err != nil {
		return err
	}
	return c.addValue(position{a.Rev, agentSeq, 3}, kindAgent, newAgentEvent(a))
}

// speakKind returns the kind of a text that the agent said by itself.
func speakKind(s memory.Source) string {
	if s == memory.SourceCommand {
		return "speak"
	}
	return string(s)
}

// stateName returns a message's state as the ledger names it.
func stateName(m *memory.Message) string {
	if m.State == memory.Final {
		return "final"
	}
	return string(m.State)
}
