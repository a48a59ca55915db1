package ingest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/input"
)

// Omitted lists the fields of a notification that were left out or changed.
type Omitted = input.Omitted

// textOrNumber is a string, or a number, which is taken as its digits: some senders write IDs so.
type textOrNumber string

// UnmarshalJSON implements json.Unmarshaler.
func (t *textOrNumber) UnmarshalJSON(b []byte) error {
	var n json.Number
	if b[0] != '"' && json.Unmarshal(b, &n) == nil {
		*t = textOrNumber(n)
		return nil
	}
	return json.Unmarshal(b, (*string)(t))
}

// numberOrText is a whole number, or a string that holds one.
type numberOrText int

// UnmarshalJSON implements json.Unmarshaler.
func (n *numberOrText) UnmarshalJSON(b []byte) error {
	var s string
	if b[0] == '"' && json.Unmarshal(b, &s) == nil {
		if v, err := strconv.Atoi(strings.TrimSpace(s)); err == nil {
			*n = numberOrText(v)
			return nil
		}
	}
	return json.Unmarshal(b, (*int)(n))
}

// wholeNumber is a number that may come as a string or with a fraction, which is cut off. Anything
// else is 0: a notification is not refused for a measurement.
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

// time returns a time in Unix ms. Ten digits are seconds, as in most of Agora's fields. A number
// that cannot be a time is left out.
func (n wholeNumber) time(field string, o *Omitted) int64 {
	if n > 0 && n < 1e9 {
		o.AddError(fault.At(fault.Invalid, field, "%d is not a time in Unix seconds or milliseconds", n))
		return 0
	}
	ms, err := input.Millis(field, int64(n))
	o.AddError(err)
	return ms
}

// duration returns a duration in ms, 0 if it cannot be one.
func (n wholeNumber) duration() int64 {
	const longest = 72 * 60 * 60 * 1000
	if n < 0 || n > longest {
		return 0
	}
	return int64(n)
}

// looseText is a string. It is bad if something else comes in its place.
type looseText struct {
	s   string
	bad bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *looseText) UnmarshalJSON(b []byte) error {
	*t = looseText{}
	t.bad = json.Unmarshal(b, &t.s) != nil
	return nil
}

// text returns the string, cut to limit bytes.
func (t looseText) text(field string, limit int, o *Omitted) string {
	if t.bad {
		o.Add(field, "is not a string")
	}
	return o.Cut(field, t.s, limit)
}

// looseObject is an object. It is bad and empty if something else comes in its place.
type looseObject struct {
	m   map[string]json.RawMessage
	bad bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *looseObject) UnmarshalJSON(b []byte) error {
	*l = looseObject{}
	l.bad = json.Unmarshal(b, &l.m) != nil
	return nil
}

// looseList is a list without the entries that cannot be read.
type looseList[T any] struct {
	items []T
	at    []int // index of each item in the list that came
	wrong []int // indexes of the first entries that could not be read
	lost  int   // how many could not be read
	bad   bool  // it is not a list
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *looseList[T]) UnmarshalJSON(b []byte) error {
	*l = looseList[T]{}
	var raw []json.RawMessage
	if l.bad = json.Unmarshal(b, &raw) != nil; l.bad {
		return nil
	}
	for i, r := range raw {
		var v T
		if string(r) == "null" || json.Unmarshal(r, &v) != nil {
			if l.lost++; l.lost <= input.MaxOmitted {
				l.wrong = append(l.wrong, i)
			}
			continue
		}
		l.items, l.at = append(l.items, v), append(l.at, i)
	}
	return nil
}

// list returns the last limit entries and the index of each in the list that came.
func (l looseList[T]) list(field string, limit int, o *Omitted) (items []T, at []int) {
	if l.bad {
		o.Add(field, "is not a list")
	}
	for _, i := range l.wrong {
		o.Add(fmt.Sprintf("%s[%d]", field, i), "cannot be read")
	}
	o.N += l.lost - len(l.wrong)
	if over := len(l.items) - limit; over > 0 {
		o.Add(field, "has %d entries; the last %d are kept", len(l.items), limit)
		return l.items[over:], l.at[over:]
	}
	return l.items, l.at
}

// content returns a message's text and, if it came as parts, those. Anything else is kept as its
// JSON. cut reports whether the text was too long and was cut.
func content(field string, raw json.RawMessage, o *Omitted) (text string, parts json.RawMessage, cut bool) {
	raw = input.ReplaceNUL(raw)
	text, parts, err := input.Content(field, raw, memory.MaxText)
	if err == nil {
		return text, parts, false
	}
	var s string
	var list []struct{ Type, Text string }
	switch {
	case json.Unmarshal(raw, &s) == nil:
	case json.Unmarshal(raw, &list) == nil: // too long as parts
		var texts []string
		for _, p := range list {
			if p.Type == "text" {
				texts = append(texts, p.Text)
			}
		}
		s = strings.Join(texts, "\n")
		o.Add(field, "is too long; its texts are kept without their parts")
	default:
		var b bytes.Buffer
		if json.Compact(&b, raw) == nil {
			s = b.String()
		}
		o.Add(field, "is not text; it is kept as JSON")
	}
	return o.Cut(field, s, memory.MaxText), nil, len(s) > memory.MaxText
}
