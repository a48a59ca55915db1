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
	"github.com/heardlog/heardlog/memory/input"
)

// maxSnapshotBody is how long a snapshot may be that is restored, in bytes, where HEARDLOG_MAX_BODY allows less.
const maxSnapshotBody = 16 << 20

// maxToolExchange bounds what a snapshot holds beside messages and summary, in bytes.
const maxToolExchange = 64 << 10

// snapshot answers the whole memory: messages and summary (reference/memory-semantics.md 001-26).
func (a contextAPI) snapshot(w http.ResponseWriter, r *http.Request) error {
	s, err := a.memory.Snapshot(r.Context(), projectOf(r), chi.URLParam(r, "id"))
	if err != nil {
		return err
	}
	b := append(make([]byte, 0, 16<<10), `{"messages":[`...)
	for i := range s.Messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendSnapshotMessage(b, &s.Messages[i])
	}
	b = append(b, `],"summary":`...)
	if s.Summary == "" {
		b = append(b, "null"...)
	} else {
		b = memory.AppendString(b, s.Summary)
	}
	if s.ToolExchange != "" {
		b = append(append(b, `,"tool_exchange":`...), s.ToolExchange...)
	}
	if why := a.notRestorable(len(s.Messages), len(b)); why != "" { // said when it is saved, and not when it is needed
		b = memory.AppendString(append(b, `,"not_restorable":`...), why)
	}
	writeJSON(w, http.StatusOK, append(b, "}\n"...))
	return nil
}

// notRestorable says why putSnapshot would refuse a snapshot of so many messages and bytes; "" where it takes it.
func (a contextAPI) notRestorable(messages, size int) string {
	switch limit := a.snapshotBody(); {
	case messages > memory.MaxSnapshot:
		return fmt.Sprintf("it holds %d messages; at most %d can be restored at once", messages, memory.MaxSnapshot)
	case int64(size)+2 > limit:
		return fmt.Sprintf("it is longer than %d bytes, which is the most that can be restored at once", limit)
	}
	return ""
}

// snapshotBody is how long a snapshot may be that is restored, in bytes.
func (a contextAPI) snapshotBody() int64 { return max(a.limit, maxSnapshotBody) }

// appendSnapshotMessage appends a message as it was given, or, of one that was not given so, what restoring it needs.
func appendSnapshotMessage(b []byte, m *memory.Message) []byte {
	if given := m.Raw(); given != "" {
		return append(b, given...)
	}
	e := entryWriter{b: memory.AppendString(append(b, `{"role":`...), string(m.WireRole()))}
	switch {
	case len(m.Parts) > 0:
		e.raw("content", m.Parts)
	case m.Content == "" && len(m.ToolCalls) > 0:
		e.raw("content", json.RawMessage("null"))
	default:
		e.always("content", m.Content)
	}
	e.raw("tool_calls", m.ToolCalls)
	e.text("tool_call_id", m.ToolCallID)
	e.text("name", m.ToolName)
	e.b = strconv.AppendInt(append(e.b, `,"timestamp":`...), m.Timestamp, 10)
	e.b = m.AppendMetadata(append(e.b, `,"metadata":`...))
	e.own(m) // the scope's ids are texts, importance is a number: both always marshal
	return append(e.b, '}')
}

// putSnapshot restores a memory from what snapshot gives, or from a plain list of messages, all or nothing (001-27).
func (a contextAPI) restore(w http.ResponseWriter, r *http.Request) error {
	body, err := a.readUpTo(w, r, a.snapshotBody())
	if err != nil {
		return err
	}
	if !utf8.Valid(body) {
		return fault.New(fault.BadRequest, "the body is not UTF-8, and could not be given back as it is")
	}
	var in struct {
		Messages      []json.RawMessage `json:"messages"`
		Summary       *string           `json:"summary"`
		ToolExchange  json.RawMessage   `json:"tool_exchange"`
		NotRestorable json.RawMessage   `json:"not_restorable"` // of what snapshot gave; the bounds are looked at here
	}
	if string(bytes.Trim(body, " \t\r\n")) == "null" { // a caller that lost its snapshot does not mean to lose the memory (001-34)
		return fault.New(fault.BadRequest, "the body is null; an object or an array of messages is wanted")
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
	s := memory.Snapshot{Messages: make([]memory.Message, len(in.Messages))}
	if in.Summary != nil {
		s.Summary = *in.Summary
	}
	if x := in.ToolExchange; len(x) > 0 && string(x) != "null" {
		if len(x) > maxToolExchange || input.HasNUL(x) {
			return fault.At(fault.Invalid, "tool_exchange", "is longer than %d bytes or holds a NUL character", maxToolExchange)
		}
		s.ToolExchange = string(x)
	}
	for i, raw := range in.Messages {
		if s.Messages[i], err = a.restoredMessage("messages["+strconv.Itoa(i)+"]", raw); err != nil {
			return err
		}
	}
	agent, err := a.memory.Restore(r.Context(), projectOf(r), chi.URLParam(r, "id"), s)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, struct {
		AgentID  string `json:"agent_id"`
		Messages int    `json:"messages"`
	}{agent.ID, len(s.Messages)})
}

// restored reads a message of a snapshot. Fields that we do not know are kept with it and otherwise ignored: snapshots come from others too.
func (a contextAPI) restoredMessage(at string, raw json.RawMessage) (memory.Message, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return memory.Message{}, fault.At(fault.Invalid, at, "is not an object")
	}
	if input.HasNUL(raw) {
		return memory.Message{}, fault.At(fault.Invalid, at, "holds a NUL character, which is not allowed")
	}
	var in messageRequest
	if err := json.Unmarshal(raw, &in); err != nil {
		return memory.Message{}, within(at, input.Error(err))
	}
	in.ID, in.TurnID = "", nil
	if raw, ok := in.Metadata["source"]; ok { // how it came about, where the role can have come so: it is no business of a tool's
		var source string
		if json.Unmarshal(raw, &source) != nil || !slices.Contains(input.Sources(memory.Role(in.Role)), source) || memory.OnlyResults(in.Content) {
			delete(in.Metadata, "source")
		}
	}
	if len(in.Content) == 0 {
		in.Content = json.RawMessage("null")
	}
	var object json.RawMessage
	if c := in.Content[0]; c != '"' && c != '[' && c != 'n' { // an object, a number: allowed here, and only here
		object, in.Content = in.Content, json.RawMessage(`""`)
	}
	m, err := in.message(at+".", a.now())
	if err != nil {
		return m, err
	}
	if object != nil {
		m.Parts = object
	}
	if !m.InMemory() || string(appendSnapshotMessage(nil, &m)) != string(raw) {
		m.Amend(func(r *memory.Rare) { r.Raw = string(raw) })
	}
	return m, nil
}

// within puts a path in front of the field of an error.
func within(at string, err error) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Field == "" {
		return err
	}
	c := *e
	c.Field, c.Msg = at+"."+e.Field, at+"."+e.Msg
	return &c
}
