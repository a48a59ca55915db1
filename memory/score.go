package memory

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/redact"
)

// Limits of scores.
const (
	MaxScores       = 100 // of a call and its turns
	MaxScoreName    = 64  // characters
	MaxScoreValue   = 200 // bytes of a text
	MaxScoreComment = 2000
	MaxScoreWho     = 128 // characters of an author or a source
)

// Score is a verdict on a call or on one of its turns, by a person or a program. It is immutable.
type Score struct {
	ID   string `json:"id"` // unique in the call
	Name string `json:"name"`
	// Value is a JSON number, true, false, or a string, which is a category.
	Value     json.RawMessage `json:"value"`
	Turn      *int64          `json:"turn,omitempty"` // nil: the whole call
	Comment   string          `json:"comment,omitempty"`
	Author    string          `json:"author,omitempty"` // who set it
	Source    string          `json:"source,omitempty"` // how it came about, such as human or llm
	UpdatedMS int64           `json:"updated_ms"`       // Unix ms
}

// Check returns fault.Invalid, which names the field, if a score breaks the limits.
func (s *Score) Check() error {
	switch {
	case s.Name == "":
		return fault.At(fault.Invalid, "name", "must not be empty")
	case strings.ContainsFunc(s.Name, unicode.IsControl):
		return fault.At(fault.Invalid, "name", "must not contain control characters")
	}
	for _, f := range []struct {
		name, text string
		most       int
	}{
		{"id", s.ID, MaxScoreWho},
		{"name", s.Name, MaxScoreName}, {"comment", s.Comment, MaxScoreComment}, {"author", s.Author, MaxScoreWho}, {"source", s.Source, MaxScoreWho},
	} {
		if n := utf8.RuneCountInString(f.text); n > f.most {
			return fault.At(fault.Invalid, f.name, "has %d characters; at most %d are allowed", n, f.most)
		}
		if !utf8.ValidString(f.text) || strings.ContainsRune(f.text, 0) {
			return fault.At(fault.Invalid, f.name, "must be valid UTF-8 without NUL characters")
		}
	}
	text, number, err := s.Parse()
	switch {
	case err != nil:
		return err
	case number == nil && (text == "" || len(text) > MaxScoreValue):
		return fault.At(fault.Invalid, "value", "has %d bytes; a text must have 1 to %d", len(text), MaxScoreValue)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fault.At(fault.Invalid, "value", "must not contain control characters")
	}
	return nil
}

// Parse returns the value as filters name it, and the number that reports take the mean of: 1 and 0
// for true and false, nil for a text.
func (s *Score) Parse() (text string, number *float64, err error) {
	switch v := strings.TrimSpace(string(s.Value)); {
	case v == "true":
		return v, new(1.0), nil
	case v == "false":
		return v, new(0.0), nil
	case strings.HasPrefix(v, `"`):
		if json.Unmarshal([]byte(v), &text) == nil {
			return text, nil, nil
		}
	default:
		if f, err := strconv.ParseFloat(v, 64); err == nil && json.Valid([]byte(v)) && !math.IsInf(f, 0) {
			return strconv.FormatFloat(f, 'g', -1, 64), &f, nil
		}
	}
	return "", nil, fault.At(fault.Invalid, "value", "must be a number, true, false or a text")
}

// ScoreTag returns the tag of calls that have a score with a name and a value, or with any value if
// that is empty.
func ScoreTag(name, value string) Tag { return Tag{tagScore + name, value} }

// scoreTags returns the tags of scores, sorted and without repeats.
func scoreTags(list []Score) []Tag {
	var out []Tag
	for i := range list {
		s := &list[i]
		if text, _, err := s.Parse(); err == nil {
			out = append(out, ScoreTag(s.Name, ""), ScoreTag(s.Name, text))
		}
	}
	slices.SortFunc(out, func(a, b Tag) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
	})
	return slices.Compact(out)
}

// SetScore returns the list with a score added, or in the place of the one with its ID.
func SetScore(list []Score, s Score) ([]Score, error) {
	list = slices.Clone(list)
	if at := slices.IndexFunc(list, func(o Score) bool { return o.ID == s.ID }); at >= 0 {
		list[at] = s
		return list, nil
	}
	if len(list) >= MaxScores {
		return nil, fault.New(fault.Quota, "the call has %d scores, as many as it may; delete some first", len(list))
	}
	return append(list, s), nil
}

// redactedScores returns the scores with personal data replaced in their texts.
func redactedScores(list []Score, r *redact.Redactor) []Score {
	if len(list) == 0 {
		return list
	}
	list = slices.Clone(list)
	for i := range list {
		s := &list[i]
		s.Comment, s.Value = r.Text(s.Comment), r.JSON(s.Value)
	}
	return list
}
