package view

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory/window"
)

// TimestampPrefix puts the time of a message in front of its text.
type TimestampPrefix struct {
	// Format is the whole prefix, with strftime's directives: see checkFormat. "" =
	// defaultTimeFormat.
	Format string `json:"format,omitempty"`
	Zone   string `json:"zone,omitempty"` // IANA name such as Europe/Berlin; "" = UTC
	// Assistant marks answers too. Models tend to copy how their own words begin, and a voice would
	// then read it out.
	Assistant bool `json:"assistant,omitempty"`
}

// defaultTimeFormat is the prefix of TimestampPrefix where none is set.
const defaultTimeFormat = "[%Y-%m-%d %H:%M] "

// SpeakerPrefix puts the speaker before the text of a user message: metadata.vpids, the voices that
// were recognized, or else metadata.user. A message without a speaker stays as it is.
type SpeakerPrefix struct {
	// The whole prefix, with {{speaker}}; "" = defaultSpeakerFormat.
	Format string `json:"format,omitempty"`
	// What to call an id; one that is not named goes by itself.
	Names map[string]string `json:"names,omitempty"`
}

// defaultSpeakerFormat is the prefix of SpeakerPrefix where none is set.
const defaultSpeakerFormat = "{{speaker}}: "

// Bounds of the prefixes.
const (
	maxTimeFormat    = 64  // bytes
	maxSpeakerFormat = 128 // bytes
	maxSpeakers      = 256 // names
	MaxSpeaker       = 128 // characters of an id or name; a longer id is not a speaker
)

// Check returns fault.Invalid unless zone and format are known. field is the path of the prefix.
func (p *TimestampPrefix) Check(field string) error {
	if p == nil {
		return nil
	}
	if _, err := p.Location(); err != nil {
		return fault.At(fault.Invalid, field+".zone", "%q is not a time zone; names like Europe/Berlin and UTC are allowed", text.Clip(p.Zone, 60))
	}
	return checkFormat(field+".format", p.Format)
}

// Location returns the zone. The server's own ("Local") is refused: the settings would mean
// something else on another machine.
func (p *TimestampPrefix) Location() (*time.Location, error) {
	if p.Zone == "Local" {
		return nil, fault.New(fault.Invalid, "the zone Local depends on the machine")
	}
	return time.LoadLocation(p.Zone)
}

// layout returns the layout of package time for a directive of a time format.
func layout(directive byte) (string, bool) {
	switch directive {
	case 'Y':
		return "2006", true
	case 'm':
		return "01", true
	case 'd':
		return "02", true
	case 'H':
		return "15", true
	case 'I':
		return "03", true
	case 'M':
		return "04", true
	case 'S':
		return "05", true
	case 'p':
		return "PM", true
	case 'a':
		return "Mon", true
	case 'A':
		return "Monday", true
	case 'b':
		return "Jan", true
	case 'B':
		return "January", true
	case 'z':
		return "-0700", true
	case 'Z':
		return "MST", true
	}
	return "", false
}

const directives = "%Y %m %d %H %I %M %S %p %a %A %b %B %z %Z %%"

// checkFormat returns fault.Invalid unless format has at most maxTimeFormat bytes and each % starts
// one of strftime's directives %Y %m %d %H %I %M %S %p %a %A %b %B %z %Z %%. Names are English.
func checkFormat(field, format string) error {
	if _, err := text.CleanKey(field, format, maxTimeFormat); err != nil {
		return err
	}
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		i++
		if i == len(format) {
			return fault.At(fault.Invalid, field, "ends in a single %%; allowed are %s", directives)
		}
		if _, ok := layout(format[i]); !ok && format[i] != '%' {
			r, _ := utf8.DecodeRuneInString(format[i:])
			return fault.At(fault.Invalid, field, "holds %%%c; allowed are %s", r, directives)
		}
	}
	return nil
}

// appendTime appends a time in a checked format.
func appendTime(dst []byte, format string, t time.Time) []byte {
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			dst = append(dst, format[i])
			continue
		}
		i++
		if l, ok := layout(format[i]); ok {
			dst = t.AppendFormat(dst, l)
		} else {
			dst = append(dst, format[i])
		}
	}
	return dst
}

// Check returns fault.Invalid unless the format has {{speaker}} and the names are printable. field
// is the path of the prefix.
func (p *SpeakerPrefix) Check(field string) error {
	if p == nil {
		return nil
	}
	if _, err := text.CleanKey(field+".format", p.Format, maxSpeakerFormat); err != nil {
		return err
	}
	if p.Format != "" && !strings.Contains(text.Fill(p.Format, map[string]string{"speaker": "\x00"}), "\x00") {
		return fault.At(fault.Invalid, field+".format", "does not hold {{speaker}}, which is replaced by the speaker's name")
	}
	if len(p.Names) > maxSpeakers {
		return fault.At(fault.Invalid, field+".names", "has %d entries; at most %d are allowed", len(p.Names), maxSpeakers)
	}
	for id, name := range p.Names {
		if !speakable(id) {
			return fault.At(fault.Invalid, field+".names", "has the id %q; 1 to %d printable characters are allowed", text.Clip(id, 60), MaxSpeaker)
		}
		if !speakable(name) {
			return fault.At(fault.Invalid, field+".names."+id, "is %q; 1 to %d printable characters are allowed", text.Clip(name, 60), MaxSpeaker)
		}
	}
	return nil
}

// speakable reports whether a name may be put before a text. It comes from a client, and with a
// line break it would look like another message.
func speakable(s string) bool {
	return s != "" && utf8.RuneCountInString(s) <= MaxSpeaker && utf8.ValidString(s) &&
		strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// Name returns who spoke, by a message's metadata, or "". Several voices are joined by ", ".
func (p *SpeakerPrefix) Name(metadata map[string]json.RawMessage) string {
	ids := speakers(metadata["vpids"])
	if len(ids) == 0 {
		ids = speakers(metadata["user"])
	}
	for i, id := range ids {
		if name, ok := p.Names[id]; ok {
			ids[i] = name
		}
	}
	return strings.Join(ids, ", ")
}

// maxVoices is how many voices one message may name; the rest is left out.
const maxVoices = 8

// speakers reads IDs: a string, a number, a list of them, or an object with them as keys. Their
// form is not documented.
func speakers(raw json.RawMessage) []string {
	if len(raw) == 0 {
		return nil
	}
	var out []string
	switch raw[0] {
	case '[':
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) == nil {
			for _, v := range list {
				if len(v) > 0 && v[0] != '[' && v[0] != '{' {
					out = append(out, speakers(v)...)
				}
			}
		}
	case '{':
		var keyed map[string]json.RawMessage
		if json.Unmarshal(raw, &keyed) == nil {
			for k := range keyed {
				out = append(out, k)
			}
			slices.Sort(out)
		}
	case '"':
		var s string
		if json.Unmarshal(raw, &s) == nil {
			out = []string{strings.TrimSpace(s)}
		}
	default:
		if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			out = []string{strconv.FormatInt(n, 10)}
		}
	}
	out = slices.DeleteFunc(out, func(s string) bool { return !speakable(s) })
	return out[:min(len(out), maxVoices)]
}

// Prefixes reports whether texts have prefixes.
func (v *View) Prefixes() bool { return v != nil && (v.Timestamp != nil || v.Speaker != nil) }

// Prefix returns the prefix of a message's text: the time, then the speaker. atMS is when it was
// said, Unix ms, 0 if unknown. zone is the location of v.Timestamp; the caller keeps it because
// loading it is slow.
func (v *View) Prefix(role window.Role, atMS int64, metadata map[string]json.RawMessage, zone *time.Location) string {
	if role != window.User && role != window.Assistant {
		return ""
	}
	var b []byte
	if t := v.Timestamp; t != nil && atMS > 0 && zone != nil && (role == window.User || t.Assistant) {
		format := t.Format
		if format == "" {
			format = defaultTimeFormat
		}
		b = appendTime(b, format, time.UnixMilli(atMS).In(zone))
	}
	if s := v.Speaker; s != nil && role == window.User {
		if name := s.Name(metadata); name != "" {
			format := s.Format
			if format == "" {
				format = defaultSpeakerFormat
			}
			b = append(b, text.Fill(format, map[string]string{"speaker": name})...)
		}
	}
	return string(b)
}
