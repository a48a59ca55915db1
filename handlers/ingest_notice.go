package handlers

import (
	"bytes"
	"encoding/json"
	"math"
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

func noticeLabels(in map[string]string) (map[string]string, error) {
	size := 0
	var out map[string]string
	for k, v := range in {
		size += len(k) + len(v)
		if out == nil {
			out = map[string]string{}
		}
		k, err := noticeText("payload.labels", k, maxMetadataBytes)
		if err != nil {
			return nil, err
		}
		if out[k], err = noticeText("payload.labels", v, maxMetadataBytes); err != nil {
			return nil, err
		}
	}
	if size > maxMetadataBytes || len(in) > maxMetadata {
		return nil, fault.At(fault.Invalid, "payload.labels", "has %d entries of %d bytes; at most %d of %d are allowed", len(in), size, maxMetadata, maxMetadataBytes)
	}
	return out, nil
}

// left gives how the agent ended.
func (p *noticePayload) left() (*memory.ArchiveEnd, error) {
	end := &memory.ArchiveEnd{Status: memory.Stopped}
	if strings.EqualFold(p.Status, memory.Failed.String()) {
		end.Status = memory.Failed
	}
	var err error
	end.Message, err = noticeText("payload.message", p.Message, maxNoticeName)
	return end, err
}

// noticeMessage is one message of event 103. The documentation has role, content and speech_* only; an agent with a custom LLM is likely to have the rest, as
// its history does (reference/agora-api.md 1.8).
type noticeMessage struct {
	Role          string                     `json:"role"`
	Content       json.RawMessage            `json:"content"`
	TurnID        *wholeNumber               `json:"turn_id"`
	Timestamp     wholeNumber                `json:"timestamp"`
	Metadata      map[string]json.RawMessage `json:"metadata"`
	SpeechStartMS wholeNumber                `json:"speech_start_ms"`
	SpeechEndMS   wholeNumber                `json:"speech_end_ms"`
	SpeechDelay   wholeNumber                `json:"speech_algorithmic_delay"`
}

func historyOf(list []noticeMessage) ([]memory.Message, error) {
	if len(list) > memory.MaxArchiveMessages {
		return nil, fault.At(fault.Invalid, "payload.contents", "holds %d messages; at most %d are allowed", len(list), memory.MaxArchiveMessages)
	}
	out := make([]memory.Message, 0, len(list))
	for i := range list {
		m, ok, err := list[i].message("payload.contents[" + strconv.Itoa(i) + "].")
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, m)
		}
	}
	return out, nil
}

// message gives what a message tells; ok is false for a role that no memory has, such as system.
func (m *noticeMessage) message(at string) (out memory.Message, ok bool, err error) {
	out.Role = memory.Role(m.Role)
	if out.Role != memory.User && out.Role != memory.Assistant {
		return out, false, nil
	}
	if out.Content, out.Parts, err = contentOf(at+"content", withoutNUL(m.Content)); err != nil {
		return out, false, err
	}
	if m.TurnID != nil {
		out.TurnID, out.GivenTurn = max(int64(*m.TurnID), 0), true
	}
	if out.Timestamp, err = m.Timestamp.stamp(at + "timestamp"); err != nil {
		return out, false, err
	}
	if out.Timestamp == 0 && m.SpeechStartMS > 1e12 { // one source says that it counts from the start of the session
		out.Timestamp = int64(m.SpeechStartMS)
	}
	if len(m.Metadata) > maxMetadata {
		return out, false, fault.At(fault.Invalid, at+"metadata", "has %d keys; at most %d are allowed", len(m.Metadata), maxMetadata)
	}
	metadata := make(map[string]json.RawMessage, len(m.Metadata)) // a whole history is not refused for a character
	for k, v := range m.Metadata {
		metadata[strings.ReplaceAll(k, "\x00", "\uFFFD")] = withoutNUL(v)
	}
	if out.Metadata, err = foreignMetadata(at+"metadata", metadata); err != nil {
		return out, false, err
	}
	for k, v := range map[string]wholeNumber{"speech_start_ms": m.SpeechStartMS, "speech_end_ms": m.SpeechEndMS, "speech_algorithmic_delay": m.SpeechDelay} {
		if v != 0 {
			if out.Metadata == nil {
				out.Metadata = map[string]json.RawMessage{}
			}
			out.Metadata[k] = strconv.AppendInt(nil, int64(v), 10)
		}
	}
	return out, true, m.ours(&out, at)
}

// ours reads the metadata that the ledger has fields for. What cannot be read there tells nothing.
func (m *noticeMessage) ours(out *memory.Message, at string) error {
	text := func(key string) (s string) {
		if json.Unmarshal(withoutNUL(m.Metadata[key]), &s) != nil {
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
	if out.Role != memory.Assistant || json.Unmarshal(m.Metadata["interrupted"], &cut) != nil || !cut {
		return nil
	}
	out.Interrupted = true
	var when wholeNumber
	if raw := m.Metadata["interrupt_timestamp"]; raw != nil && json.Unmarshal(raw, &when) == nil {
		var err error
		if out.InterruptMS, err = when.stamp(at + "metadata.interrupt_timestamp"); err != nil {
			return err
		}
	}
	var err error
	out.Generated, err = noticeText(at+"metadata.original", text("original"), memory.MaxText)
	return err
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
	Module  string      `json:"module"`
	TurnID  wholeNumber `json:"turn_id"`
	Code    wholeNumber `json:"code"`
	Message string      `json:"message"`
}

func errorsOf(list []noticeError) ([]memory.ArchiveError, error) {
	out := make([]memory.ArchiveError, 0, len(list))
	for _, e := range list {
		module, err := noticeText("payload.errors.module", clip(e.Module, 60), maxNoticeError)
		if err != nil {
			return nil, err
		}
		message, err := noticeText("payload.errors.message", clip(e.Message, maxNoticeError), 4*maxNoticeError)
		if err != nil {
			return nil, err
		}
		out = append(out, memory.ArchiveError{TurnID: int64(e.TurnID), Module: module, Code: int(e.Code), Message: message})
	}
	return out, nil
}

// noticeMetrics is a row of event 111.
type noticeMetrics struct {
	TurnID  wholeNumber `json:"turn_id"`
	LLMTTFB wholeNumber `json:"llm_ttfb"`
	LLMTTFS wholeNumber `json:"llm_ttfs"`
}

func metricsOf(list []noticeMetrics) []memory.ArchiveTurn {
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
		Type string      `json:"type"`
	} `json:"start"`
	End struct {
		At       wholeNumber `json:"end_at"`
		Type     string      `json:"type"`
		Metadata struct {
			CausedBy string `json:"caused_by"`
			Reason   string `json:"reason"`
			Details  string `json:"details"`
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

func turnsOf(list []noticeTurn) ([]memory.ArchiveTurn, error) {
	out := make([]memory.ArchiveTurn, 0, len(list))
	for i := range list {
		in := &list[i]
		t := memory.ArchiveTurn{
			TurnID: int64(in.TurnID), StartType: clip(in.Start.Type, 40), EndType: clip(in.End.Type, 40), E2EMS: in.Metrics.E2E.ms(),
			TokenMS: in.Metrics.Segmented["llm_ttft"].ms(), SentenceMS: in.Metrics.Segmented["llm_ftfs"].ms(),
		}
		at := "payload.turns[" + strconv.Itoa(i) + "]."
		var err error
		if t.StartMS, err = in.Start.At.stamp(at + "start.start_at"); err != nil {
			return nil, err
		}
		if t.EndMS, err = in.End.At.stamp(at + "end.end_at"); err != nil {
			return nil, err
		}
		for field, text := range map[*string]string{&t.CausedBy: clip(in.End.Metadata.CausedBy, 60), &t.Reason: clip(in.End.Metadata.Reason, 60), &t.Details: clip(in.End.Metadata.Details, maxNoticeError)} {
			if *field, err = noticeText(at+"end.metadata", text, 4*maxNoticeError); err != nil {
				return nil, err
			}
		}
		out = append(out, t)
	}
	return out, nil
}
