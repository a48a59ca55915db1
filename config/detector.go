package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory/redact"
)

// Detector is the detector of names of an entry of HEARDLOG_REDACT.
type Detector struct {
	URL        string        `json:"url"`
	Form       string        `json:"form"`     // "presidio", the default, or "plain"
	Language   string        `json:"language"` // "en" by default
	Entities   []string      `json:"entities"`
	MinScore   float64       `json:"min_score"`
	TimeoutMS  int           `json:"timeout_ms"` // 500 by default
	OnFailure  string        `json:"on_failure"` // "closed", the default, or "open"
	Pseudonyms bool          `json:"pseudonyms"`
	Token      secret.String `json:"token"`
}

// Values of Detector.Form and Detector.OnFailure.
const (
	formPresidio = "presidio"
	formPlain    = "plain"
	onClosed     = "closed"
	onOpen       = "open"
)

// Limits of a Detector.
const (
	maxEntities   = 64
	maxDetectorMS = 10_000
)

// check sets what is left out, and returns an error for a value that is not allowed.
func (d *Detector) check() error {
	if d.URL == "" {
		return errors.New("detector.url is required")
	}
	if err := checkURL(d.URL); err != nil {
		return fmt.Errorf("detector.url %w", err)
	}
	switch d.Form {
	case "":
		d.Form = formPresidio
	case formPresidio, formPlain:
	default:
		return fmt.Errorf("detector.form must be %s or %s, not %q", formPresidio, formPlain, d.Form)
	}
	switch d.OnFailure {
	case "":
		d.OnFailure = onClosed
	case onClosed, onOpen:
	default:
		return fmt.Errorf("detector.on_failure must be %s or %s, not %q", onClosed, onOpen, d.OnFailure)
	}
	if d.Language == "" {
		d.Language = "en"
	}
	if len(d.Language) > 35 {
		return errors.New("detector.language must be a language of the detector, such as en, of at most 35 bytes")
	}
	if d.Form == formPresidio && len(d.Entities) == 0 {
		d.Entities = []string{"PERSON", "LOCATION"}
	}
	if len(d.Entities) > maxEntities {
		return fmt.Errorf("detector.entities has %d entries; at most %d are allowed", len(d.Entities), maxEntities)
	}
	for _, e := range d.Entities {
		if redact.TypeName(e) == "" {
			return fmt.Errorf("detector.entities must be names of 1 to 24 letters, digits, dashes and underlines, not %q", e)
		}
	}
	if d.MinScore < 0 || d.MinScore > 1 {
		return errors.New("detector.min_score must be from 0 to 1")
	}
	if d.TimeoutMS == 0 {
		d.TimeoutMS = 500
	}
	if d.TimeoutMS < 10 || d.TimeoutMS > maxDetectorMS {
		return fmt.Errorf("detector.timeout_ms must be from 10 to %d", maxDetectorMS)
	}
	return nil
}

// Timeout returns the time that a call of the detector may take.
func (d *Detector) Timeout() time.Duration { return time.Duration(d.TimeoutMS) * time.Millisecond }

// Open reports whether texts are stored that could not be checked.
func (d *Detector) Open() bool { return d.OnFailure == onOpen }

// DetectorOf returns the detector of a project: that of the last entry for the project itself, else
// of the last one for every project, else nil.
func (c Config) DetectorOf(project string) *Detector {
	var own, all *Detector
	for i := range c.Redact {
		switch r := &c.Redact[i]; {
		case r.Detector == nil:
		case r.Project == "":
			all = r.Detector
		case r.Project == project:
			own = r.Detector
		}
	}
	if own != nil {
		return own
	}
	return all
}
