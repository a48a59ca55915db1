package handlers

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// wholeNumber is a number that may come as a string (reference/agora-api.md 5.5) or with a fraction, which is cut off. What is neither is 0: a notification is
// not refused for a measurement.
type wholeNumber int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *wholeNumber) UnmarshalJSON(b []byte) error {
	f, err := strconv.ParseFloat(string(bytes.Trim(b, `"`)), 64)
	if err != nil || math.IsNaN(f) || math.Abs(f) > 1<<53 {
		f = 0
	}
	*n = wholeNumber(f)
	return nil
}

// stamp gives a time in Unix ms: ten digits and fewer are seconds, as most of Agora's are.
func (n wholeNumber) stamp(field string) (int64, error) {
	if n > 0 && n < 1e9 {
		return 0, fault.At(fault.Invalid, field, "%d is not a time in Unix seconds or milliseconds", n)
	}
	return millis(field, int64(n))
}

// ms gives a length of time, 0 where it cannot be one.
func (n wholeNumber) ms() int64 {
	const longest = 72 * 60 * 60 * 1000
	if n < 0 || n > longest {
		return 0
	}
	return int64(n)
}

// noticeText gives a text as it is kept. NUL, which no store takes, becomes U+FFFD: what somebody said is not refused for it.
func noticeText(field, s string, limit int) (string, error) {
	return memory.CleanText(field, strings.ReplaceAll(s, "\x00", "\uFFFD"), limit)
}

func noticeLabels(in looseObject, o *omitted) map[string]string {
	if in.bad {
		o.add("payload.labels", "is no object")
	}
	size := 0
	var out map[string]string
	for _, k := range slices.Sorted(maps.Keys(in.m)) { // in order, so that a repeat leaves out the same
		field := "payload.labels." + clip(k, 60)
		var v string
		if json.Unmarshal(in.m[k], &v) != nil {
			o.add(field, "is no string")
			continue
		}
		if size += len(k) + len(v); size > maxMetadataBytes || len(out) == maxMetadata {
			o.add(field, "is beyond the %d labels of %d bytes that are kept", maxMetadata, maxMetadataBytes)
			size -= len(k) + len(v)
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[cutText(field, k, maxMetadataBytes, o)] = cutText(field, v, maxMetadataBytes, o)
	}
	return out
}

// left gives how the agent ended.
func (p *noticePayload) left(o *omitted) *memory.ArchiveEnd {
	end := &memory.ArchiveEnd{Status: memory.Stopped, Message: p.Message.text("payload.message", maxNoticeName, o)}
	if strings.EqualFold(p.Status.text("payload.status", maxNoticeName, o), memory.Failed.String()) {
		end.Status = memory.Failed
	}
	return end
}

// noticeMessage is one message of event 103. The documentation has role, content and speech_* only; an agent with a custom LLM is likely to have the rest, as
// its history does (reference/agora-api.md 1.8).
type noticeMessage struct {
	Role          looseText       `json:"role"`
	Content       json.RawMessage `json:"content"`
	TurnID        *wholeNumber    `json:"turn_id"`
	Timestamp     wholeNumber     `json:"timestamp"`
	Metadata      looseObject     `json:"metadata"`
	SpeechStartMS wholeNumber     `json:"speech_start_ms"`
	SpeechEndMS   wholeNumber     `json:"speech_end_ms"`
	SpeechDelay   wholeNumber     `json:"speech_algorithmic_delay"`
}

func historyOf(in looseList[noticeMessage], o *omitted) []memory.Message {
	list, at := in.list("payload.contents", memory.MaxArchiveMessages, o)
	out := make([]memory.Message, 0, len(list))
	for i := range list {
		if m, ok := list[i].message("payload.contents["+strconv.Itoa(at[i])+"].", o); ok {
			out = append(out, m)
		}
	}
	return out
}

// cutKey is the member of a message's metadata that tells that its content was too long to be kept whole.
const cutKey = "heardlog_cut"

// message gives what a message tells; ok is false for a role that no memory has, such as system.
func (m *noticeMessage) message(at string, o *omitted) (out memory.Message, ok bool) {
	if m.Role.bad {
		o.add(at+"role", "is no string")
	}
	out.Role = memory.Role(m.Role.s)
	if out.Role != memory.User && out.Role != memory.Assistant {
		return out, false
	}
	var cut bool
	out.Content, out.Parts, cut = noticeContent(at+"content", m.Content, o)
	if m.TurnID != nil {
		out.TurnID, out.GivenTurn = max(int64(*m.TurnID), 0), true
	}
	out.Timestamp = m.Timestamp.stampOr(at+"timestamp", o)
	if out.Timestamp == 0 && m.SpeechStartMS > 1e12 { // one source says that it counts from the start of the session
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
	m.ours(&out, at, o)
	return out, true
}

// metadata gives what the message's metadata has beside that of ours, none of it where it is too much or cannot be read.
func (m *noticeMessage) metadata(field string, o *omitted) map[string]json.RawMessage {
	switch {
	case m.Metadata.bad:
		o.add(field, "is no object")
		return nil
	case len(m.Metadata.m) > maxMetadata:
		o.add(field, "has %d keys; at most %d are kept", len(m.Metadata.m), maxMetadata)
		return nil
	}
	in := make(map[string]json.RawMessage, len(m.Metadata.m))
	for k, v := range m.Metadata.m {
		in[strings.ReplaceAll(k, "\x00", "\uFFFD")] = withoutNUL(v)
	}
	out, err := foreignMetadata(field, in)
	o.err(err)
	return out
}

// ours reads the metadata that the ledger has fields for. What cannot be read there tells nothing.
func (m *noticeMessage) ours(out *memory.Message, at string, o *omitted) {
	text := func(key string) (s string) {
		if json.Unmarshal(withoutNUL(m.Metadata.m[key]), &s) != nil {
			return ""
		}
		return s
	}
	for _, s := range sourcesOf(out.Role) {
		if s == text("source") {
			out.Source = memory.Source(s)
		}
	}
	var cut bool
	if out.Role != memory.Assistant || json.Unmarshal(m.Metadata.m["interrupted"], &cut) != nil || !cut {
		return
	}
	out.Interrupted = true
	var when wholeNumber
	if raw := m.Metadata.m["interrupt_timestamp"]; raw != nil && json.Unmarshal(raw, &when) == nil {
		out.InterruptMS = when.stampOr(at+"metadata.interrupt_timestamp", o)
	}
	out.Generated = cutText(at+"metadata.original", text("original"), memory.MaxText, o)
}

// withoutNUL gives JSON whose strings hold U+FFFD in place of each NUL.
func withoutNUL(raw json.RawMessage) json.RawMessage {
	if !hasNUL(raw) {
		return raw
	}
	out := bytes.Clone(raw)
	for i := 0; i+5 < len(out); i++ {
		if out[i] == '\\' {
			if string(out[i+1:i+6]) == "u0000" {
				copy(out[i+1:], "ufffd")
			}
			i++ // the escaped character
		}
	}
	return out
}

type noticeError struct {
	Module  looseText   `json:"module"`
	TurnID  wholeNumber `json:"turn_id"`
	Code    wholeNumber `json:"code"`
	Message looseText   `json:"message"`
}

func errorsOf(in looseList[noticeError], o *omitted) []memory.ArchiveError {
	list, at := in.list("payload.errors", maxNoticeRows, o)
	out := make([]memory.ArchiveError, 0, len(list))
	for i, e := range list {
		field := "payload.errors[" + strconv.Itoa(at[i]) + "]."
		out = append(out, memory.ArchiveError{
			TurnID: int64(e.TurnID), Module: e.Module.text(field+"module", 60, o), Code: int(e.Code), Message: e.Message.text(field+"message", maxNoticeError, o),
		})
	}
	return out
}

// noticeMetrics is a row of event 111.
type noticeMetrics struct {
	TurnID  wholeNumber `json:"turn_id"`
	LLMTTFB wholeNumber `json:"llm_ttfb"`
	LLMTTFS wholeNumber `json:"llm_ttfs"`
}

func metricsOf(in looseList[noticeMetrics], o *omitted) []memory.ArchiveTurn {
	list, _ := in.list("payload.metrics", maxNoticeRows, o)
	out := make([]memory.ArchiveTurn, 0, len(list))
	for _, m := range list {
		out = append(out, memory.ArchiveTurn{TurnID: int64(m.TurnID), TokenMS: m.LLMTTFB.ms(), SentenceMS: m.LLMTTFS.ms()})
	}
	return out
}

// noticeTurn is a row of event 112 (reference/agora-api.md 1.9).
type noticeTurn struct {
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

// latencies come as an object here and as a list of name and latency in the turns call (reference/agora-api.md 0.11).
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

func turnsOf(list looseList[noticeTurn], o *omitted) []memory.ArchiveTurn {
	rows, at := list.list("payload.turns", maxNoticeRows, o)
	out := make([]memory.ArchiveTurn, 0, len(rows))
	for i := range rows {
		in, field := &rows[i], "payload.turns["+strconv.Itoa(at[i])+"]."
		why := in.End.Metadata
		out = append(out, memory.ArchiveTurn{
			TurnID: int64(in.TurnID), StartType: in.Start.Type.text(field+"start.type", 40, o), EndType: in.End.Type.text(field+"end.type", 40, o), E2EMS: in.Metrics.E2E.ms(),
			TokenMS: in.Metrics.Segmented["llm_ttft"].ms(), SentenceMS: in.Metrics.Segmented["llm_ftfs"].ms(),
			StartMS: in.Start.At.stampOr(field+"start.start_at", o), EndMS: in.End.At.stampOr(field+"end.end_at", o),
			CausedBy: why.CausedBy.text(field+"end.metadata.caused_by", 60, o), Reason: why.Reason.text(field+"end.metadata.reason", 60, o),
			Details: why.Details.text(field+"end.metadata.details", maxNoticeError, o),
		})
	}
	return out
}
