package memory

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// AppendHistory appends the message to dst as JSON, in the form of Agora's short-term memory: role,
// content, turn_id, timestamp and metadata. content is what was heard; metadata.original, only if
// interrupted, is what was generated.
func (m Message) AppendHistory(dst []byte) []byte {
	dst = append(dst, `{"role":"`...)
	dst = append(dst, m.Role...)
	dst = append(dst, `","content":`...)
	dst = AppendString(dst, m.Content)
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
	dst = append(dst, m.shownSource()...)
	dst = append(dst, '"')
	if m.Interrupted {
		dst = append(dst, `,"interrupted":true,"interrupt_timestamp":`...)
		dst = strconv.AppendInt(dst, m.InterruptMS, 10)
		dst = append(dst, `,"original":`...)
		dst = AppendString(dst, m.Original())
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
func (m Message) shownSource() Source {
	switch {
	case m.Role == User && m.Source == SourceSilence:
		return SourceCommand
	case m.Source != "":
		return m.Source
	case m.Role == User || instructs(m.Role):
		return SourceMessage
	}
	return SourceLLM
}

func appendMember(dst []byte, k string, v json.RawMessage) []byte {
	dst = append(dst, ',')
	dst = AppendString(dst, k)
	dst = append(dst, ':')
	return append(dst, v...)
}

// AppendString appends s as a JSON string. Text without anything to escape is copied.
func AppendString(dst []byte, s string) []byte {
	plain := true
	for i := plainASCII(s); i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if (r == utf8.RuneError && n == 1) || r == '\u2028' || r == '\u2029' {
				plain = false
				break
			}
			i += n
			continue
		}
		if c < 0x20 || c == '"' || c == '\\' {
			plain = false
			break
		}
		i++
	}
	if plain {
		dst = append(dst, '"')
		dst = append(dst, s...)
		return append(dst, '"')
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil { // a string always encodes
		return append(dst, `""`...)
	}
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}

// plainASCII returns how many bytes at the start of s, checked eight at a time, need no escaping.
// Histories have thousands of characters.
func plainASCII(s string) int {
	const (
		low  = 0x0101010101010101
		high = 0x8080808080808080
	)
	i := 0
	for ; i+8 <= len(s); i += 8 {
		p := s[i : i+8]
		w := uint64(p[0]) | uint64(p[1])<<8 | uint64(p[2])<<16 | uint64(p[3])<<24 | uint64(p[4])<<32 | uint64(p[5])<<40 | uint64(p[6])<<48 | uint64(p[7])<<56
		// A byte below n borrows into its high bit in w - n*low, and so does 0, which a quote or
		// backslash becomes by xor.
		quote, slash := w^('"'*low), w^('\\'*low)
		if (w|(w-0x20*low)|(quote-low)|(slash-low))&high != 0 {
			break // or a false alarm, which costs only time
		}
	}
	return i
}
