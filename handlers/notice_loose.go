package handlers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/heardlog/heardlog/memory"
)

// A notification comes four times at most and then never again. So it is filed as far as it can be read, and what is left out of it is said: in the answer,
// in the log and in a metric.

// maxOmitted is how many fields the answer names.
const maxOmitted = 10

// omitted collects what of a notification is not filed, or not as it came.
type omitted struct {
	list []string
	n    int
}

// add notes a field and why.
func (o *omitted) add(field, format string, args ...any) {
	if o.n++; len(o.list) < maxOmitted {
		o.list = append(o.list, clip(field, 120)+": "+fmt.Sprintf(format, args...))
	}
}

// err notes an error of a field that was left out; nil is none.
func (o *omitted) err(err error) {
	if err == nil {
		return
	}
	field, text, _ := strings.Cut(err.Error(), ": ")
	o.add(field, "%s", text)
}

// String gives all that was noted, "" if there is nothing.
func (o *omitted) String() string {
	if o.n == 0 {
		return ""
	}
	s := strings.Join(o.list, "; ")
	if more := o.n - len(o.list); more > 0 {
		s += fmt.Sprintf("; and %d more", more)
	}
	return s
}

// textOrNumber is a string; a number, which some senders write an id as, is taken as its digits.
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

// numberOrText is a whole number; a string that holds one is taken for it.
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

// looseText is a string; whatever else comes in its place is bad and "".
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

// text gives the string as it is kept: what is too long is cut.
func (t looseText) text(field string, limit int, o *omitted) string {
	if t.bad {
		o.add(field, "is no string")
	}
	return cutText(field, t.s, limit, o)
}

// cutText gives a text as it is kept, with the end cut off if it is too long.
func cutText(field, s string, limit int, o *omitted) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
	if len(s) <= limit {
		return s
	}
	o.add(field, "is %d bytes long; the first %d are kept", len(s), limit)
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// looseObject is an object; whatever else comes in its place is bad and empty.
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

// looseList is a list; entries that cannot be read are passed over.
type looseList[T any] struct {
	items []T
	at    []int // the place of each item in the list that came
	wrong []int // places of the first entries that could not be read
	lost  int   // how many those are in all
	bad   bool  // it is none
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
			if l.lost++; l.lost <= maxOmitted {
				l.wrong = append(l.wrong, i)
			}
			continue
		}
		l.items, l.at = append(l.items, v), append(l.at, i)
	}
	return nil
}

// list gives the entries that could be read, of more than most the last ones, and the place of the first in the list that came.
func (l looseList[T]) list(field string, most int, o *omitted) (items []T, at []int) {
	if l.bad {
		o.add(field, "is no list")
	}
	for _, i := range l.wrong {
		o.add(fmt.Sprintf("%s[%d]", field, i), "cannot be read")
	}
	o.n += l.lost - len(l.wrong)
	if over := len(l.items) - most; over > 0 {
		o.add(field, "has %d entries; the last %d are kept", len(l.items), most)
		return l.items[over:], l.at[over:]
	}
	return l.items, l.at
}

// noticeContent gives the words of a message and, where they came as parts, those. What is neither text nor parts is kept as the JSON that it is, and what is
// too long is cut; cut tells that.
func noticeContent(field string, raw json.RawMessage, o *omitted) (text string, parts json.RawMessage, cut bool) {
	raw = withoutNUL(raw)
	text, parts, err := contentOf(field, raw)
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
		o.add(field, "is too long; its texts are kept without their parts")
	default:
		var b bytes.Buffer
		if json.Compact(&b, raw) == nil {
			s = b.String()
		}
		o.add(field, "is no text; it is kept as JSON")
	}
	return cutText(field, s, memory.MaxText, o), nil, len(s) > memory.MaxText
}

// stampOr gives a time, 0 where it cannot be one.
func (n wholeNumber) stampOr(field string, o *omitted) int64 {
	ms, err := n.stamp(field)
	o.err(err)
	if err != nil {
		return 0
	}
	return ms
}
