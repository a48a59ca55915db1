package memory

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/heardlog/heardlog/internal/text"
)

// AppendHistory appends the message to dst as JSON, in the form of Agora's short-term memory: role,
// content, turn_id, timestamp and metadata. content is what was heard; metadata.original, only if
// interrupted, is what was generated; metadata.finish_reason is set only if the model was limited.
func (m Message) AppendHistory(dst []byte) []byte {
	dst = append(dst, `{"role":"`...)
	dst = append(dst, m.Role...)
	dst = append(dst, `","content":`...)
	dst = text.AppendJSON(dst, m.Content)
	dst = append(dst, `,"turn_id":`...)
	dst = strconv.AppendInt(dst, m.TurnID, 10)
	dst = append(dst, `,"timestamp":`...)
	dst = strconv.AppendInt(dst, m.Timestamp, 10)
	dst = append(dst, `,"metadata":`...)
	dst = m.AppendMetadata(dst)
	return append(dst, '}')
}

// AppendMetadata appends the metadata object of AppendHistory.
func (m Message) AppendMetadata(dst []byte) []byte {
	dst = append(dst, `{"source":"`...)
	dst = append(dst, shownSource(&m)...)
	dst = append(dst, '"')
	if m.Interrupted {
		dst = append(dst, `,"interrupted":true,"interrupt_timestamp":`...)
		dst = strconv.AppendInt(dst, m.InterruptMS, 10)
		dst = append(dst, `,"original":`...)
		dst = text.AppendJSON(dst, m.Original())
	}
	if _, own := m.Metadata["finish_reason"]; Limited(m.FinishRsn) && !own {
		dst = text.AppendJSON(append(dst, `,"finish_reason":`...), m.FinishRsn)
	}
	switch len(m.Metadata) {
	case 0:
	case 1: // by far the usual case: the speaker
		for k, v := range m.Metadata {
			dst = appendMember(dst, k, v)
		}
	default:
		for _, k := range slices.Sorted(maps.Keys(m.Metadata)) {
			dst = appendMember(dst, k, m.Metadata[k])
		}
	}
	return append(dst, '}')
}

// shownSource returns the source as clients know it: a think that a silence caused is a command for
// them.
func shownSource(m *Message) Source {
	switch {
	case m.Role == User && m.Source == SourceSilence:
		return SourceCommand
	case m.Source != "":
		return m.Source
	case m.Role == User || m.Role.Instructs():
		return SourceMessage
	case m.Role == Tool:
		return SourceTool
	}
	return SourceLLM
}

func appendMember(dst []byte, k string, v json.RawMessage) []byte {
	dst = append(dst, ',')
	dst = text.AppendJSON(dst, k)
	dst = append(dst, ':')
	return append(dst, v...)
}
