package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/heardlog/heardlog/memory"
)

// body is the column message.body: a message in encoding/json's form without what has its own column. Raw JSON stands in it as text, since
// encoding/json would change its white space and escapes, and what a client gave has to come back byte for byte.
type body struct {
	memory.Message
	// These hide the message's own fields of the same names.
	Seq       *int64            `json:"seq,omitempty"`
	Rev       *int64            `json:"rev,omitempty"`
	ID        *string           `json:"id,omitempty"`
	TurnID    *int64            `json:"turn_id,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	ToolCalls string            `json:"tool_calls,omitempty"`
	Parts     string            `json:"parts,omitempty"`
	Usage     string            `json:"usage,omitempty"`
	Extra     string            `json:"item_extra,omitempty"` // of the item, which rows of before hold within it
}

// raws gives where the raw JSON of a message is, beside its metadata, and where it stands in the stored form.
func (b *body) raws() map[*json.RawMessage]*string {
	return map[*json.RawMessage]*string{&b.Message.ToolCalls: &b.ToolCalls, &b.Message.Parts: &b.Parts, &b.Message.Usage: &b.Usage}
}

// encodeBody gives the column's value. It fails where raw JSON in m is not JSON, which nobody could be given then.
func encodeBody(m *memory.Message) (string, error) {
	if usual(m) {
		return appendUsual(m)
	}
	b := body{Message: *m}
	for raw, text := range b.raws() {
		if len(*raw) > 0 && !json.Valid(*raw) {
			return "", fmt.Errorf("a message holds raw JSON that is none")
		}
		*text = string(*raw)
	}
	if len(m.Metadata) > 0 {
		b.Metadata = make(map[string]string, len(m.Metadata))
		for k, v := range m.Metadata {
			if v == nil {
				v = json.RawMessage("null") // as encoding/json writes it
			}
			if !json.Valid(v) {
				return "", errMetadata
			}
			b.Metadata[k] = string(v)
		}
	}
	if it := m.Item(); it != nil && len(it.Extra) > 0 {
		if !json.Valid(it.Extra) {
			return "", fmt.Errorf("an item's extra is not JSON")
		}
		item := *it
		b.Extra, item.Extra = string(item.Extra), nil
		b.Amend(func(r *memory.Rare) { r.Item = &item })
	}
	out, err := json.Marshal(&b)
	return string(out), err
}

// usual tells that a message has none of what appendUsual does not write.
func usual(m *memory.Message) bool {
	return m.Rare == nil && m.Timings == nil && m.Failure == nil && len(m.ToolCalls)+len(m.Parts)+len(m.Usage) == 0
}

// appendUsual writes by hand what encoding/json would, in a fifth of the time: most of what is appended.
func appendUsual(m *memory.Message) (string, error) {
	w := bodyWriter{b: make([]byte, 0, 192+len(m.Content)+len(m.Generated)+len(m.Sent)+80*len(m.Metadata))}
	w.text(`{"role":`, string(m.Role), true)
	w.text(`,"content":`, m.Content, true)
	w.number(`,"timestamp":`, m.Timestamp, true)
	w.text(`,"source":`, string(m.Source), false)
	w.text(`,"state":`, string(m.State), false)
	w.flag(`,"interrupted":true`, m.Interrupted)
	w.number(`,"interrupt_ms":`, m.InterruptMS, false)
	w.text(`,"interrupt_by":`, m.InterruptBy, false)
	w.text(`,"generated":`, m.Generated, false)
	w.text(`,"sent":`, m.Sent, false)
	w.flag(`,"cut_generated":true`, m.CutGenerated)
	w.text(`,"method":`, string(m.Method), false)
	w.number(`,"evidence_ms":`, m.EvidenceMS, false)
	w.number(`,"confidence":`, m.Confidence, false)
	w.text(`,"tool_call_id":`, m.ToolCallID, false)
	w.text(`,"name":`, m.ToolName, false)
	w.number(`,"answer_seq":`, m.AnswerSeq, false)
	w.flag(`,"turn_has_user":true`, m.TurnHasUser)
	w.text(`,"finish_reason":`, m.FinishRsn, false)
	w.text(`,"upstream_id":`, m.UpstreamID, false)
	w.text(`,"status":`, string(m.Status), false)
	w.number(`,"chars":`, m.Chars, false)
	w.flag(`,"opens":true`, m.Opens)
	if k := m.Marks; k != (memory.Marks{}) {
		marks, err := json.Marshal(k)
		if err != nil {
			return "", err
		}
		w.b = append(append(w.b, `,"marks":`...), marks...)
	}
	if len(m.Metadata) > 0 {
		before := `,"metadata":{`
		for k, v := range m.Metadata {
			if v == nil {
				v = json.RawMessage("null") // as encoding/json writes it
			}
			if !json.Valid(v) {
				return "", errMetadata
			}
			w.b = memory.AppendString(append(w.b, before...), k)
			w.b = appendJSON(append(w.b, ':'), v)
			before = ","
		}
		w.b = append(w.b, '}')
	}
	return string(append(w.b, '}')), nil
}

// appendJSON writes JSON as a string, which is full of quotes.
func appendJSON(b []byte, raw json.RawMessage) []byte {
	start := len(b)
	b = append(b, '"')
	for _, c := range raw {
		if c < ' ' || c >= utf8.RuneSelf {
			return memory.AppendString(b[:start], string(raw))
		}
		if c == '"' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return append(b, '"')
}

// bodyWriter writes members, each with what stands before its value.
type bodyWriter struct{ b []byte }

func (w *bodyWriter) text(before, v string, always bool) {
	if v != "" || always {
		w.b = memory.AppendString(append(w.b, before...), v)
	}
}

func (w *bodyWriter) number(before string, v int64, always bool) {
	if v != 0 || always {
		w.b = strconv.AppendInt(append(w.b, before...), v, 10)
	}
}

func (w *bodyWriter) flag(member string, v bool) {
	if v {
		w.b = append(w.b, member...)
	}
}

var errMetadata = errors.New("message field metadata is not JSON")

// decodeBody reads what encodeBody wrote into m, whose own columns are set already.
func decodeBody(text string, m *memory.Message) error {
	var b body
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return fmt.Errorf("message %d: %w: %w", m.Seq, err, errBadRow)
	}
	for raw, text := range b.raws() {
		if *text != "" {
			*raw = json.RawMessage(*text)
		}
	}
	if len(b.Metadata) > 0 {
		b.Message.Metadata = make(map[string]json.RawMessage, len(b.Metadata))
		for k, v := range b.Metadata {
			b.Message.Metadata[k] = json.RawMessage(v)
		}
	}
	if it := b.Item(); b.Extra != "" && it != nil {
		it.Extra = json.RawMessage(b.Extra)
	}
	b.Message.Seq, b.Message.Rev, b.Message.ID, b.Message.TurnID = m.Seq, m.Rev, m.ID, m.TurnID
	*m = b.Message
	return nil
}
