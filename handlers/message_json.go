package handlers

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"

	"github.com/heardlog/heardlog/memory"
)

// ledgerBuffers has no state but reusable memory.
var ledgerBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// maxKeptBuffer is how large a buffer may be to be used again.
const maxKeptBuffer = 1 << 20

// writeLedger answers a page of the ledger, and an append: agent_id, messages and, unless the page is the last, next_after_seq.
// It is written by hand, like history, since every append answers with it: encoding/json took a tenth of an append.
// live tells that the call goes on, so that answers may be provisional; base is where the agent's memory begins.
func writeLedger(w http.ResponseWriter, id string, live bool, base int64, msgs []memory.Message, next int64) error {
	return writePage(w, id, live, base, msgs, func(e *entryWriter) {
		if next > 0 {
			e.number("next_after_seq", next)
		}
	})
}

// writeAppended answers an append: the messages as stored, and what the agent's policy merged and dropped on the way. What others said is not provisional.
func writeAppended(w http.ResponseWriter, id string, done memory.Appended) error {
	return writePage(w, id, false, 0, done.Messages, func(e *entryWriter) {
		if len(done.Merged) > 0 {
			type merge struct {
				Seq  int64 `json:"seq"`
				Into int64 `json:"into"`
			}
			list := make([]merge, len(done.Merged))
			for i, m := range done.Merged {
				list[i] = merge(m)
			}
			e.value("merged", list)
		}
		if len(done.Dropped) > 0 {
			e.value("dropped", done.Dropped)
		}
	})
}

func writePage(w http.ResponseWriter, id string, live bool, base int64, msgs []memory.Message, more func(e *entryWriter)) error {
	buf := ledgerBuffers.Get().(*[]byte)
	b := append(memory.AppendString(append((*buf)[:0], `{"agent_id":`...), id), `,"messages":[`...)
	var err error
	for i := range msgs {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendLedgerEntry(b, &msgs[i], live, base); err != nil {
			return err
		}
	}
	e := entryWriter{b: append(b, ']')}
	if more(&e); e.err != nil {
		return e.err
	}
	b = append(e.b, "}\n"...)
	writeJSON(w, http.StatusOK, b)
	if cap(b) <= maxKeptBuffer {
		*buf = b
		ledgerBuffers.Put(buf)
	}
	return nil
}

// appendLedgerEntry appends a message with all that is known of it. state is final, superseded, empty, unplayed or replaced; generated,
// generated_complete, sent, heard and evidence (its method and, where known, the Unix ms that it speaks of) belong to assistant messages. provisional
// stands with an answer of a live agent that nothing but our own socket speaks for, ghost with one that a later answer to the same words replaced;
// in_memory, which is false, with what stands in the ledger alone.
func appendLedgerEntry(b []byte, m *memory.Message, live bool, base int64) ([]byte, error) {
	e := entryWriter{b: append(b, `{"seq":`...)}
	e.b = strconv.AppendInt(e.b, m.Seq, 10)
	e.text("id", m.ID)
	e.always("role", string(m.Role))
	e.always("content", m.Content)
	e.number("turn_id", m.TurnID)
	e.number("timestamp", m.Timestamp)
	state := string(m.State)
	if m.State == memory.Final {
		state = "final"
	}
	e.always("state", state)
	e.b = m.AppendMetadata(append(e.b, `,"metadata":`...))
	e.raw("parts", m.Parts)
	e.raw("tool_calls", m.ToolCalls)
	e.text("tool_call_id", m.ToolCallID)
	e.text("name", m.ToolName)
	if m.Role == memory.Assistant {
		e.always("generated", m.Original())
		e.b = strconv.AppendBool(append(e.b, `,"generated_complete":`...), !m.CutGenerated)
		e.always("sent", m.SentText())
		e.always("heard", m.Content)
		if m.Method != "" {
			e.b = memory.AppendString(append(e.b, `,"evidence":{"method":`...), string(m.Method))
			if m.EvidenceMS != 0 {
				e.number("at", m.EvidenceMS)
			}
			if m.Confidence != 0 {
				e.number("confidence", m.Confidence)
			}
			e.b = append(e.b, '}')
		}
		e.flag("provisional", live && m.Provisional())
		e.flag("ghost", m.State == memory.Superseded)
	}
	e.text("finish_reason", m.FinishRsn)
	e.raw("usage", m.Usage)
	e.text("upstream", m.Upstream())
	e.text("filler", m.Filler())
	e.own(m)
	switch {
	case m.Seq < base, m.Status != memory.Accepted, m.State == memory.Dropped, m.State == memory.Merged, m.State == memory.Removed:
		e.b = append(e.b, `,"in_memory":false`...)
	}
	if m.Timings != nil {
		e.value("timings", m.Timings)
	}
	if m.Failure != nil {
		e.value("failure", m.Failure)
	}
	return append(e.b, '}'), e.err
}

// entryWriter writes the members of an object behind its first.
type entryWriter struct {
	b   []byte
	err error
}

// own appends what who wrote the message said of it: status, scope, importance and category.
func (e *entryWriter) own(m *memory.Message) {
	e.text("status", string(m.Status))
	if scope := m.Scope(); scope != (memory.Scope{}) {
		e.value("scope", scope)
	}
	if f := m.Importance(); f != nil {
		e.value("importance", *f)
	}
	e.text("category", m.Category())
}

func (e *entryWriter) key(name string) {
	e.b = append(append(append(e.b, `,"`...), name...), `":`...)
}

func (e *entryWriter) always(name, v string) {
	e.key(name)
	e.b = memory.AppendString(e.b, v)
}

func (e *entryWriter) text(name, v string) {
	if v != "" {
		e.always(name, v)
	}
}

func (e *entryWriter) number(name string, v int64) {
	e.key(name)
	e.b = strconv.AppendInt(e.b, v, 10)
}

func (e *entryWriter) flag(name string, v bool) {
	if v {
		e.key(name)
		e.b = append(e.b, "true"...)
	}
}

func (e *entryWriter) raw(name string, v json.RawMessage) {
	if len(v) > 0 {
		e.key(name)
		e.b = append(e.b, v...)
	}
}

// value writes what is too rare or too various to be written by hand.
func (e *entryWriter) value(name string, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		e.err = err
		return
	}
	e.raw(name, raw)
}
