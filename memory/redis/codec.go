package redis

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/heardlog/heardlog/memory"
)

// body is a stored message: encoding/json's form behind one byte of marks. Raw JSON stands in it as text, since
// encoding/json would change its white space and escapes, and what a client gave has to come back byte for byte.
type body struct {
	memory.Message
	// These hide the message's own fields of the same names.
	Metadata  map[string]string `json:"metadata,omitempty"`
	ToolCalls string            `json:"tool_calls,omitempty"`
	Parts     string            `json:"parts,omitempty"`
	Usage     string            `json:"usage,omitempty"`
	Extra     string            `json:"item_extra,omitempty"`
}

// raws gives where the raw JSON of a message is, beside its metadata, and where it stands in the stored form.
func (b *body) raws() map[*json.RawMessage]*string {
	return map[*json.RawMessage]*string{&b.Message.ToolCalls: &b.ToolCalls, &b.Message.Parts: &b.Parts, &b.Message.Usage: &b.Usage}
}

// Marks of a stored message, which scripts look at: added to the digit 0.
const (
	markShown = 1 // Message.InHistory
	markNamed = 2 // it has a client's id
)

// encodeBody gives the stored form. It fails where raw JSON in m is not JSON, which nobody could be given then.
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
	if it := m.Item(); it != nil && len(it.Extra) > 0 {
		if !json.Valid(it.Extra) {
			return "", fmt.Errorf("an item's extra is not JSON")
		}
		item := *it
		b.Extra, item.Extra = string(item.Extra), nil
		b.Amend(func(r *memory.Rare) { r.Item = &item })
	}
	out, err := json.Marshal(&b)
	mark := byte('0')
	if m.InHistory() {
		mark += markShown
	}
	if m.ID != "" {
		mark += markNamed
	}
	return string(mark) + string(out), err
}

// decodeBody reads what encodeBody wrote.
func decodeBody(text string) (memory.Message, error) {
	var b body
	if text == "" {
		return b.Message, fmt.Errorf("a message is empty: %w", errBadRow)
	}
	if err := json.Unmarshal([]byte(text[1:]), &b); err != nil {
		return b.Message, fmt.Errorf("a message: %w: %w", err, errBadRow)
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
	return b.Message, nil
}

// encodeAgent gives the stored form of an agent: texts and numbers with their lengths, then what is sealed.
func (s *Store) encodeAgent(a *memory.Agent) (string, error) {
	private, err := memory.EncodePrivate(a)
	if err != nil {
		return "", err
	}
	out := make([]byte, 0, len(private)+256)
	for _, n := range []int64{int64(a.Status), a.StartMS, a.StopMS, a.Rev} {
		out = binary.AppendVarint(out, n)
	}
	for _, text := range []string{a.ID, a.Project, a.Name, a.Message, a.JoinKey, a.JoinHash} {
		out = append(binary.AppendUvarint(out, uint64(len(text))), text...)
	}
	return string(append(out, s.sealer.Seal(private, agentOwner(a.Project, a.ID))...)), nil
}

// decodeAgent reads what encodeAgent wrote.
func (s *Store) decodeAgent(text string) (a memory.Agent, err error) {
	in := []byte(text)
	bad := fmt.Errorf("an agent: %w", errBadRow)
	var status int64
	for _, n := range []*int64{&status, &a.StartMS, &a.StopMS, &a.Rev} {
		v, used := binary.Varint(in)
		if used <= 0 {
			return a, bad
		}
		*n, in = v, in[used:]
	}
	a.Status = memory.Status(status)
	for _, t := range []*string{&a.ID, &a.Project, &a.Name, &a.Message, &a.JoinKey, &a.JoinHash} {
		n, used := binary.Uvarint(in)
		if used <= 0 || uint64(len(in)-used) < n {
			return a, bad
		}
		*t, in = string(in[used:used+int(n)]), in[used+int(n):]
	}
	plain, err := s.sealer.Open(in, agentOwner(a.Project, a.ID))
	if err != nil {
		return a, fmt.Errorf("agent %s: %w", a.ID, err)
	}
	if err := memory.DecodePrivate(plain, &a); err != nil {
		return a, fmt.Errorf("agent %s: %w: %w", a.ID, err, errBadRow)
	}
	return a, nil
}

func agentOwner(project, id string) string        { return "agent " + project + " " + id }
func conversationOwner(project, id string) string { return "conversation " + project + " " + id }
func workingOwner(project, id, key string) string { return "working " + project + " " + id + " " + key }
