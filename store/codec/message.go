// Package codec is the stored form of agents and messages. It stands above the stores: a message is
// encoded before its row reaches a store's writer, and all stores keep the same bytes.
//
// A message is stored as columns (seq, rev, turn, client ID) and a body, which EncodeMessage makes.
// What is private of an agent, its settings and properties, is one blob, which EncodeAgent makes.
// Stores seal it with package encryption.
package codec

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	fastjson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/heardlog/heardlog/memory"
)

// Message is the JSON form of a message. Raw JSON is kept as a string: what a client sent must come
// back byte for byte, and a JSON encoder changes white space and escapes.
type Message struct {
	memory.Message
	// These hide the message's own fields of the same names.
	Metadata  map[string]string `json:"metadata,omitempty"`
	ToolCalls string            `json:"tool_calls,omitempty"`
	Parts     string            `json:"parts,omitempty"`
	Usage     string            `json:"usage,omitempty"`
	Extra     string            `json:"item_extra,omitempty"` // of the message's Item
}

// Set sets the form to that of a message. It fails if raw JSON in the message is not JSON.
func (f *Message) Set(m *memory.Message) error {
	*f = Message{Message: *m}
	for _, raw := range f.raws() {
		if len(*raw.from) > 0 && !json.Valid(*raw.from) {
			return fmt.Errorf("message field %s is not JSON", raw.name)
		}
		*raw.text = string(*raw.from)
	}
	if len(m.Metadata) > 0 {
		f.Metadata = make(map[string]string, len(m.Metadata))
		for k, v := range m.Metadata {
			if v == nil {
				v = json.RawMessage("null")
			}
			if !json.Valid(v) {
				return errors.New("message field metadata is not JSON")
			}
			f.Metadata[k] = string(v)
		}
	}
	if it := m.Filed().Item; it != nil && len(it.Extra) > 0 {
		if !json.Valid(it.Extra) {
			return errors.New("an item's extra is not JSON")
		}
		item := *it
		f.Extra, item.Extra = string(item.Extra), nil
		f.Amend(func(r *memory.Details) { r.Item = &item })
	}
	return nil
}

// Value returns the message of the form.
func (f *Message) Value() memory.Message {
	for _, raw := range f.raws() {
		if *raw.text != "" {
			*raw.from = json.RawMessage(*raw.text)
		}
	}
	if len(f.Metadata) > 0 {
		f.Message.Metadata = make(map[string]json.RawMessage, len(f.Metadata))
		for k, v := range f.Metadata {
			f.Message.Metadata[k] = json.RawMessage(v)
		}
	}
	if it := f.Filed().Item; f.Extra != "" && it != nil {
		it.Extra = json.RawMessage(f.Extra)
	}
	return f.Message
}

// rawField is a message's raw JSON and its text.
type rawField struct {
	name string
	from *json.RawMessage
	text *string
}

func (f *Message) raws() [3]rawField {
	return [3]rawField{
		{"tool_calls", &f.Message.ToolCalls, &f.ToolCalls}, {"parts", &f.Message.Parts, &f.Parts}, {"usage", &f.Message.Usage, &f.Usage},
	}
}

// body is what is stored of a message beside the columns.
type body struct {
	Message
	// These hide what has a column of its own.
	Seq    *int64  `json:"seq,omitempty"`
	Rev    *int64  `json:"rev,omitempty"`
	ID     *string `json:"id,omitempty"`
	TurnID *int64  `json:"turn_id,omitempty"`
}

// bodyJSON makes the encoder leave out empty fields and replace invalid UTF-8, as encoding/json
// does. The encoder reads a message in less than half of encoding/json's time, which is most of a
// read from disk.
var bodyJSON = fastjson.JoinOptions(
	jsonv1.OmitEmptyWithLegacySemantics(true), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// ErrUnreadable is part of every error about stored bytes that cannot be decoded.
var ErrUnreadable = errors.New("a stored row is unreadable")

// EncodeMessage returns the body of a message as JSON. It fails if raw JSON in the message is not
// JSON.
func EncodeMessage(m *memory.Message) (string, error) {
	var b body
	if err := b.Set(m); err != nil {
		return "", err
	}
	var out strings.Builder // Marshal would make a copy more
	err := fastjson.MarshalWrite(&out, &b, bodyJSON)
	return out.String(), err
}

// DecodeMessage reads the body of a message, packed or not, whose Seq, Rev, TurnID and ID the
// caller has set.
func DecodeMessage[B string | []byte](stored B, m *memory.Message) error {
	var b body
	plain, err := Unpack(stored)
	if err == nil {
		err = fastjson.Unmarshal(plain, &b, bodyJSON)
	}
	if err != nil {
		return fmt.Errorf("message %d: %w: %w", m.Seq, ErrUnreadable, err)
	}
	out := b.Value()
	out.Seq, out.Rev, out.ID, out.TurnID = m.Seq, m.Rev, m.ID, m.TurnID
	*m = out
	return nil
}
