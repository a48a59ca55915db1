// Package knowledge keeps bases of entries: texts and data of a project that its agents may look
// up. A Service stores entries with their earlier versions, checks their data against the base's
// JSON Schema, imports documents in the background and finds entries with the scorer of package
// recall.
//
// Each entry is one record, which also holds its earlier versions, so that a write is compared and
// stored at once.
package knowledge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory/redact"
	"github.com/heardlog/heardlog/store/record"
)

// Bounds of bases and entries.
const (
	MaxBases    = 1000       // of a project
	MaxEntries  = 10_000_000 // of a base; the most that its settings may allow
	MaxSchema   = 16 << 10   // bytes of a base's JSON Schema
	MaxID       = 128        // characters of an entry's ID
	MaxContent  = 64 << 10   // bytes of an entry's content
	MaxData     = 64 << 10   // bytes of an entry's data
	MaxTags     = 32         // of an entry
	MaxTag      = 64         // characters
	MaxDocument = 100        // characters of a document's name
	MaxHeading  = 500        // bytes of a source's heading
	MaxVersions = 20         // earlier versions of an entry that are kept
	MaxQuery    = 4000       // characters of a search
	MaxHits     = 100        // of a search

	maxHistory        = 512 << 10 // bytes of an entry with its earlier versions
	defaultMaxEntries = 100_000
)

// The kinds of a base: values of Base.Kind.
const (
	JSONSchema = "json_schema" // entries' data meet the base's JSON Schema, if it has one
	Custom     = "custom"      // entries' data may be any object
	rdf        = "rdf"
)

// Base is a knowledge base: what a business wants its agents to know, such as prices or opening
// hours, as entries that can be searched. Its settings say what an entry is (a text, or data that
// meets a JSON Schema) and whether earlier versions of entries are kept. Entries are stored one by
// one or imported from documents.
type Base struct {
	Project    string          `json:"-"`
	Name       string          `json:"-"`
	Kind       string          `json:"kind"`             // JSONSchema or Custom
	Schema     json.RawMessage `json:"schema,omitempty"` // of entries' data; nil = any object
	Versioning bool            `json:"versioning"`       // keep earlier versions of entries
	MaxEntries int             `json:"max_entries"`
	CreatedMS  int64           `json:"created_ms"`
	UpdatedMS  int64           `json:"updated_ms"`
}

// DefaultBase returns a base with the default settings.
func DefaultBase(project, name string) Base {
	return Base{Project: project, Name: name, Kind: JSONSchema, Versioning: true, MaxEntries: defaultMaxEntries}
}

// Info is a base with what it holds.
type Info struct {
	Base
	Entries int64
	Bytes   int64
}

// Entry is one text or object of a base.
type Entry struct {
	ID        string          `json:"-"`
	Version   int64           `json:"version"` // from 1
	Content   string          `json:"content,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"` // an object; nil = none
	Tags      []string        `json:"tags,omitempty"`
	Source    *Source         `json:"source,omitempty"`
	CreatedMS int64           `json:"created_ms"`
	UpdatedMS int64           `json:"updated_ms"`
}

// Source is the place that an entry was taken from.
type Source struct {
	Document string `json:"document"`
	Heading  string `json:"heading,omitempty"` // those above it, such as "Setup > Linux"
	FromLine int    `json:"from_line,omitempty"`
	ToLine   int    `json:"to_line,omitempty"`
	// Part is the place of a piece of text in its document, from 1; 0 for others. Imports set it.
	Part int `json:"part,omitempty"`
}

// stored is the body of an entry's record.
type stored struct {
	Entry
	Older []Entry `json:"older,omitempty"` // the newest first
}

// entrySpaces is how the names of all spaces of entries begin.
const entrySpaces = "knowledge/"

func (b *Base) space() record.Space {
	// The slash ends the name, so that no base's name begins with another's.
	return record.Space{Project: b.Project, Name: entrySpaces + b.Name + "/"}
}

// baseSpace is the space of a project's bases, by their names.
func baseSpace(project string) record.Space {
	return record.Space{Project: project, Name: "knowledge"}
}

var baseName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`)

// check checks a base and its settings.
func (b *Base) check() error {
	switch {
	case !baseName.MatchString(b.Name):
		return fault.At(fault.Invalid, "base", "must have 1 to 128 letters, digits, dots, dashes and underscores, and not begin with a dot, not %q", text.Clip(b.Name, 80))
	case b.Kind == rdf:
		return fault.At(fault.Invalid, "schema", "rdf is not supported; use json_schema, and import triples as JSON Lines")
	case b.Kind != JSONSchema && b.Kind != Custom:
		return fault.At(fault.Invalid, "schema", "must be json_schema or custom, not %q", text.Clip(b.Kind, 40))
	case b.MaxEntries < 1 || b.MaxEntries > MaxEntries:
		return fault.At(fault.Invalid, "max_entries", "must be from 1 to %d, not %d", MaxEntries, b.MaxEntries)
	case len(b.Schema) > 0 && b.Kind == Custom:
		return fault.At(fault.Invalid, "json_schema", "must be absent if schema is custom")
	}
	_, err := compile(b.Schema)
	return err
}

// check checks an entry that is to be stored, and replaces personal data. field is its path in the
// request, "" or with a dot at its end.
func (e *Entry) check(field string, redactor *redact.Redactor) (err error) {
	if err := text.ValidID(field+"id", e.ID, MaxID); err != nil {
		return err
	}
	if e.Content, err = text.Clean(field+"content", e.Content, MaxContent); err != nil {
		return err
	}
	e.Content = redactor.Text(e.Content)
	if string(e.Data) == "null" {
		e.Data = nil
	}
	if e.Content == "" && len(e.Data) == 0 {
		return fault.At(fault.Missing, field+"content", "is required, unless there is data")
	}
	if len(e.Data) > 0 {
		e.Data = redactor.JSON(e.Data)
		var compact bytes.Buffer
		if err := json.Compact(&compact, e.Data); err != nil || compact.Bytes()[0] != '{' {
			return fault.At(fault.Invalid, field+"data", "must be an object")
		}
		if e.Data = compact.Bytes(); len(e.Data) > MaxData {
			return fault.At(fault.Invalid, field+"data", "is %d bytes long; at most %d are allowed", len(e.Data), MaxData)
		}
	}
	if len(e.Tags) > MaxTags {
		return fault.At(fault.Invalid, field+"tags", "has %d; at most %d are allowed", len(e.Tags), MaxTags)
	}
	for i, tag := range e.Tags {
		if err := text.ValidName(fmt.Sprintf("%stags[%d]", field, i), tag, MaxTag); err != nil {
			return err
		}
	}
	return e.Source.check(field + "source.")
}

// check checks a source; nil is none.
func (s *Source) check(field string) (err error) {
	if s == nil {
		return nil
	}
	if err := text.ValidName(field+"document", s.Document, MaxDocument); err != nil {
		return err
	}
	if s.Heading, err = text.Clean(field+"heading", s.Heading, MaxHeading); err != nil {
		return err
	}
	const most = 1 << 30
	switch {
	case s.FromLine < 0 || s.FromLine > most:
		return fault.At(fault.Invalid, field+"from_line", "must be from 1 to %d, not %d", most, s.FromLine)
	case s.ToLine != 0 && s.ToLine < s.FromLine || s.ToLine > most:
		return fault.At(fault.Invalid, field+"to_line", "must be from from_line to %d, not %d", most, s.ToLine)
	}
	return nil
}

// same reports whether two entries hold the same, whatever their versions and times.
func (e *Entry) same(o *Entry) bool {
	return e.Content == o.Content && bytes.Equal(e.Data, o.Data) && slices.Equal(e.Tags, o.Tags) &&
		(e.Source == o.Source || e.Source != nil && o.Source != nil && *e.Source == *o.Source)
}

// read decodes the record of an entry. Without a record, the entry has version 0.
func read(r *record.Record) (s stored, err error) {
	if r.Body == nil {
		return s, nil
	}
	if err := json.Unmarshal(r.Body, &s); err != nil {
		return s, fault.Wrap(fault.Internal, err, fmt.Sprintf("the record of entry %q cannot be read", r.ID))
	}
	s.ID = r.ID
	for i := range s.Older {
		s.Older[i].ID = r.ID
	}
	return s, nil
}

// replaced returns what an entry becomes with new contents. keep says whether its old ones stay as
// an earlier version.
func (s *stored) replaced(e Entry, keep bool, now time.Time) (stored, []byte, error) {
	e.Version, e.CreatedMS, e.UpdatedMS = s.Version+1, s.CreatedMS, now.UnixMilli()
	next := stored{Entry: e}
	if s.Version == 0 {
		next.CreatedMS = e.UpdatedMS
	} else if keep {
		next.Older = append([]Entry{s.Entry}, s.Older...)
		next.Older = next.Older[:min(len(next.Older), MaxVersions)]
	}
	for {
		body, err := json.Marshal(next)
		if err != nil || len(body) <= maxHistory || len(next.Older) == 0 {
			return next, body, err
		}
		next.Older = next.Older[:len(next.Older)-1]
	}
}
