// Package hold keeps legal holds: while a caller, an agent or a label is under a Hold, nothing that
// it covers is erased, expired or moved into the archive. A Service sets and lifts holds. They are
// records, so exports and backups have them, and every store checks them in the transaction that
// deletes.
package hold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/record"
)

// Space is the name of the space of records that holds the holds of a project.
const Space = "hold"

const (
	// MaxReason is how long the reason of a hold may be, in bytes.
	MaxReason = 1000
	// MaxLabel is how long name and value of a held label may be together, in bytes.
	MaxLabel = 500
	// maxHolds limits the holds of a project; that of a caller counts once for each name.
	maxHolds = 100_000
)

// Target is what a hold is on: a caller, an agent or a label. Exactly one of User, AgentID and
// Label is set.
type Target struct {
	User    string `json:"user_id,omitempty"`
	AgentID string `json:"agent_id,omitempty"`
	Label   string `json:"label,omitempty"`
	Value   string `json:"value,omitempty"` // of the label
}

// Hold is a legal hold.
type Hold struct {
	ID string `json:"id"`
	Target
	// Names are all names of a held caller, its own first.
	Names     []string `json:"names,omitempty"`
	Reason    string   `json:"reason"`
	SetBy     string   `json:"set_by,omitempty"`      // the ID of a key, "" without one
	SetByName string   `json:"set_by_name,omitempty"` // the name of that key
	SetMS     int64    `json:"set_ms"`                // Unix ms
}

// The start of the IDs of records, by what is held. Stores build the same in SQL.
const (
	UserKey  = "user/"
	AgentKey = "agent/"
	LabelKey = "label/" // then name=value
)

// Keys returns the IDs of the records of the hold, that of its target first.
func (h *Hold) Keys() []string {
	keys := []string{h.key()}
	for _, name := range h.Names {
		if key := UserKey + name; key != keys[0] {
			keys = append(keys, key)
		}
	}
	return keys
}

// key returns the ID of the record of a target.
func (t Target) key() string {
	switch {
	case t.AgentID != "":
		return AgentKey + t.AgentID
	case t.Label != "":
		return LabelKey + t.Label + "=" + t.Value
	}
	return UserKey + t.User
}

// String names what is held.
func (t Target) String() string {
	switch {
	case t.AgentID != "":
		return fmt.Sprintf("the agent %q", text.Clip(t.AgentID, 80))
	case t.Label != "":
		return fmt.Sprintf("the label %q", text.Clip(t.Label+"="+t.Value, 80))
	}
	return fmt.Sprintf("the caller %q", text.Clip(t.User, 80))
}

// Err returns the fault.Held that refuses to erase what the hold covers.
func (h *Hold) Err() error {
	by := h.SetByName
	if by == "" {
		by = h.SetBy
	}
	if by != "" {
		by = " by " + text.Clip(by, 80)
	}
	return fault.New(fault.Held, "%s is under hold %s, set%s at %s (%s); nothing of it is erased until the hold is lifted",
		h.Target, h.ID, by, time.UnixMilli(h.SetMS).UTC().Format(time.RFC3339), h.Reason)
}

// Decode decodes the body of a record of a hold.
func Decode(body []byte) (h Hold, err error) {
	if err := json.Unmarshal(body, &h); err != nil {
		return h, fmt.Errorf("decode a hold: %w", err)
	}
	return h, nil
}

// AgentOf returns the agent that a space of records belongs to by its name, "" if it belongs to
// none.
func AgentOf(space string) string {
	for _, prefix := range []string{"checkpoint/", "call-summary/"} {
		if id, ok := strings.CutPrefix(space, prefix); ok {
			return id
		}
	}
	return ""
}

// Keeps reports whether a space of a caller holds what a hold on the caller keeps. What a
// conversation notes for its next turns is not kept.
func Keeps(space string) bool { return space != "remember/forget" }

// Service sets and lifts holds. All fields are required. Its methods are safe for concurrent use,
// on several servers too. The checks of a nil Service find no hold.
type Service struct {
	Records record.Store
	Now     func() time.Time
	NewID   func() string
	// Names returns all names of the caller with a name or alias, its own first.
	Names func(ctx context.Context, project, name string) ([]string, error)
}

func space(project string) record.Space { return record.Space{Project: project, Name: Space} }

// CheckTarget returns fault.Invalid for a target that cannot be held.
func CheckTarget(t Target) error {
	if len(t.Label)+len(t.Value) > MaxLabel {
		return fault.At(fault.Invalid, "label", "name and value have more than %d bytes together", MaxLabel)
	}
	return nil
}

// Set puts a target under hold, durably, for a reason. by and byName are the key that does it. A
// target that is held already keeps the ID of its hold and gets the new reason. Once Set has
// returned, no erasure that is under way takes more away of what is held.
func (s *Service) Set(ctx context.Context, project string, t Target, reason, by, byName string) (h Hold, err error) {
	if err := CheckTarget(t); err != nil {
		return h, err
	}
	err = record.Retry(ctx, "the hold", func() error {
		h = Hold{ID: s.NewID(), Target: t, Reason: reason, SetBy: by, SetByName: byName, SetMS: s.Now().UnixMilli()}
		if t.User != "" {
			if h.Names, err = s.Names(ctx, project, t.User); err != nil {
				return err
			}
			h.User = h.Names[0]
		}
		old, rev, err := s.get(ctx, project, h.Target)
		switch {
		case err == nil:
			h.ID = old.ID
			for _, name := range old.Names { // a name once held stays held
				if !slices.Contains(h.Names, name) {
					h.Names = append(h.Names, name)
				}
			}
		case !fault.Is(err, fault.NotFound):
			return err
		}
		return s.put(ctx, project, &h, rev)
	})
	if err == nil && h.User != "" {
		h, err = s.widen(ctx, project, h)
	}
	return h, err
}

// widen puts names under a caller's hold that the caller got while it was set.
func (s *Service) widen(ctx context.Context, project string, h Hold) (Hold, error) {
	err := record.Retry(ctx, "the hold", func() error {
		names, err := s.Names(ctx, project, h.User)
		if err != nil {
			return err
		}
		now, rev, err := s.get(ctx, project, h.Target)
		if err != nil {
			return err
		}
		missing := slices.DeleteFunc(names, func(n string) bool { return slices.Contains(now.Names, n) })
		if len(missing) == 0 {
			return nil
		}
		now.Names = append(now.Names, missing...)
		h = now
		return s.put(ctx, project, &h, rev)
	})
	if fault.Is(err, fault.NotFound) { // lifted meanwhile
		err = nil
	}
	return h, err
}

// put stores the records of a hold; that of its target has the revision.
func (s *Service) put(ctx context.Context, project string, h *Hold, rev int64) error {
	body, err := json.Marshal(h)
	if err != nil {
		return err
	}
	var changes []record.Change
	for i, key := range h.Keys() {
		c := record.Change{ID: key, Body: body, If: record.Any}
		if i == 0 {
			c.If = rev
		}
		changes = append(changes, c)
	}
	_, err = s.Records.ChangeRecords(ctx, space(project), changes, record.Limit{Records: maxHolds, Of: "holds"}, nil, s.Now().UnixMilli())
	return err
}

// get returns the hold on a target and the revision of its record, or fault.NotFound with the
// revision record.Absent.
func (s *Service) get(ctx context.Context, project string, t Target) (Hold, int64, error) {
	r, err := s.Records.Record(ctx, space(project), t.key())
	if fault.Is(err, fault.NotFound) {
		return Hold{}, record.Absent, fault.New(fault.NotFound, "%s is not under hold", t)
	}
	if err != nil {
		return Hold{}, record.Absent, err
	}
	h, err := Decode(r.Body)
	return h, r.Rev, err
}

// Get returns the hold on a target, or fault.NotFound. A caller is found by each name.
func (s *Service) Get(ctx context.Context, project string, t Target) (Hold, error) {
	h, _, err := s.get(ctx, project, t)
	return h, err
}

// Lift ends the hold on a target, or returns fault.NotFound.
func (s *Service) Lift(ctx context.Context, project string, t Target) (h Hold, err error) {
	err = record.Retry(ctx, "the hold", func() (err error) {
		var rev int64
		if h, rev, err = s.get(ctx, project, t); err != nil {
			return err
		}
		if t.key() != h.key() { // by an alias
			if h, rev, err = s.get(ctx, project, h.Target); err != nil {
				return err
			}
		}
		var gone []record.Change
		for i, key := range h.Keys() {
			c := record.Change{ID: key, If: record.Any}
			if i == 0 {
				c.If = rev
			}
			gone = append(gone, c)
		}
		_, err = s.Records.ChangeRecords(ctx, space(project), gone, record.Limit{}, nil, s.Now().UnixMilli())
		return err
	})
	return h, err
}

// List returns at most limit holds of a project in the order of their keys after a cursor, "" for
// the first page, and the cursor of the next page, "" after the last.
func (s *Service) List(ctx context.Context, project, cursor string, limit int) (list []Hold, next string, err error) {
	for q := (record.Query{AfterID: cursor, Limit: limit + 1}); ; {
		page, _, err := s.Records.Records(ctx, space(project), q)
		if err != nil {
			return nil, "", err
		}
		for _, r := range page {
			h, err := Decode(r.Body)
			if err != nil {
				return nil, "", err
			}
			if h.key() != r.ID { // that of another name of the caller
				q.AfterID = r.ID
				continue
			}
			if len(list) == limit {
				return list, q.AfterID, nil
			}
			q.AfterID, list = r.ID, append(list, h)
		}
		if len(page) < q.Limit {
			return list, "", nil
		}
	}
}

// CheckUsers returns fault.Held if a caller with one of the names is under hold.
func (s *Service) CheckUsers(ctx context.Context, project string, names ...string) error {
	for _, n := range names {
		if s == nil {
			break
		}
		if err := s.check(ctx, project, Target{User: n}); err != nil {
			return err
		}
	}
	return nil
}

// CheckAgent returns fault.Held if an agent is under hold: itself, its caller, or one of its
// labels.
func (s *Service) CheckAgent(ctx context.Context, h *memory.Head) error {
	if s == nil {
		return nil
	}
	a := h.Agent
	targets := []Target{{AgentID: a.ID}}
	for _, tag := range h.Tags() {
		if user, is := tag.User(); is {
			targets = append(targets, Target{User: user})
		} else if !tag.Own() {
			targets = append(targets, Target{Label: tag.Name, Value: tag.Value})
		}
	}
	for _, t := range targets {
		if err := s.check(ctx, a.Project, t); err != nil {
			return err
		}
	}
	return nil
}

// CheckProject returns fault.Held if a project has a hold.
func (s *Service) CheckProject(ctx context.Context, project string) error {
	if s == nil {
		return nil
	}
	list, _, err := s.List(ctx, project, "", 1)
	if err == nil && len(list) > 0 {
		err = list[0].Err()
	}
	return err
}

func (s *Service) check(ctx context.Context, project string, t Target) error {
	h, _, err := s.get(ctx, project, t)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil
	case err != nil:
		return err
	}
	return h.Err()
}

// Widen puts all names of a caller of which one is held under that hold. It is called after a
// change of the names.
func (s *Service) Widen(ctx context.Context, project string, names []string) error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, n := range names {
		h, _, err := s.get(ctx, project, Target{User: n})
		if err == nil {
			_, err = s.widen(ctx, project, h)
		}
		if !fault.Is(err, fault.NotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
