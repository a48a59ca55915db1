package postgres

import (
	"encoding/json"
	"fmt"

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
				return "", fmt.Errorf("message field metadata is not JSON")
			}
			b.Metadata[k] = string(v)
		}
	}
	if m.Item != nil && len(m.Item.Extra) > 0 {
		if !json.Valid(m.Item.Extra) {
			return "", fmt.Errorf("an item's extra is not JSON")
		}
		item := *m.Item
		b.Extra, item.Extra = string(item.Extra), nil
		b.Item = &item
	}
	out, err := json.Marshal(&b)
	return string(out), err
}

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
	if b.Extra != "" && b.Item != nil {
		b.Item.Extra = json.RawMessage(b.Extra)
	}
	b.Message.Seq, b.Message.Rev, b.Message.ID, b.Message.TurnID = m.Seq, m.Rev, m.ID, m.TurnID
	*m = b.Message
	return nil
}
