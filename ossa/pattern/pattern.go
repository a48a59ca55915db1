// Package pattern keeps what a project has learned about how its agents work: short texts with a
// weight. A Service stores patterns, moves their weights by feedback, and lists them by weight.
//
// A stored weight does not change with the clock. It is halved for each half-life that has passed
// when it is read.
package pattern

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
	"github.com/heardlog/heardlog/store/record"
)

// Bounds and defaults of patterns.
const (
	MaxPatterns     = 1000 // of a project
	MaxID           = 128  // characters
	MaxContent      = 2000 // bytes
	MaxHalfLifeDays = 365
	DefaultWeight   = 0.5
	DefaultHalfLife = 30  // days
	MinWeight       = 0.1 // of patterns that prompts may have

	step       = 0.1 // by which feedback moves a weight
	maxReports = 20  // of a pattern whose keys are known
)

// Pattern is something that a project has learned.
type Pattern struct {
	ID      string  `json:"-"`
	Type    string  `json:"type"` // one of memory.PatternTypes
	Content string  `json:"content"`
	Weight  float64 `json:"weight"` // 0 to 1, as of WeighedMS
	// HalfLifeDays is after how many days half of the weight is left; 0 = it stays.
	HalfLifeDays int   `json:"half_life_days"`
	Good         int   `json:"good"` // how much feedback there was
	Bad          int   `json:"bad"`
	WeighedMS    int64 `json:"weighed_ms"`
	CreatedMS    int64 `json:"created_ms"`
	UpdatedMS    int64 `json:"updated_ms"`
	// Reports are the newest feedback with an Idempotency-Key, oldest first, at most maxReports.
	Reports []report `json:"reports,omitempty"`
}

// report is feedback that may be repeated.
type report struct {
	Key     string  `json:"key"` // a hash
	Outcome string  `json:"outcome"`
	Old     float64 `json:"old"`
	New     float64 `json:"new"`
	Why     string  `json:"why"`
}

// WeightAt returns the weight of the pattern at a time.
func (p *Pattern) WeightAt(now time.Time) float64 {
	if p.HalfLifeDays == 0 {
		return p.Weight
	}
	days := max(0, now.Sub(time.UnixMilli(p.WeighedMS)).Hours()/24)
	return round(p.Weight * math.Exp2(-days/float64(p.HalfLifeDays)))
}

// round keeps four digits after the point.
func round(w float64) float64 { return math.Round(w*1e4) / 1e4 }

// Config is what a Service needs. All fields are required.
type Config struct {
	Store record.Store
	Now   func() time.Time
	// Redact runs a function with what replaces personal data in a project's patterns, perhaps more
	// than once; see agents.Messages.Redact.
	Redact func(ctx context.Context, project string, fn func(*redact.Redactor)) error
}

// Service keeps patterns. Its methods are safe for concurrent use.
type Service struct {
	cfg      Config
	patterns record.Map[Pattern]
	settings record.Map[settings]
}

// New returns a Service.
func New(c Config) *Service {
	return &Service{
		cfg: c,
		patterns: record.Map[Pattern]{Store: c.Store, Noun: "pattern", Limit: MaxPatterns, Fill: func(p *Pattern, r *record.Record) {
			p.ID, p.CreatedMS = r.ID, cmp.Or(p.CreatedMS, r.UpdatedMS)
		}},
		settings: record.Map[settings]{Store: c.Store, Noun: "setting"},
	}
}

func space(project string) record.Space { return record.Space{Project: project, Name: "pattern"} }

// change stores what decide makes of a pattern, which is zero if there is none. It stores nothing
// if decide reports false.
func (s *Service) change(ctx context.Context, project, id string, decide func(*Pattern) (bool, error)) (p Pattern, err error) {
	if err := text.ValidID("id", id, MaxID); err != nil {
		return p, err
	}
	now := s.cfg.Now().UnixMilli()
	return s.patterns.Update(ctx, space(project), id, now, func(p *Pattern, _ bool) (changed bool, err error) {
		if changed, err = decide(p); changed {
			p.UpdatedMS = now
		}
		return changed, err
	})
}

// checkType returns an error unless t is one of memory.PatternTypes.
func checkType(t string) error {
	if slices.Contains(memory.PatternTypes, t) {
		return nil
	}
	return fault.At(fault.Invalid, "type", "must be one of %s, not %q", strings.Join(memory.PatternTypes, ", "), text.Clip(t, 40))
}

// Settings are what a pattern says.
type Settings struct {
	Type, Content string
	Weight        *float64 // nil keeps that of the pattern, or is DefaultWeight
	HalfLifeDays  *int     // nil is that of SetHalfLife, or DefaultHalfLife
}

// Put creates a pattern or replaces what it says. Its feedback stays.
func (s *Service) Put(ctx context.Context, project, id string, in Settings) (Pattern, error) {
	if err := checkType(in.Type); err != nil {
		return Pattern{}, err
	}
	content, err := text.Clean("content", in.Content, MaxContent)
	switch {
	case err != nil:
		return Pattern{}, err
	case strings.TrimSpace(content) == "":
		return Pattern{}, fault.At(fault.Missing, "content", "is required")
	case in.HalfLifeDays != nil && (*in.HalfLifeDays < 0 || *in.HalfLifeDays > MaxHalfLifeDays):
		return Pattern{}, fault.At(fault.Invalid, "half_life_days", "must be from 0 to %d, not %d", MaxHalfLifeDays, *in.HalfLifeDays)
	case in.Weight != nil && !(*in.Weight >= 0 && *in.Weight <= 1):
		return Pattern{}, fault.At(fault.Invalid, "weight", "must be from 0 to 1, not %g", *in.Weight)
	}
	given := content
	if err := s.cfg.Redact(ctx, project, func(r *redact.Redactor) { content = r.Text(given) }); err != nil {
		return Pattern{}, err
	}
	halfLife, err := s.halfLife(ctx, project)
	if err != nil {
		return Pattern{}, err
	}
	if in.HalfLifeDays != nil {
		halfLife = *in.HalfLifeDays
	}
	return s.change(ctx, project, id, func(p *Pattern) (bool, error) {
		now := s.cfg.Now()
		switch {
		case in.Weight != nil:
			p.Weight = round(*in.Weight)
		case p.CreatedMS == 0:
			p.Weight = DefaultWeight
		default:
			p.Weight = p.WeightAt(now)
		}
		p.WeighedMS, p.Type, p.Content, p.HalfLifeDays = now.UnixMilli(), in.Type, content, halfLife
		return true, nil
	})
}

// setSpace has the settings of a project's patterns: one record.
func setSpace(project string) record.Space {
	return record.Space{Project: project, Name: "pattern-settings"}
}

const setID = "all"

// settings is the body of that record.
type settings struct {
	HalfLifeDays int `json:"half_life_days"`
}

// halfLife returns the half-life of a project's new patterns.
func (s *Service) halfLife(ctx context.Context, project string) (int, error) {
	set, err := s.settings.Get(ctx, setSpace(project), setID)
	if fault.Is(err, fault.NotFound) {
		return DefaultHalfLife, nil
	}
	return set.HalfLifeDays, err
}

// SetHalfLife sets the half-life of patterns that are stored without one, in days; 0 = none.
func (s *Service) SetHalfLife(ctx context.Context, project string, days int) error {
	now, err := s.halfLife(ctx, project)
	if err != nil || now == days {
		return err
	}
	return s.settings.Put(ctx, setSpace(project), setID, s.cfg.Now().UnixMilli(), settings{days})
}

// Best returns the weightiest patterns of some types, at most limit, whose weight is at least
// MinWeight.
func (s *Service) Best(ctx context.Context, project string, types []string, limit int) ([]Pattern, error) {
	list, err := s.List(ctx, project, "")
	now := s.cfg.Now()
	list = slices.DeleteFunc(list, func(p Pattern) bool { return p.WeightAt(now) < MinWeight || !slices.Contains(types, p.Type) })
	return list[:min(limit, len(list))], err
}

// The outcomes that feedback reports.
const (
	Good = "good"
	Bad  = "bad"
)

// Moved is what feedback has done to a weight.
type Moved struct {
	Pattern  Pattern
	Old, New float64
	Why      string
}

// Feedback moves the weight of a pattern: up by 0.1 to at most 1, or down by 0.1 to at least 0. A
// repeat with the same key, unless it is "", moves nothing and returns the same. It fails with
// fault.Conflict if the key was used for the other outcome.
func (s *Service) Feedback(ctx context.Context, project, id, outcome, key string) (m Moved, err error) {
	if outcome != Good && outcome != Bad {
		return m, fault.At(fault.Invalid, "outcome", "must be good or bad, not %q", text.Clip(outcome, 40))
	}
	if key != "" {
		sum := sha256.Sum256([]byte(key))
		key = hex.EncodeToString(sum[:16])
	}
	m.Pattern, err = s.change(ctx, project, id, func(p *Pattern) (bool, error) {
		if p.CreatedMS == 0 {
			return false, fault.New(fault.NotFound, "there is no pattern %q", id)
		}
		for _, r := range p.Reports {
			if r.Key == key {
				m.Old, m.New, m.Why = r.Old, r.New, r.Why
				return false, r.repeats(outcome)
			}
		}
		now := s.cfg.Now()
		m.Old = p.WeightAt(now)
		if outcome == Good {
			p.Good++
			m.New, m.Why = min(1, round(m.Old+step)), "good feedback adds 0.1, up to 1"
		} else {
			p.Bad++
			m.New, m.Why = max(0, round(m.Old-step)), "bad feedback takes away 0.1, down to 0"
		}
		if m.Old < p.Weight {
			m.Why += fmt.Sprintf("; before, the half-life of %d days had lowered %g to %g", p.HalfLifeDays, p.Weight, m.Old)
		}
		p.Weight, p.WeighedMS = m.New, now.UnixMilli()
		if key != "" {
			p.Reports = append(p.Reports, report{key, outcome, m.Old, m.New, m.Why})
			p.Reports = p.Reports[max(0, len(p.Reports)-maxReports):]
		}
		return true, nil
	})
	return m, err
}

// repeats returns fault.Conflict unless the report has an outcome.
func (r *report) repeats(outcome string) error {
	if r.Outcome != outcome {
		return fault.At(fault.Conflict, "Idempotency-Key", "was used for the outcome %s", r.Outcome)
	}
	return nil
}

// Get returns a pattern, or fault.NotFound.
func (s *Service) Get(ctx context.Context, project, id string) (Pattern, error) {
	if err := text.ValidID("id", id, MaxID); err != nil {
		return Pattern{}, err
	}
	return s.patterns.Get(ctx, space(project), id)
}

// Delete deletes a pattern. One that is not there is no error.
func (s *Service) Delete(ctx context.Context, project, id string) error {
	if err := text.ValidID("id", id, MaxID); err != nil {
		return err
	}
	return s.patterns.Delete(ctx, space(project), id, s.cfg.Now().UnixMilli())
}

// List returns the patterns of a project of one type, "" = all, the weightiest first.
func (s *Service) List(ctx context.Context, project, ofType string) ([]Pattern, error) {
	if ofType != "" {
		if err := checkType(ofType); err != nil {
			return nil, err
		}
	}
	list, _, err := s.patterns.List(ctx, space(project), "", MaxPatterns)
	list = slices.DeleteFunc(list, func(p Pattern) bool { return ofType != "" && p.Type != ofType })
	now := s.cfg.Now()
	slices.SortStableFunc(list, func(a, b Pattern) int { return cmp.Compare(b.WeightAt(now), a.WeightAt(now)) })
	return list, err
}
