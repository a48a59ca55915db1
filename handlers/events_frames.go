package handlers

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// The kinds of events of a live tail, as bits. tailNames names them in the same order.
const (
	tailMessage = 1 << iota
	tailAgent
	tailInterrupted
	tailEvidence
	tailTurn
	tailSpeak
	tailSummary
	tailMemory
	tailState
	tailAll = 1<<iota - 1
)

var tailNames = []string{"message", "agent", "interrupted", "evidence", "turn", "speak", "summary", "memory", "state"}

// tailTypes reads the filter: names with commas between them, or several parameters; none is all.
func tailTypes(lists []string) (int, error) {
	kinds := 0
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.TrimSpace(name); name == "" {
				continue
			}
			i := slices.Index(tailNames, name)
			if i < 0 {
				return 0, fault.At(fault.Invalid, "types", "%q is no event of this stream; there are %s", clip(name, 40), strings.Join(tailNames, ", "))
			}
			kinds |= 1 << i
		}
	}
	if kinds == 0 {
		kinds = tailAll
	}
	return kinds, nil
}

// place is where an event stands in an agent's tail: events of one revision are in order of their messages, and those of the agent itself come last. A
// reader's place is that of the last event it has; whole ones are behind everything of their revision.
type place struct {
	rev, seq int64
	order    int
}

const agentSeq = math.MaxInt64

// whole gives the place behind all of a revision.
func whole(rev int64) place { return place{rev, agentSeq, math.MaxInt} }

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.rev, o.rev), cmp.Compare(p.seq, o.seq), cmp.Compare(p.order, o.order))
}

// since gives the last revision of which a reader at p has everything.
func (p place) since() int64 {
	if p.order == math.MaxInt {
		return p.rev
	}
	return p.rev - 1
}

// appendID writes an event's id: the revision, and within one the place too.
func (p place) appendID(b []byte) []byte {
	b = strconv.AppendInt(b, p.rev, 10)
	if p.order == math.MaxInt {
		return b
	}
	seq := p.seq
	if seq == agentSeq {
		seq = 0
	}
	return strconv.AppendInt(append(strconv.AppendInt(append(b, '.'), seq, 10), '.'), int64(p.order), 10)
}

// readPlace reads an id.
func readPlace(id string) (place, error) {
	var n [3]int64
	parts := strings.Split(id, ".")
	ok := len(parts) == 1 || len(parts) == 3
	for i := 0; ok && i < len(parts); i++ {
		v, err := strconv.ParseUint(parts[i], 10, 63)
		n[i], ok = int64(v), err == nil && parts[i][0] != '+' //nolint:gosec // 63 bits
	}
	if !ok || n[2] > 99 || len(parts) == 3 && n[0] == 0 {
		return place{}, fault.At(fault.Invalid, "Last-Event-ID", "%q is not an id of this stream", clip(id, 40))
	}
	if len(parts) == 1 {
		return whole(n[0]), nil
	}
	return place{n[0], cmp.Or(n[1], agentSeq), int(n[2])}, nil
}

// frame is one event as it goes over the wire, for whoever reads it.
type frame struct {
	at    place
	kind  int
	bytes []byte
}

// framer collects the events of changes that lie behind from and not behind the revision upTo. What it tells of a message is a function of the message as it is
// stored, so that every server tells the same.
type framer struct {
	from   place
	upTo   int64
	kinds  int   // which are wanted
	live   bool  // the agent runs: answers may be provisional
	base   int64 // where its memory begins
	frames []frame
	bytes  int
	// limit, if not 0, is how many bytes are kept: beyond it the frames furthest behind are let go, and all that is behind until.
	limit int
	until place
	cut   bool
}

// put adds an event of which data gives the JSON.
func (f *framer) put(at place, kind int, data func(b []byte) ([]byte, error)) error {
	if kind&f.kinds == 0 || at.rev > f.upTo || at.compare(f.from) <= 0 || f.cut && at.compare(f.until) >= 0 {
		return nil
	}
	b, err := data(make([]byte, 0, 256))
	if err != nil {
		return err
	}
	f.frames = append(f.frames, frame{at: at, kind: kind, bytes: b})
	if f.bytes += len(b) + 128; f.limit > 0 && f.bytes > 2*f.limit {
		f.shed()
	}
	return nil
}

// shed lets the frames go that are too many.
func (f *framer) shed() {
	f.sort()
	kept := 0
	for i := range f.frames {
		kept += len(f.frames[i].bytes) + 128
		if kept > f.limit && i > 0 {
			f.cut, f.until = true, f.frames[i].at
			clear(f.frames[i:])
			f.frames = f.frames[:i]
			break
		}
	}
	f.bytes = min(kept, f.limit)
}

// passedBy tells whether nothing behind the messages, of which more follow in order of Seq, can be kept any more. A user's message is stored when it gets its Seq, other
// than an answer whose place is kept free: so whatever stands behind it was stored with it or later.
func (f *framer) passedBy(msgs []memory.Message) bool {
	return f.cut && slices.ContainsFunc(msgs, func(m memory.Message) bool { return m.Role == memory.User && m.BornRev() > f.until.rev })
}

func (f *framer) sort() {
	slices.SortFunc(f.frames, func(a, b frame) int { return a.at.compare(b.at) })
}

// done gives the events in order, each with its id, and the place of a reader who has them all.
func (f *framer) done() ([]frame, place) {
	if f.limit > 0 && f.bytes > f.limit {
		f.shed()
	}
	f.sort()
	for i := range f.frames {
		fr := &f.frames[i]
		last := i+1 == len(f.frames) && !f.cut || i+1 < len(f.frames) && f.frames[i+1].at.rev != fr.at.rev
		if last {
			fr.at = whole(fr.at.rev)
		}
		fr.bytes = sse(tailNames[bit(fr.kind)], &fr.at, fr.bytes)
	}
	if f.cut {
		return f.frames, f.frames[len(f.frames)-1].at
	}
	return f.frames, whole(f.upTo)
}

func bit(kind int) (n int) {
	for ; kind > 1; kind >>= 1 {
		n++
	}
	return n
}

// sse gives an event's bytes; without a place it carries no id.
func sse(name string, at *place, data []byte) []byte {
	if bytes.ContainsAny(data, "\r\n") { // between tokens, as a client wrote them: a line's end would end the data
		var flat bytes.Buffer
		if json.Compact(&flat, data) == nil {
			data = flat.Bytes()
		}
	}
	b := make([]byte, 0, len(name)+len(data)+64)
	b = append(append(append(b, "event: "...), name...), '\n')
	if at != nil {
		b = append(at.appendID(append(b, "id: "...)), '\n')
	}
	return append(append(append(b, "data: "...), data...), "\n\n"...)
}

// message adds what a message's present value has to tell.
func (f *framer) message(m *memory.Message) error {
	var errs error
	put := func(rev int64, order, kind int, v any) {
		if rev > 0 && errs == nil {
			errs = f.put(place{rev, m.Seq, order}, kind, func(b []byte) ([]byte, error) { return appendJSON(b, v) })
		}
	}
	ref := messageRef{Seq: m.Seq, ID: m.ID, TurnID: m.TurnID}
	if m.Opens {
		put(m.BornRev(), 0, tailTurn, turnEvent{messageRef: ref, Phase: "opened"})
	}
	put(m.MovedRev(), 1, tailTurn, turnEvent{messageRef: ref, Phase: "renumbered"})
	if errs == nil {
		errs = f.put(place{m.Rev, m.Seq, 2}, tailMessage, func(b []byte) ([]byte, error) { return appendLedgerEntry(b, m, f.live, f.base) })
	}
	if m.Said() {
		put(m.BornRev(), 3, tailSpeak, speakEvent{messageRef: ref, Kind: saidAs(m.Source), Text: m.Original()})
	}
	if words := m.Filler(); words != "" {
		put(m.BornRev(), 4, tailSpeak, speakEvent{messageRef: ref, Kind: "filler", Text: words})
	}
	if m.Role == memory.Assistant {
		put(m.CutRev(), 5, tailInterrupted, interruptedEvent{messageRef: ref, CausedBy: m.InterruptBy, TS: m.InterruptMS, Heard: m.Content})
		put(m.HeardRev(), 6, tailEvidence, evidenceEvent{
			messageRef: ref, Method: string(m.Method), State: entryState(m), Heard: m.Content, At: m.EvidenceMS, Confidence: m.Confidence,
		})
		if m.Closes() {
			put(m.BornRev(), 7, tailTurn, turnEvent{messageRef: ref, Phase: "closed", Failed: m.Failure != nil})
		}
	}
	put(m.BornRev(), 8, tailMemory, memoryEvent{Action: memory.ActionAdded, Seq: m.Seq, ID: m.ID})
	switch m.State {
	case memory.Dropped:
		put(m.StateRev(), 9, tailMemory, memoryEvent{Action: memory.ActionTrimmed, Seq: m.Seq, ID: m.ID})
	case memory.Removed:
		put(m.StateRev(), 9, tailMemory, memoryEvent{Action: memory.ActionCleared, Seq: m.Seq, ID: m.ID})
	}
	return errs
}

// agent adds what the agent's present value has to tell.
func (f *framer) agent(a *memory.Agent) error {
	put := func(rev int64, order, kind int, v any) error {
		if rev == 0 {
			return nil
		}
		return f.put(place{rev, agentSeq, order}, kind, func(b []byte) ([]byte, error) { return appendJSON(b, v) })
	}
	mem := &a.Settings.Memory
	for i, act := range mem.Acts {
		if i+1 < len(mem.Acts) && mem.Acts[i+1].Rev == act.Rev {
			continue
		}
		if err := put(act.Rev, 1, tailMemory, memoryEvent{Action: act.Action, FromSeq: act.Base}); err != nil {
			return err
		}
	}
	sum := summaryEvent{Set: mem.Summary != "", Summary: mem.Summary, TS: mem.SummaryMS, UpToSeq: mem.SummaryUpTo}
	if err := put(mem.SummaryRev, 2, tailSummary, sum); err != nil {
		return err
	}
	return put(a.Rev, 3, tailAgent, newAgentEvent(*a))
}

// The data of the events. Those of messages say which message they are about.
type messageRef struct {
	Seq    int64  `json:"seq"`
	ID     string `json:"id,omitempty"`
	TurnID int64  `json:"turn_id"`
}

type turnEvent struct {
	Phase string `json:"phase"` // opened, closed, renumbered
	messageRef
	Failed bool `json:"failed,omitempty"`
}

type speakEvent struct {
	Kind string `json:"kind"` // greeting, silence, speak, filler
	messageRef
	Text string `json:"text"`
}

type interruptedEvent struct {
	messageRef
	CausedBy string `json:"caused_by,omitempty"`
	TS       int64  `json:"interrupt_timestamp"`
	Heard    string `json:"heard"`
}

type evidenceEvent struct {
	messageRef
	Method     string `json:"method"`
	State      string `json:"state"`
	Heard      string `json:"heard"`
	At         int64  `json:"at,omitempty"`
	Confidence int64  `json:"confidence,omitempty"`
}

type summaryEvent struct {
	Set     bool   `json:"set"`
	Summary string `json:"summary,omitempty"`
	TS      int64  `json:"timestamp,omitempty"`
	UpToSeq int64  `json:"up_to_seq,omitempty"`
}

type memoryEvent struct {
	Action  string `json:"action"`
	Seq     int64  `json:"seq,omitempty"`
	ID      string `json:"id,omitempty"`
	FromSeq int64  `json:"from_seq,omitempty"`
	Count   *int   `json:"count,omitempty"`
}

type stateEvent struct {
	State  string `json:"state"` // listening, thinking, speaking
	TurnID *int64 `json:"turn_id,omitempty"`
}

type droppedEvent struct {
	Reason string `json:"reason"`
}

type agentEvent struct {
	AgentID string `json:"agent_id"`
	Status  string `json:"status"`
	Message string `json:"message"`
	StartTS int64  `json:"start_ts"`
	StopTS  int64  `json:"stop_ts"`
}

func newAgentEvent(a memory.Agent) agentEvent {
	return agentEvent{AgentID: a.ID, Status: a.Status.String(), Message: a.Message, StartTS: a.StartTS(), StopTS: a.StopTS()}
}

// saidAs names what the agent said by itself.
func saidAs(s memory.Source) string {
	if s == memory.SourceCommand {
		return "speak"
	}
	return string(s)
}

// entryState names a message's state as the ledger does.
func entryState(m *memory.Message) string {
	if m.State == memory.Final {
		return "final"
	}
	return string(m.State)
}

func appendJSON(b []byte, v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	return append(b, raw...), err
}
