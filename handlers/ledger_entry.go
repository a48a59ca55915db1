package handlers

import (
	"encoding/json"

	"github.com/heardlog/heardlog/memory"
)

// ledgerEntry is a message with all that is known of it.
type ledgerEntry struct {
	Seq        int64           `json:"seq"`
	ID         string          `json:"id,omitempty"`
	Role       string          `json:"role"`
	Content    string          `json:"content"`
	TurnID     int64           `json:"turn_id"`
	Timestamp  int64           `json:"timestamp"`
	State      string          `json:"state"` // final, superseded or empty
	Metadata   json.RawMessage `json:"metadata"`
	Parts      json.RawMessage `json:"parts,omitempty"`
	ToolCalls  json.RawMessage `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
	Name       string          `json:"name,omitempty"`

	// The three truths about an assistant message.
	Generated         *string       `json:"generated,omitempty"`
	GeneratedComplete *bool         `json:"generated_complete,omitempty"`
	Sent              *string       `json:"sent,omitempty"`
	Heard             *string       `json:"heard,omitempty"`
	Evidence          *evidenceJSON `json:"evidence,omitempty"`

	FinishReason string          `json:"finish_reason,omitempty"`
	Usage        json.RawMessage `json:"usage,omitempty"`
	Timings      *memory.Timings `json:"timings,omitempty"`
	Failure      *memory.Failure `json:"failure,omitempty"`
}

type evidenceJSON struct {
	Method string `json:"method"`
	At     int64  `json:"at,omitempty"` // Unix ms
}

func ledgerEntries(msgs []memory.Message) []ledgerEntry {
	out := make([]ledgerEntry, len(msgs))
	for i, m := range msgs {
		out[i] = newLedgerEntry(m)
	}
	return out
}

func newLedgerEntry(m memory.Message) ledgerEntry {
	e := ledgerEntry{
		Seq: m.Seq, ID: m.ID, Role: string(m.Role), Content: m.Content, TurnID: m.TurnID, Timestamp: m.Timestamp,
		State: "final", Metadata: m.AppendMetadata(nil), Parts: m.Parts, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID,
		Name: m.ToolName, FinishReason: m.FinishRsn, Usage: m.Usage, Timings: m.Timings, Failure: m.Failure,
	}
	if m.State != memory.Final {
		e.State = string(m.State)
	}
	if m.Role == memory.Assistant {
		generated, sent, complete := m.Original(), m.SentText(), !m.CutGenerated
		e.Generated, e.Sent, e.Heard, e.GeneratedComplete = &generated, &sent, &m.Content, &complete
		if m.Method != "" {
			e.Evidence = &evidenceJSON{Method: string(m.Method), At: m.EvidenceMS}
		}
	}
	return e
}
