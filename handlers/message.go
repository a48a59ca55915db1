package handlers

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/heard"
	"github.com/heardlog/heardlog/memory/input"
)

// messageAPI serves an agent's messages: its ledger, its history and its turns.
type messageAPI struct {
	bodies
	memory       *memory.Service
	now          func() time.Time
	historyBytes prometheus.Counter
}

// messageRequest is one message to append.
type messageRequest struct {
	ID         string                     `json:"id"`
	Role       string                     `json:"role"`
	Content    json.RawMessage            `json:"content"` // a string, an array of parts, or null
	TurnID     *int64                     `json:"turn_id"`
	Timestamp  int64                      `json:"timestamp"` // Unix ms; ten digits are taken for seconds
	Source     string                     `json:"source"`    // here or in metadata
	Metadata   map[string]json.RawMessage `json:"metadata"`
	ToolCalls  json.RawMessage            `json:"tool_calls"`
	ToolCallID string                     `json:"tool_call_id"`
	Name       string                     `json:"name"`
	Status     string                     `json:"status"` // accepted, draft or discard
	Scope      *messageScope              `json:"scope"`
	Importance *float64                   `json:"importance"` // 0 to 1
	Category   string                     `json:"category"`
}

// appendRequest is a batch, or one message without a list.
type appendRequest struct {
	messageRequest
	Messages messageList `json:"messages"`
}

// messageList is read into a new list. Of two members "messages" the second counts; encoding/json
// alone would write it over the first and keep fields that it does not name.
type messageList []messageRequest

// UnmarshalJSON implements json.Unmarshaler.
func (l *messageList) UnmarshalJSON(b []byte) error {
	var fresh []messageRequest
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields() // the outer decoder's setting does not apply here
	err := dec.Decode(&fresh)
	*l = fresh
	return err
}

// Limits of a message's smaller parts.
const (
	maxToolCalls = 64 << 10 // bytes
	maxToolName  = 256
)

func (a messageAPI) append(w http.ResponseWriter, r *http.Request) error {
	body, err := a.read(w, r)
	if err != nil {
		return err
	}
	var in appendRequest
	var list []messageRequest
	one := false
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		var bare json.RawMessage
		if err := json.Unmarshal(body, &bare); err != nil {
			return input.Error(err)
		}
		body = slices.Concat([]byte(`{"messages":`), bare, []byte(`}`)) // a bare list follows the same rules
	}
	if err := a.unmarshal(body, &in, true); err != nil {
		return err
	}
	if list = in.Messages; list == nil {
		list, one = []messageRequest{in.messageRequest}, true
	} else if !reflect.ValueOf(in.messageRequest).IsZero() {
		return fault.At(fault.Invalid, "messages", "stands beside a single message; send one or the other")
	}
	if len(list) > memory.MaxBatch {
		return fault.At(fault.Invalid, "messages", "holds %d messages; at most %d are allowed", len(list), memory.MaxBatch)
	}
	key, err := idempotencyKey(r, maxKey)
	if err != nil {
		return err
	}
	msgs, now := make([]memory.Message, len(list)), a.now()
	for i, m := range list {
		at := "messages[" + strconv.Itoa(i) + "]."
		if one {
			at = ""
		}
		if msgs[i], err = m.message(at, now); err != nil {
			return err
		}
		if key != "" && msgs[i].ID == "" {
			msgs[i].ID = key + ":" + strconv.Itoa(i)
		}
	}
	done, err := a.memory.Put(r.Context(), projectOf(r), chi.URLParam(r, "id"), msgs)
	if err != nil {
		return err
	}
	return writeAppended(w, chi.URLParam(r, "id"), done)
}

// message checks a message and returns it as the domain takes it. at is its path for errors.
func (m messageRequest) message(at string, now time.Time) (memory.Message, error) {
	switch m.Role { // the names of other APIs
	case "human":
		m.Role = "user"
	case "ai":
		m.Role = "assistant"
	}
	out := memory.Message{ID: m.ID, Role: memory.Role(m.Role), ToolCallID: m.ToolCallID, ToolName: m.Name}
	if m.ID != "" {
		if err := memory.ValidName(at+"id", m.ID, 128); err != nil {
			return out, err
		}
	}
	if m.TurnID != nil {
		if *m.TurnID < 0 || *m.TurnID > 1<<53 {
			return out, fault.At(fault.Invalid, at+"turn_id", "%d is not a number from 0 to 2^53", *m.TurnID)
		}
		out.TurnID, out.GivenTurn = *m.TurnID, true
	}
	var err error
	if out.Timestamp, err = input.Millis(at+"timestamp", m.Timestamp); err != nil {
		return out, err
	}
	if out.Content, out.Parts, err = input.Content(at+"content", m.Content); err != nil {
		return out, err
	}
	if err := m.roleFields(&out, at); err != nil {
		return out, err
	}
	if err := m.itemFields(&out, at); err != nil {
		return out, err
	}
	if out.Role == memory.User && memory.OnlyResults(out.Parts) {
		out.Role, out.Source = memory.Tool, "" // a tool's answer in blocks, not something said
	}
	return out, m.applyMetadata(&out, at, now)
}

// maxCategory is the maximum length of a category in bytes.
const maxCategory = 64

// itemFields checks status, scope, importance and category.
func (m messageRequest) itemFields(out *memory.Message, at string) error {
	switch m.Status {
	case "", "accepted":
	case string(memory.Draft), string(memory.Discarded):
		out.Status = memory.MessageStatus(m.Status)
	default:
		return fault.At(fault.Invalid, at+"status", "%q is not one of accepted, draft, discard", clip(m.Status, 40))
	}
	if f := m.Importance; f != nil {
		if !(*f >= 0 && *f <= 1) {
			return fault.At(fault.Invalid, at+"importance", "%v is not from 0 to 1", *f)
		}
		out.Amend(func(r *memory.Rare) { r.Importance = f })
	}
	if m.Category != "" {
		if err := memory.ValidName(at+"category", m.Category, maxCategory); err != nil {
			return err
		}
		out.Amend(func(r *memory.Rare) { r.Category = m.Category })
	}
	return m.Scope.setScope(out, at+"scope")
}

// roleFields checks what belongs to the role: its source and tool fields.
func (m messageRequest) roleFields(out *memory.Message, at string) error {
	source := m.Source
	if raw, ok := m.Metadata["source"]; ok && source == "" {
		if err := json.Unmarshal(raw, &source); err != nil {
			return fault.At(fault.Invalid, at+"metadata.source", "is not a string")
		}
	}
	allowed := input.Sources(out.Role)
	switch {
	case m.Role == "":
		return fault.At(fault.Missing, at+"role", "is required: user, assistant, tool, system or developer")
	case allowed == nil:
		return fault.At(fault.Invalid, at+"role", "%q is not one of user, assistant, tool, system, developer", clip(m.Role, 40))
	}
	if source == "" {
		source = allowed[0]
	}
	known := false
	for _, s := range allowed {
		known = known || s == source
	}
	if !known {
		return fault.At(fault.Invalid, at+"source", "%q is not a source of role %s: %s", clip(source, 40), m.Role, strings.Join(allowed, ", "))
	}
	out.Source = memory.Source(source)
	if len(m.ToolCalls) > 0 && string(m.ToolCalls) != "null" {
		var calls []json.RawMessage
		switch {
		case out.Role != memory.Assistant:
			return fault.At(fault.Invalid, at+"tool_calls", "belongs to assistant messages only")
		case json.Unmarshal(m.ToolCalls, &calls) != nil:
			return fault.At(fault.Invalid, at+"tool_calls", "is not an array")
		case len(m.ToolCalls) > maxToolCalls:
			return fault.At(fault.Invalid, at+"tool_calls", "is %d bytes long; at most %d are allowed", len(m.ToolCalls), maxToolCalls)
		}
		for i, c := range calls {
			if len(c) == 0 || c[0] != '{' {
				return fault.At(fault.Invalid, at+"tool_calls["+strconv.Itoa(i)+"]", "is not an object")
			}
		}
		if input.HasNUL(m.ToolCalls) {
			return fault.At(fault.Invalid, at+"tool_calls", "holds a NUL character, which is not allowed")
		}
		if len(calls) > 0 {
			var b bytes.Buffer
			if err := json.Compact(&b, m.ToolCalls); err != nil {
				return fault.At(fault.Invalid, at+"tool_calls", "is not valid JSON")
			}
			out.ToolCalls = b.Bytes()
		}
	}
	switch {
	case out.Role == memory.Tool && m.ToolCallID == "":
		return fault.At(fault.Missing, at+"tool_call_id", "is required for role tool")
	case out.Role != memory.Tool && m.ToolCallID != "":
		return fault.At(fault.Invalid, at+"tool_call_id", "belongs to tool messages only")
	case strings.ContainsRune(m.ToolCallID+m.Name, 0):
		return fault.At(fault.Invalid, at+"tool_call_id", "and name may hold no NUL character")
	case len(m.ToolCallID) > maxToolName || len(m.Name) > maxToolName:
		return fault.At(fault.Invalid, at+"tool_call_id", "and name may have %d characters at most", maxToolName)
	case len(m.Content) == 0 && len(out.ToolCalls) == 0:
		return fault.At(fault.Missing, at+"content", "is required")
	}
	return nil
}

// applyMetadata keeps unknown metadata and reads the rest: an assistant message may be interrupted.
func (m messageRequest) applyMetadata(out *memory.Message, at string, now time.Time) error {
	if len(m.Metadata) > input.MaxMetadata {
		return fault.At(fault.Invalid, at+"metadata", "has %d keys; at most %d are allowed", len(m.Metadata), input.MaxMetadata)
	}
	var err error
	if out.Metadata, err = input.Metadata(at+"metadata", m.Metadata); err != nil {
		return err
	}
	if out.Role != memory.Assistant {
		return nil
	}
	out.Method = memory.AssumedFull
	var cut bool
	if raw, ok := m.Metadata["interrupted"]; ok && json.Unmarshal(raw, &cut) != nil {
		return fault.At(fault.Invalid, at+"metadata.interrupted", "is not true or false")
	}
	if !cut {
		return nil
	}
	out.Interrupted, out.Method, out.InterruptBy = true, memory.VendorText, memory.ByStartOfSpeech
	if raw, ok := m.Metadata["original"]; ok {
		var original string
		if json.Unmarshal(raw, &original) != nil {
			return fault.At(fault.Invalid, at+"metadata.original", "is not a string")
		}
		clean, err := memory.CleanText(at+"metadata.original", original, memory.MaxText)
		if err != nil {
			return err
		}
		out.Generated = clean
	}
	if _, ok := heard.Align(out.Original(), out.Content); !ok {
		return fault.At(fault.Invalid, at+"metadata.original", "does not hold the content, which is the part of it that was heard")
	}
	if out.InterruptMS = out.Timestamp; out.InterruptMS == 0 {
		out.InterruptMS = now.UnixMilli()
	}
	if raw, ok := m.Metadata["interrupt_timestamp"]; ok {
		var ms int64
		if json.Unmarshal(raw, &ms) != nil {
			return fault.At(fault.Invalid, at+"metadata.interrupt_timestamp", "is not a whole number of milliseconds")
		}
		if ms, err = input.Millis(at+"metadata.interrupt_timestamp", ms); err != nil {
			return err
		}
		if ms != 0 { // clients send zero or null for absent
			out.InterruptMS, out.EvidenceMS = ms, ms
		}
	}
	return nil
}

// Page sizes of the ledger.
const (
	defaultLedgerPage = 100
	maxLedgerPage     = 1000
)

func (a messageAPI) list(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	limit, err := intParam(query, "limit", defaultLedgerPage, 1, maxLedgerPage)
	if err != nil {
		return err
	}
	after, err := intParam(query, "after_seq", 0, 0, 1<<53)
	if err != nil {
		return err
	}
	id := chi.URLParam(r, "id")
	msgs, err := a.memory.Messages(r.Context(), projectOf(r), id, memory.MessageQuery{AfterSeq: int64(after), Limit: limit + 1})
	if err != nil {
		return err
	}
	next := int64(0)
	if len(msgs) > limit {
		msgs = msgs[:limit]
		next = msgs[limit-1].Seq
	}
	head, err := a.memory.Head(r.Context(), projectOf(r), id)
	if err != nil {
		return err
	}
	entries := newLedgerEntries(msgs, !head.Agent.Status.Ended(), head.Agent.Settings.Memory.BaseSeq)
	return encode(w, http.StatusOK, ledgerPage{AgentID: id, Messages: entries, NextAfterSeq: next})
}
