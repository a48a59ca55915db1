package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/heardlog/heardlog/memory/redact"
)

// maxRedact limits the entries of HEARDLOG_REDACT.
const maxRedact = 256

// Redact is an entry of HEARDLOG_REDACT: what is replaced in the texts of a project.
type Redact struct {
	Project string `json:"project"` // "" = every project
	redact.Rules
	// Detector finds names in the texts, nil for none.
	Detector *Detector `json:"detector"`
}

// parseRedact reads types with commas, for every project, or a JSON array of entries.
func parseRedact(v string) ([]Redact, error) {
	v = strings.TrimSpace(v)
	if !strings.HasPrefix(v, "[") {
		var r redact.Rules
		for t := range strings.SplitSeq(v, ",") {
			r.Types = append(r.Types, strings.TrimSpace(t))
		}
		return []Redact{{Rules: r}}, r.Check("HEARDLOG_REDACT")
	}
	dec := json.NewDecoder(strings.NewReader(v))
	dec.DisallowUnknownFields()
	var list []Redact
	if err := dec.Decode(&list); err != nil {
		if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return nil, fmt.Errorf("must be a JSON array: unknown field %s; known are project, types, own, upstream and detector, and in that url, form, language, entities, min_score, timeout_ms, on_failure, pseudonyms and token", field)
		}
		return nil, fmt.Errorf("must be types with commas, or a JSON array: %w", withoutValues(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("must be one JSON value")
	}
	if len(list) > maxRedact {
		return nil, fmt.Errorf("has %d entries; at most %d are allowed", len(list), maxRedact)
	}
	for i, r := range list {
		if r.Project != "" && !ValidProject(r.Project) {
			return nil, fmt.Errorf("entry %d: project must be a project name, not %q", i, r.Project)
		}
		if err := r.Check(fmt.Sprintf("entry %d", i)); err != nil {
			return nil, err
		}
		if r.Detector != nil {
			if err := r.Detector.check(); err != nil {
				return nil, fmt.Errorf("entry %d: %w", i, err)
			}
		}
	}
	return list, nil
}

// RedactOf returns the rules of a project.
func (c Config) RedactOf(project string) redact.Rules {
	var out redact.Rules
	for _, r := range c.Redact {
		if r.Project == "" || r.Project == project {
			out = out.With(r.Rules)
		}
	}
	return out
}
