package ingest

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/input"
)

func labels(in looseObject, o *Omitted) map[string]string {
	if in.bad {
		o.Add("payload.labels", "is not an object")
	}
	size := 0
	var out map[string]string
	// Sorted, so that a repeat leaves out the same ones.
	for _, k := range slices.Sorted(maps.Keys(in.m)) {
		field := "payload.labels." + text.Clip(k, 60)
		var v string
		if json.Unmarshal(in.m[k], &v) != nil {
			o.Add(field, "is not a string")
			continue
		}
		if size+len(k)+len(v) > input.MaxMetadataBytes || len(out) == input.MaxMetadata {
			o.Add(field, "is beyond the %d labels of %d bytes that are kept", input.MaxMetadata, input.MaxMetadataBytes)
			continue
		}
		size += len(k) + len(v)
		if out == nil {
			out = map[string]string{}
		}
		out[o.Cut(field, k, input.MaxMetadataBytes)] = o.Cut(field, v, input.MaxMetadataBytes)
	}
	return out
}

// left returns how the agent ended.
func (p *payload) left(o *Omitted) *memory.ArchiveEnd {
	end := &memory.ArchiveEnd{Status: memory.Stopped, Message: p.Message.text("payload.message", maxName, o)}
	if strings.EqualFold(p.Status.text("payload.status", maxName, o), memory.Failed.String()) {
		end.Status = memory.Failed
	}
	return end
}

// message is one message of event 103. Agora documents role, content and the speech_* fields; an
// agent with a custom LLM is likely to send the other fields of its history, too.
type message struct {
	Role          looseText       `json:"role"`
	Content       json.RawMessage `json:"content"`
	TurnID        *wholeNumber    `json:"turn_id"`
	Timestamp     wholeNumber     `json:"timestamp"`
	Metadata      looseObject     `json:"metadata"`
	SpeechStartMS wholeNumber     `json:"speech_start_ms"`
	SpeechEndMS   wholeNumber     `json:"speech_end_ms"`
	SpeechDelay   wholeNumber     `json:"speech_algorithmic_delay"`
}

func history(in looseList[message], o *Omitted) []memory.Message {
	list, at := in.list("payload.contents", maxMessages, o)
	out := make([]memory.Message, 0, len(list))
	for i := range list {
		if m, ok := list[i].decode("payload.contents["+strconv.Itoa(at[i])+"].", o); ok {
			out = append(out, m)
		}
	}
	return out
}

// cutKey marks, in a message's metadata, content that was too long to be kept whole.
const cutKey = "heardlog_cut"

// decode returns the message. ok is false for a role that no memory has, such as system.
func (m *message) decode(at string, o *Omitted) (out memory.Message, ok bool) {
	if m.Role.bad {
		o.Add(at+"role", "is not a string")
	}
	out.Role = memory.Role(m.Role.s)
	if out.Role != memory.User && out.Role != memory.Assistant {
		return out, false
	}
	var cut bool
	out.Content, out.Parts, cut = content(at+"content", m.Content, o)
	if m.TurnID != nil {
		out.TurnID, out.GivenTurn = max(int64(*m.TurnID), 0), true
	}
	out.Timestamp = m.Timestamp.time(at+"timestamp", o)
	// Smaller ones may count from the start of the session.
	if out.Timestamp == 0 && m.SpeechStartMS > 1e12 {
		out.Timestamp = int64(m.SpeechStartMS)
	}
	out.Metadata = m.metadata(at+"metadata", o)
	add := func(k string, v json.RawMessage) {
		if out.Metadata == nil {
			out.Metadata = map[string]json.RawMessage{}
		}
		out.Metadata[k] = v
	}
	for k, v := range map[string]wholeNumber{"speech_start_ms": m.SpeechStartMS, "speech_end_ms": m.SpeechEndMS, "speech_algorithmic_delay": m.SpeechDelay} {
		if v != 0 {
			add(k, strconv.AppendInt(nil, int64(v), 10))
		}
	}
	if cut {
		add(cutKey, json.RawMessage("true"))
	}
	m.derived(&out, at, o)
	return out, true
}

// metadata returns the metadata without the keys that derived reads. It returns none of it if there
// is too much or it cannot be read.
func (m *message) metadata(field string, o *Omitted) map[string]json.RawMessage {
	switch {
	case m.Metadata.bad:
		o.Add(field, "is not an object")
		return nil
	case len(m.Metadata.m) > input.MaxMetadata:
		o.Add(field, "has %d keys; at most %d are kept", len(m.Metadata.m), input.MaxMetadata)
		return nil
	}
	in := make(map[string]json.RawMessage, len(m.Metadata.m))
	for k, v := range m.Metadata.m {
		in[strings.ReplaceAll(k, "\x00", "\uFFFD")] = input.ReplaceNUL(v)
	}
	out, err := input.Metadata(field, in)
	o.AddError(err)
	return out
}

// derived reads the metadata for which a message has fields. It ignores what it cannot read.
func (m *message) derived(out *memory.Message, at string, o *Omitted) {
	text := func(key string) (s string) {
		if json.Unmarshal(input.ReplaceNUL(m.Metadata.m[key]), &s) != nil {
			return ""
		}
		return s
	}
	if source := text("source"); slices.Contains(input.Sources(out.Role), source) {
		out.Source = memory.Source(source)
	}
	var cut bool
	if out.Role != memory.Assistant || json.Unmarshal(m.Metadata.m["interrupted"], &cut) != nil || !cut {
		return
	}
	out.Interrupted = true
	var when wholeNumber
	if raw := m.Metadata.m["interrupt_timestamp"]; raw != nil && json.Unmarshal(raw, &when) == nil {
		out.InterruptMS = when.time(at+"metadata.interrupt_timestamp", o)
	}
	out.Generated = o.Cut(at+"metadata.original", text("original"), memory.MaxText)
}

type agentErr struct {
	Module  looseText   `json:"module"`
	TurnID  wholeNumber `json:"turn_id"`
	Code    wholeNumber `json:"code"`
	Message looseText   `json:"message"`
}

func agentErrors(in looseList[agentErr], o *Omitted) []memory.ArchiveError {
	list, at := in.list("payload.errors", maxRows, o)
	out := make([]memory.ArchiveError, 0, len(list))
	for i, e := range list {
		field := "payload.errors[" + strconv.Itoa(at[i]) + "]."
		out = append(out, memory.ArchiveError{
			TurnID: int64(e.TurnID), Module: e.Module.text(field+"module", 60, o), Code: int(e.Code), Message: e.Message.text(field+"message", maxMessage, o),
		})
	}
	return out
}

// metrics is a row of event 111.
type metrics struct {
	TurnID  wholeNumber `json:"turn_id"`
	LLMTTFB wholeNumber `json:"llm_ttfb"`
	LLMTTFS wholeNumber `json:"llm_ttfs"`
}

func metricRows(in looseList[metrics], o *Omitted) []memory.ArchiveTurn {
	list, _ := in.list("payload.metrics", maxRows, o)
	out := make([]memory.ArchiveTurn, 0, len(list))
	for _, m := range list {
		out = append(out, memory.ArchiveTurn{TurnID: int64(m.TurnID), TokenMS: m.LLMTTFB.duration(), SentenceMS: m.LLMTTFS.duration()})
	}
	return out
}

// turn is a row of event 112.
type turn struct {
	TurnID wholeNumber `json:"turn_id"`
	Start  struct {
		At   wholeNumber `json:"start_at"`
		Type looseText   `json:"type"`
	} `json:"start"`
	End struct {
		At       wholeNumber `json:"end_at"`
		Type     looseText   `json:"type"`
		Metadata struct {
			CausedBy looseText `json:"caused_by"`
			Reason   looseText `json:"reason"`
			Details  looseText `json:"details"`
		} `json:"metadata"`
	} `json:"end"`
	Metrics struct {
		E2E       wholeNumber `json:"e2e_latency_ms"`
		Segmented latencies   `json:"segmented_latency_ms"`
	} `json:"metrics"`
}

// latencies come as an object here, and as a list of name and latency in Agora's turns call.
type latencies map[string]wholeNumber

// UnmarshalJSON implements json.Unmarshaler.
func (l *latencies) UnmarshalJSON(b []byte) error {
	var object map[string]wholeNumber
	if json.Unmarshal(b, &object) == nil {
		*l = object
		return nil
	}
	var list []struct {
		Name    string      `json:"name"`
		Latency wholeNumber `json:"latency"`
	}
	if json.Unmarshal(b, &list) != nil {
		return nil // a measurement that cannot be read
	}
	*l = latencies{}
	for _, e := range list {
		(*l)[e.Name] = e.Latency
	}
	return nil
}

func turnRows(list looseList[turn], o *Omitted) []memory.ArchiveTurn {
	rows, at := list.list("payload.turns", maxRows, o)
	out := make([]memory.ArchiveTurn, 0, len(rows))
	for i := range rows {
		in, field := &rows[i], "payload.turns["+strconv.Itoa(at[i])+"]."
		why := in.End.Metadata
		out = append(out, memory.ArchiveTurn{
			TurnID: int64(in.TurnID), StartType: in.Start.Type.text(field+"start.type", 40, o), EndType: in.End.Type.text(field+"end.type", 40, o),
			E2EMS: in.Metrics.E2E.duration(), TokenMS: in.Metrics.Segmented["llm_ttft"].duration(), SentenceMS: in.Metrics.Segmented["llm_ftfs"].duration(),
			StartMS: in.Start.At.time(field+"start.start_at", o), EndMS: in.End.At.time(field+"end.end_at", o),
			CausedBy: why.CausedBy.text(field+"end.metadata.caused_by", 60, o), Reason: why.Reason.text(field+"end.metadata.reason", 60, o),
			Details: why.Details.text(field+"end.metadata.details", maxMessage, o),
		})
	}
	return out
}
