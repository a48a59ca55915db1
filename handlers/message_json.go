package handlers

import (
	"encoding/json"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// ledgerEntry is a message with everything that is known of it.
type ledgerEntry struct {
	Seq       int64       `json:"seq"`
	ID        string      `json:"id,omitempty"`
	Role      memory.Role `json:"role"`
	Content   string      `json:"content"`
	TurnID    int64       `json:"turn_id"`
	Timestamp int64       `json:"timestamp"` // Unix ms
	// Final, superseded, empty, unplayed, replaced, dropped, merged or removed.
	State      string          `json:"state"`
	Metadata   json.RawMessage `json:"metadata"`
	Parts      json.RawMessage `json:"parts,omitempty"`
	ToolCalls  json.RawMessage `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
	Name       string          `json:"name,omitempty"`
	*answerJSON
	FinishReason string          `json:"finish_reason,omitempty"`
	Usage        json.RawMessage `json:"usage,omitempty"`
	Upstream     string          `json:"upstream,omitempty"`
	Model        string          `json:"model,omitempty"`
	Cost         *costJSON       `json:"cost,omitempty"`
	Filler       string          `json:"filler,omitempty"`
	Recalled     []string        `json:"recalled,omitempty"`
	labelsJSON
	InMemory *bool           `json:"in_memory,omitempty"` // false for what only the ledger holds
	Timings  *memory.Timings `json:"timings,omitempty"`
	Failure  *memory.Failure `json:"failure,omitempty"`
}

// answerJSON is what assistant messages have.
type answerJSON struct {
	Generated string        `json:"generated"`
	Complete  bool          `json:"generated_complete"`
	Sent      string        `json:"sent"`
	Heard     string        `json:"heard"`
	Evidence  *evidenceJSON `json:"evidence,omitempty"`
	Audio     []audioJSON   `json:"audio,omitempty"`
	// Provisional: only our own connection shows that the answer was heard, and the agent still
	// runs.
	Provisional bool `json:"provisional,omitempty"`
	Ghost       bool `json:"ghost,omitempty"` // a later answer to the same words replaced it
}

// audioJSON is a piece of an answer's audio.
type audioJSON struct {
	StartMS int64   `json:"start_ms,omitempty"` // Unix ms; 0 is unknown
	HeardMS *int64  `json:"heard_ms,omitempty"` // nil is unknown
	Words   string  `json:"words,omitempty"`
	Ends    []int64 `json:"word_ends_ms,omitempty"` // after the start
}

// audioOf returns what is known of the times of an answer's words. A report about the whole audio
// comes before those about pieces of it.
func audioOf(m *memory.Message) (out []audioJSON) {
	p := m.Heard().Playback
	if p == nil {
		return nil
	}
	if a := p.Audio; a != nil {
		out = append(out, audioJSON{StartMS: a.StartMS, HeardMS: &a.PlayedMS, Words: a.Text, Ends: a.Ends})
	}
	for _, s := range p.Stretches {
		out = append(out, audioJSON{StartMS: s.StartMS, Words: s.Text, Ends: s.Ends})
	}
	return out
}

type evidenceJSON struct {
	Method     memory.Method `json:"method"`
	At         int64         `json:"at,omitempty"` // Unix ms
	Confidence int64         `json:"confidence,omitempty"`
	// Earlier is evidence that was replaced, oldest first.
	Earlier []pastJSON `json:"earlier,omitempty"`
}

type pastJSON struct {
	Method     memory.Method `json:"method"`
	Heard      string        `json:"heard"`
	State      string        `json:"state,omitempty"` // absent if the answer counted
	At         int64         `json:"at,omitempty"`    // Unix ms
	Confidence int64         `json:"confidence,omitempty"`
	Until      int64         `json:"until"` // Unix ms
}

// labelsJSON is what the author of a message said about it.
type labelsJSON struct {
	Status     memory.MessageStatus `json:"status,omitempty"`
	Scope      *memory.Scope        `json:"scope,omitempty"`
	Importance *float64             `json:"importance,omitempty"`
	Category   string               `json:"category,omitempty"`
}

func newLabels(m *memory.Message) labelsJSON {
	out := labelsJSON{Status: m.Status, Importance: m.Filed().Importance, Category: m.Filed().Category}
	if scope := m.Filed().Scope; scope != (memory.Scope{}) {
		out.Scope = &scope
	}
	return out
}

// newLedgerEntry returns a message as the ledger shows it. live reports whether the agent still
// runs; base is the first Seq of its memory.
func newLedgerEntry(m *memory.Message, live bool, base int64) ledgerEntry {
	out := ledgerEntry{
		Seq: m.Seq, ID: m.ID, Role: m.Role, Content: m.Content, TurnID: m.TurnID, Timestamp: m.Timestamp, State: string(m.State),
		Metadata: m.AppendMetadata(nil), Parts: m.Parts, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, Name: m.ToolName,
		FinishReason: m.FinishRsn, Usage: m.Usage, Upstream: m.Made().Upstream, Model: m.Made().Model, Cost: costOf(m), Filler: m.Made().Filler, Recalled: m.Made().Recalled, labelsJSON: newLabels(m),
		Timings: m.Timings, Failure: m.Failure,
	}
	if m.State == memory.Final {
		out.State = "final"
	}
	if m.Role == memory.Assistant {
		out.answerJSON = &answerJSON{
			Generated: m.Produced(), Complete: !m.CutGenerated, Sent: m.SentText(), Heard: m.Content,
			Provisional: live && m.Provisional(), Ghost: m.State == memory.Superseded,
			Audio: audioOf(m),
		}
		if m.Method != "" {
			out.Evidence = &evidenceJSON{Method: m.Method, At: m.EvidenceMS, Confidence: m.Confidence}
			for _, p := range m.Heard().Earlier {
				out.Evidence.Earlier = append(out.Evidence.Earlier, pastJSON{
					Method: p.Method, Heard: p.Heard, State: string(p.State), At: p.AtMS, Confidence: p.Confidence, Until: p.UntilMS,
				})
			}
		}
	}
	switch {
	case m.Seq < base, m.Status != memory.Accepted, m.State == memory.Dropped, m.State == memory.Merged, m.State == memory.Removed:
		out.InMemory = new(bool)
	}
	return out
}

func newLedgerEntries(msgs []memory.Message, live bool, base int64) []ledgerEntry {
	out := make([]ledgerEntry, len(msgs))
	for i := range msgs {
		out[i] = newLedgerEntry(&msgs[i], live, base)
	}
	return out
}

// encodeLedgerEntry returns a message's JSON for a live tail.
func encodeLedgerEntry(m *memory.Message, live bool, base int64) ([]byte, error) {
	return marshal(newLedgerEntry(m, live, base))
}

// ledgerPage is a page of the ledger. NextCursor is absent on the last page.
type ledgerPage struct {
	AgentID    string        `json:"agent_id"`
	Messages   []ledgerEntry `json:"messages"`
	NextCursor string        `json:"next_cursor,omitempty"`
}

// appendAnswer holds the messages as stored, and what the agent's policy merged and dropped.
type appendAnswer struct {
	AgentID  string        `json:"agent_id"`
	Messages []ledgerEntry `json:"messages"`
	Merged   []mergedJSON  `json:"merged,omitempty"`
	Dropped  []int64       `json:"dropped,omitempty"`
}

type mergedJSON struct {
	Seq  int64 `json:"seq"`
	Into int64 `json:"into"`
}

func newAppendAnswer(id string, done agents.Appended) appendAnswer {
	// Nothing is provisional: the caller says that it was said.
	out := appendAnswer{AgentID: id, Messages: newLedgerEntries(done.Messages, false, 0), Dropped: done.Dropped}
	for _, m := range done.Merged {
		out.Merged = append(out.Merged, mergedJSON(m))
	}
	return out
}

// contentJSON returns a message's content: its parts, null for tool calls without a text, or the
// text.
func contentJSON(parts json.RawMessage, text string, toolCalls json.RawMessage) any {
	switch {
	case len(parts) > 0:
		return parts
	case text == "" && len(toolCalls) > 0:
		return nil
	}
	return text
}
