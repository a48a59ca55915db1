package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/input"
)

// maxSnapshotBody is the maximum length of a snapshot to restore in bytes, unless HEARDLOG_MAX_BODY
// is more.
const maxSnapshotBody = 16 << 20

// maxToolExchange is the maximum length of tool_exchange in bytes.
const maxToolExchange = 64 << 10

// snapshot answers with the whole memory: its messages and its summary. A long one is sent as it is
// read.
func (a contextAPI) snapshot(w http.ResponseWriter, r *http.Request) error {
	out, count := &stream{w: w, r: r}, 0
	out.raw(`{"messages":[`)
	h, err := a.contexts.Read(r.Context(), projectOf(r), chi.URLParam(r, "id"), func(msgs []memory.Message) error {
		for i := range msgs {
			if count++; count > 1 {
				out.raw(",")
			}
			// Messages keep the bytes that they were given in, which an encoder would not keep.
			m, err := snapshotMessage(&msgs[i])
			if err != nil {
				return err
			}
			out.b = append(out.b, m...)
			if err := out.flush(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return out.end(err)
	}
	m := &h.Agent.Settings.Memory
	var summary any
	if m.Summary != "" {
		summary = m.Summary
	}
	out.raw(`],"summary":`)
	if err := out.value(summary); err != nil {
		return out.end(err)
	}
	if m.ToolExchange != "" {
		out.raw(`,"tool_exchange":` + m.ToolExchange)
	}
	// The client should know it when it saves the snapshot, not when it needs it.
	if why := a.notRestorable(count, out.size()); why != "" {
		out.raw(`,"not_restorable":`)
		if err := out.value(why); err != nil {
			return out.end(err)
		}
	}
	out.raw("}")
	return out.end(nil)
}

// notRestorable returns why restore would refuse a snapshot, "" if it would not.
func (a contextAPI) notRestorable(messages, size int) string {
	switch limit := a.snapshotBody(); {
	case messages > memory.MaxSnapshot:
		return fmt.Sprintf("it holds %d messages; at most %d can be restored at once", messages, memory.MaxSnapshot)
	case int64(size)+2 > limit:
		return fmt.Sprintf("it is longer than %d bytes, which is the most that can be restored at once", limit)
	}
	return ""
}

// snapshotBody is the maximum length of a snapshot to restore, in bytes.
func (a contextAPI) snapshotBody() int64 { return max(a.limit, maxSnapshotBody) }

// snapshotJSON is a message that was not given in a snapshot: what restoring it needs.
type snapshotJSON struct {
	Role       memory.Role     `json:"role"`
	Content    any             `json:"content"`
	ToolCalls  json.RawMessage `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
	Name       string          `json:"name,omitempty"`
	Timestamp  int64           `json:"timestamp"` // Unix ms
	Metadata   json.RawMessage `json:"metadata"`
	labelsJSON
}

// snapshotMessage returns a message's JSON in a snapshot: the bytes that it was given in, if it
// was.
func snapshotMessage(m *memory.Message) ([]byte, error) {
	if given := m.Filed().Raw; given != "" {
		return []byte(given), nil
	}
	return marshal(snapshotJSON{
		Role: m.WireRole(), Content: contentJSON(m.Parts, m.Content, m.ToolCalls), ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, Name: m.ToolName,
		Timestamp: m.Timestamp, Metadata: m.AppendMetadata(nil), labelsJSON: newLabels(m),
	})
}

// restore replaces a memory by a snapshot or a plain list of messages, all or nothing.
func (a contextAPI) restore(w http.ResponseWriter, r *http.Request) error {
	body, err := a.readUpTo(w, r, a.snapshotBody())
	if err != nil {
		return err
	}
	if !utf8.Valid(body) {
		return fault.New(fault.BadRequest, "the body must be UTF-8")
	}
	var in struct {
		Messages      []json.RawMessage `json:"messages"`
		Summary       *string           `json:"summary"`
		ToolExchange  json.RawMessage   `json:"tool_exchange"`
		NotRestorable json.RawMessage   `json:"not_restorable"` // added by snapshot; ignored here
	}
	// A client that lost its snapshot does not want to lose the memory.
	if string(bytes.Trim(body, " \t\r\n")) == "null" {
		return fault.New(fault.BadRequest, "the body must be an object or an array of messages, not null")
	}
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		if err := json.Unmarshal(body, &in.Messages); err != nil {
			return input.Error(err)
		}
	} else if err := a.unmarshal(body, &in, true); err != nil {
		return err
	}
	if n := len(in.Messages); n > memory.MaxSnapshot {
		return fault.At(fault.Invalid, "messages", "holds %d messages; at most %d are allowed", n, memory.MaxSnapshot)
	}
	s := memctx.Snapshot{Messages: make([]memory.Message, len(in.Messages))}
	if in.Summary != nil {
		s.Summary = *in.Summary
	}
	if x := in.ToolExchange; len(x) > 0 && string(x) != "null" {
		if len(x) > maxToolExchange {
			return fault.At(fault.Invalid, "tool_exchange", "must have at most %d bytes", maxToolExchange)
		}
		s.ToolExchange = string(input.ReplaceNUL(x))
	}
	for i, raw := range in.Messages {
		if s.Messages[i], err = a.restoredMessage("messages["+strconv.Itoa(i)+"]", raw); err != nil {
			return err
		}
	}
	agent, err := a.contexts.Restore(r.Context(), projectOf(r), chi.URLParam(r, "id"), s)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, struct {
		AgentID  string `json:"agent_id"`
		Messages int    `json:"messages"`
	}{agent.ID, len(s.Messages)})
}

// restoredMessage reads a message of a snapshot. It keeps fields that it does not know, because
// snapshots come from other programs, too.
func (a contextAPI) restoredMessage(at string, raw json.RawMessage) (memory.Message, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return memory.Message{}, fault.At(fault.Invalid, at, "must be an object")
	}
	raw = input.ReplaceNUL(raw)
	var in messageRequest
	if err := json.Unmarshal(raw, &in); err != nil {
		return memory.Message{}, within(at, input.Error(err))
	}
	in.ID, in.TurnID = "", nil
	if raw, ok := in.Metadata["source"]; ok { // kept only if the role can have it
		var source string
		if json.Unmarshal(raw, &source) != nil || !slices.Contains(input.Sources(memory.Role(in.Role)), source) || onlyResults(in.Content) {
			delete(in.Metadata, "source")
		}
	}
	if len(in.Content) == 0 {
		in.Content = json.RawMessage("null")
	}
	var object json.RawMessage
	// An object or a number is allowed only here.
	if c := in.Content[0]; c != '"' && c != '[' && c != 'n' {
		object, in.Content = in.Content, json.RawMessage(`""`)
	}
	m, err := in.message(at+".", a.now())
	if err != nil {
		return m, err
	}
	if object != nil {
		m.Parts = object
	}
	same, err := snapshotMessage(&m)
	if err != nil {
		return m, err
	}
	if !m.InMemory() || string(same) != string(raw) {
		m.Amend(func(r *memory.Details) { r.Raw = string(raw) })
	}
	return m, nil
}

// within adds a path in front of the field of an error.
func within(at string, err error) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Field == "" {
		return err
	}
	c := *e
	c.Field, c.Msg = at+"."+e.Field, at+"."+e.Msg
	return &c
}
