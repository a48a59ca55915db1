package input

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/text"
)

// MaxOmitted is how many fields Omitted names.
const MaxOmitted = 10

// Omitted lists the fields of a body that were left out or changed.
type Omitted struct {
	N    int // how many
	list []string
}

// String names the fields and why, at most ten of them. It returns "" if there are none.
func (o *Omitted) String() string {
	s := strings.Join(o.list, "; ")
	if more := o.N - len(o.list); more > 0 {
		s += fmt.Sprintf("; and %d more", more)
	}
	return s
}

// Add adds a field, and what is wrong with it.
func (o *Omitted) Add(field, format string, args ...any) {
	if o.N++; len(o.list) < MaxOmitted {
		o.list = append(o.list, text.Clip(field, 120)+": "+fmt.Sprintf(format, args...))
	}
}

// AddError adds the field that an error is about, if err is not nil.
func (o *Omitted) AddError(err error) {
	if err != nil {
		field, text, _ := strings.Cut(err.Error(), ": ")
		o.Add(field, "%s", text)
	}
}

// Cut returns a text as it can be stored: repaired, and cut to limit bytes.
func (o *Omitted) Cut(field, s string, limit int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
	if len(s) <= limit {
		return s
	}
	o.Add(field, "is %d bytes long; the first %d are kept", len(s), limit)
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
