// Package caller keeps who the callers of a project are across calls. A Caller has a name, which is
// the user_id of its calls, aliases such as a telephone number, and a Consent to be remembered. A
// Service keeps them in records and erases callers with all that is stored of them.
package caller

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/record"
)

// Limits of callers.
const (
	MaxName    = 256 // bytes of a name or alias
	MaxAliases = 32  // of one caller
	// maxEntries limits the names and aliases of one project of which anything is kept.
	maxEntries = 1_000_000
)

// Remember is what may be kept of a caller from one call to the next.
type Remember string

// What may be kept.
const (
	All   Remember = "all"   // turns are recalled, facts are kept
	Turns Remember = "turns" // turns are recalled; there are no facts
	None  Remember = "none"  // nothing is recalled or kept
)

// order is how strict a value is.
func (r Remember) order() int { return slices.Index([]Remember{"", All, Turns, None}, r) }

// Consent is what a caller allows. The zero value allows all.
type Consent struct {
	Remember Remember
	UntilMS  int64 // Unix ms from which on it is None; 0 = never
}

// At returns what is allowed at a time.
func (c Consent) At(now time.Time) Remember {
	if c.UntilMS > 0 && now.UnixMilli() >= c.UntilMS {
		return None
	}
	return cmp.Or(c.Remember, All)
}

// stricter returns a consent that allows what both allow.
func (c Consent) stricter(d Consent) Consent {
	if d.Remember.order() > c.Remember.order() {
		c.Remember = d.Remember
	}
	if c.UntilMS == 0 || d.UntilMS > 0 && d.UntilMS < c.UntilMS {
		c.UntilMS = d.UntilMS
	}
	return c
}

// Caller is a person whom agents talk to, across calls. Clients name the person by an ID of their
// own, and by aliases such as telephone numbers, which lead to the same caller. What is remembered
// of all calls (facts, summaries, documents) belongs to the caller, depends on the caller's
// consent, and is erased with the caller.
type Caller struct {
	User    string
	Aliases []string // sorted
	Consent Consent
	// ConsentBy is the ID of the key that set the consent, "" if that is not known; ConsentMS is
	// when, Unix ms, or 0 if it was never set.
	ConsentBy string
	ConsentMS int64
}

// IDs returns all names under which things of the caller are stored: the user, then the aliases.
func (c *Caller) IDs() []string { return append([]string{c.User}, c.Aliases...) }

// Service has the rules of callers. Its methods are safe for concurrent use, on several servers
// too.
type Service struct {
	Records record.Store
	Ledger  memory.Ledger
	Items   memories.Service // of Ledger
	Now     func() time.Time
	// Key is secret and the same on all servers of a store: see KeyName. With it, the marks of
	// erased callers do not show their names to one who tries all telephone numbers.
	Key []byte
	// Erased returns the events about an erasure; nil = none.
	Erased func(Erasure) ([]memory.Event, error)
	// Forget is called after a caller was erased, with each name.
	Forget func(project, name string)
	// Purge removes what was erased from the files of the store; nil = there is nothing to do.
	Purge func(ctx context.Context) error
}

// KeyName is the name of the store's key that is Service.Key.
const KeyName = "erased callers"

// entry is the stored form of a name: of a caller, or of an alias, which has Of alone. Its ID is a
// hash, so that no name stays behind when it is erased.
type entry struct {
	Name    string   `json:"name"`
	Of      string   `json:"of,omitempty"` // the caller whose alias it is
	Aliases []string `json:"aliases,omitempty"`

	Remember Remember `json:"remember,omitempty"`
	UntilMS  int64    `json:"until_ms,omitempty"`
	By       string   `json:"consent_by,omitempty"` // as Caller.ConsentBy
	SetMS    int64    `json:"consent_ms,omitempty"`

	rev, updatedMS int64 // of its record; record.Absent and 0 if there is none
}

func (e *entry) consent() Consent { return Consent{e.Remember, e.UntilMS} }

func (e *entry) caller() Caller {
	return Caller{User: e.Name, Aliases: e.Aliases, Consent: e.consent(), ConsentBy: e.By, ConsentMS: e.SetMS}
}

// space holds the entries of a project. They share one space, since a change of aliases concerns
// several of them, all or none.
func space(project string) record.Space { return record.Space{Project: project, Name: "caller"} }

func entryID(name string) string {
	sum := sha256.Sum256([]byte("caller\x00" + name))
	return hex.EncodeToString(sum[:16])
}

// load returns the entry of a name, with rev record.Absent if there is none.
func (s *Service) load(ctx context.Context, project, name string) (entry, error) {
	r, err := s.Records.Record(ctx, space(project), entryID(name))
	switch {
	case fault.Is(err, fault.NotFound):
		return entry{Name: name, rev: record.Absent}, nil
	case err != nil:
		return entry{}, err
	}
	return decodeEntry(r)
}

func decodeEntry(r record.Record) (e entry, err error) {
	if err := json.Unmarshal(r.Body, &e); err != nil {
		return e, fmt.Errorf("decode a caller: %w", err)
	}
	e.rev, e.updatedMS = r.Rev, r.UpdatedMS
	return e, nil
}

// Get returns the caller with a name or alias. A caller of whom nothing is kept has no aliases and
// allows all.
func (s *Service) Get(ctx context.Context, project, name string) (Caller, error) {
	e, err := s.entryOf(ctx, project, name)
	return e.caller(), err
}

// entryOf returns the entry of the caller with a name or alias.
func (s *Service) entryOf(ctx context.Context, project, name string) (entry, error) {
	e, err := s.load(ctx, project, name)
	if err != nil || e.Of == "" {
		return e, err
	}
	return s.load(ctx, project, e.Of)
}

// Resolve returns the user of a name or alias, and all names of that caller, the user first.
func (s *Service) Resolve(ctx context.Context, project, name string) (user string, all []string, err error) {
	c, err := s.Get(ctx, project, name)
	return c.User, c.IDs(), err
}

// Recallable returns the user of a name or alias, and the names whose calls may be recalled now;
// none if the caller does not allow it.
func (s *Service) Recallable(ctx context.Context, project, name string) (user string, all []string, err error) {
	c, err := s.Get(ctx, project, name)
	if err != nil || c.Consent.At(s.Now()) == None {
		return c.User, nil, err
	}
	return c.User, c.IDs(), nil
}

// KeepsFacts reports whether facts of the caller with a name or alias may be kept now.
func (s *Service) KeepsFacts(ctx context.Context, project, name string) (bool, error) {
	c, err := s.Get(ctx, project, name)
	return c.Consent.At(s.Now()) == All, err
}

// Names returns all names of the caller with a name or alias, its own first.
func (s *Service) Names(ctx context.Context, project, name string) ([]string, error) {
	_, all, err := s.Resolve(ctx, project, name)
	return all, err
}

// change stores what decide returns for the caller with a name or alias.
func (s *Service) change(ctx context.Context, project, name string, decide func(e entry) ([]entry, error)) (c Caller, err error) {
	err = record.Retry(ctx, "the names of this caller", func() error {
		e, err := s.entryOf(ctx, project, name)
		if err != nil {
			return err
		}
		list, err := decide(e)
		if err != nil {
			return err
		}
		changes := make([]record.Change, len(list))
		for i := range list {
			changes[i] = record.Change{ID: entryID(list[i].Name), If: list[i].rev, Caller: list[i].Name}
			if list[i].kept() {
				if changes[i].Body, err = json.Marshal(list[i]); err != nil {
					return err
				}
			}
		}
		c = list[0].caller()
		_, err = s.Records.ChangeRecords(ctx, space(project), changes, record.Limit{Records: maxEntries, Of: "callers with aliases or a consent in this project"}, nil, s.Now().UnixMilli())
		return err
	})
	return c, err
}

// kept reports whether the entry says more than no entry would.
func (e *entry) kept() bool {
	return e.Of != "" || len(e.Aliases) > 0 || e.consent() != (Consent{}) || e.SetMS != 0
}

// SetConsent sets what a caller allows. It replaces what was set before. by is the ID of the key
// that sets it, "" without one.
func (s *Service) SetConsent(ctx context.Context, project, name string, c Consent, by string) (Caller, error) {
	if c.Remember == All && c.UntilMS == 0 {
		c = Consent{}
	}
	return s.change(ctx, project, name, func(e entry) ([]entry, error) {
		e.Remember, e.UntilMS, e.By, e.SetMS = c.Remember, c.UntilMS, by, s.Now().UnixMilli()
		return []entry{e}, nil
	})
}

// SetAliases sets all aliases of a caller. It returns fault.Conflict if one is an alias of another
// caller, or has aliases of its own. A name that already has calls may become an alias: its calls
// are the caller's from then on, and the stricter consent of the two counts. A name that is no
// longer an alias keeps its calls and the consent.
// Facts of a name that becomes an alias become the caller's. One whose ID the caller has for
// another fact gets a new ID. It returns fault.Held if one of the names is under hold.
func (s *Service) SetAliases(ctx context.Context, project, name string, aliases []string) (Caller, error) {
	if err := s.Items.Holds.CheckUsers(ctx, project, append([]string{name}, aliases...)...); err != nil {
		return Caller{}, err
	}
	c, err := s.setAliases(ctx, project, name, aliases)
	if err == nil { // a hold that was set meanwhile may not know of the new names
		err = s.Items.Holds.Widen(ctx, project, c.IDs())
	}
	for _, a := range c.Aliases {
		if err == nil {
			err = s.moveFacts(ctx, project, a, c.User)
		}
	}
	return c, err
}

// movePage is how many facts are moved at a time; that many are below record.MaxBytes.
const movePage = 50

// moveFacts moves the facts of one name to another. It may be repeated.
func (s *Service) moveFacts(ctx context.Context, project, from, to string) error {
	return record.Retry(ctx, "the facts of this caller", func() error {
		return s.tryMove(ctx, record.Space{Project: project, Name: factSpace, User: from}, record.Space{Project: project, Name: factSpace, User: to})
	})
}

// tryMove moves facts from one space to another. It fails with record.ErrStale.
func (s *Service) tryMove(ctx context.Context, from, to record.Space) error {
	places := map[string]place{}
	look := func(_ string, r record.Record) (err error) {
		places[r.ID], err = s.placeOf(ctx, from, to, r)
		return err
	}
	if err := s.visitSpace(ctx, from, Visitor{Record: look}); err != nil {
		return err
	}
	for {
		page, _, err := s.Records.Records(ctx, from, record.Query{Limit: movePage})
		if err != nil || len(page) == 0 {
			return err
		}
		var puts, deletions []record.Change
		for _, r := range page {
			p := places[r.ID]
			if p.of != r.Rev {
				return record.ErrStale
			}
			if !p.held {
				body, err := relink(r.Body, places)
				if err != nil {
					return err
				}
				puts = append(puts, record.Change{ID: p.id, Body: body, If: p.rev})
			}
			deletions = append(deletions, record.Change{ID: r.ID, If: r.Rev})
		}
		now := s.Now().UnixMilli()
		if len(puts) > 0 {
			if _, err := s.Records.ChangeRecords(ctx, to, puts, record.Limit{}, nil, now); err != nil {
				return err
			}
		}
		if _, err := s.Records.ChangeRecords(ctx, from, deletions, record.Limit{}, nil, now); err != nil {
			return err
		}
	}
}

// place is where a fact goes.
type place struct {
	of   int64 // the revision of the fact
	id   string
	rev  int64 // what is there now, or record.Absent
	held bool  // the fact is there already
}

// placeOf returns where a fact goes: to its ID, or to another one if that is another fact's.
func (s *Service) placeOf(ctx context.Context, from, to record.Space, r record.Record) (place, error) {
	f, err := decodeMoved(r)
	if err != nil {
		return place{}, err
	}
	id := r.ID
	for n := 1; ; n++ {
		there, err := s.Records.Record(ctx, to, id)
		if fault.Is(err, fault.NotFound) {
			return place{of: r.Rev, id: id, rev: record.Absent}, nil
		}
		if err != nil {
			return place{}, err
		}
		is, err := decodeMoved(there)
		if err != nil {
			return place{}, err
		}
		if is.moved == f.moved { // a move that failed has put it there
			return place{of: r.Rev, id: id, rev: there.Rev, held: is.UpdatedUS >= f.UpdatedUS}, nil
		}
		sum := sha256.Sum256(fmt.Appendf(nil, "moved fact\x00%s\x00%s\x00%d", from.User, r.ID, n))
		id = hex.EncodeToString(sum[:16])
	}
}

// moved is what a stored fact keeps for good.
type moved struct {
	Content   string
	Kind      string
	Subject   string
	Attribute string
	CreatedUS int64 `json:"created_us"`
}

type movedFact struct {
	moved
	UpdatedUS int64 `json:"updated_us"`
}

func decodeMoved(r record.Record) (f movedFact, err error) {
	if err := json.Unmarshal(r.Body, &f); err != nil {
		return f, fmt.Errorf("decode a fact: %w", err)
	}
	return f, nil
}

// relink returns a stored fact with the new IDs of the facts that it names.
func relink(body []byte, places map[string]place) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, fmt.Errorf("decode a fact: %w", err)
	}
	changed := false
	for _, name := range []string{"supersedes", "superseded_by"} {
		var id string
		if members[name] == nil || json.Unmarshal(members[name], &id) != nil {
			continue
		}
		if p, ok := places[id]; ok && p.id != id {
			members[name], changed = json.RawMessage(`"`+p.id+`"`), true
		}
	}
	if !changed {
		return body, nil
	}
	return json.Marshal(members)
}

func (s *Service) setAliases(ctx context.Context, project, name string, aliases []string) (Caller, error) {
	if len(aliases) > MaxAliases {
		return Caller{}, fault.At(fault.Invalid, "aliases", "has %d entries; at most %d are allowed", len(aliases), MaxAliases)
	}
	for i, a := range aliases {
		if slices.Contains(aliases[:i], a) {
			return Caller{}, fault.At(fault.Invalid, fmt.Sprintf("aliases[%d]", i), "is there twice")
		}
	}
	return s.change(ctx, project, name, func(e entry) ([]entry, error) {
		gone := slices.DeleteFunc(slices.Clone(e.Aliases), func(a string) bool { return slices.Contains(aliases, a) })
		list := []entry{e}
		for i, a := range aliases {
			field := fmt.Sprintf("aliases[%d]", i)
			if a == e.Name {
				return nil, fault.At(fault.Invalid, field, "is the caller's own name")
			}
			is, err := s.load(ctx, project, a)
			switch {
			case err != nil:
				return nil, err
			case is.Of == e.Name:
				continue
			case is.Of != "":
				return nil, fault.At(fault.Conflict, field, "%q is an alias of another caller, %q", text.Clip(a, 80), text.Clip(is.Of, 80))
			case len(is.Aliases) > 0:
				return nil, fault.At(fault.Conflict, field, "%q is a caller with aliases of its own; remove those first", text.Clip(a, 80))
			}
			if c := list[0].consent().stricter(is.consent()); c != list[0].consent() {
				list[0].Remember, list[0].UntilMS, list[0].By, list[0].SetMS = c.Remember, c.UntilMS, is.By, is.SetMS
			}
			list = append(list, entry{Name: a, Of: e.Name, rev: is.rev})
		}
		for _, a := range gone {
			was, err := s.load(ctx, project, a)
			if err != nil {
				return nil, err
			}
			list = append(list, entry{Name: a, Remember: e.Remember, UntilMS: e.UntilMS, By: e.By, SetMS: e.SetMS, rev: was.rev})
		}
		list[0].Aliases = slices.Sorted(slices.Values(aliases))
		return list, nil
	})
}
