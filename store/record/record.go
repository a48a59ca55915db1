// Package record keeps small sealed values that belong to a caller or a collection: facts, aliases,
// documents. A Store compares and sets revisions and knows nothing of what it holds.
package record

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Space is a set of records. Records of a caller have its User, so that erasing the caller finds
// them; others have none.
type Space struct {
	Project string
	Name    string // what it holds, such as "fact" or "vector/products"
	User    string
}

// Local begins the names of spaces that concern one database alone. Exports leave them out.
const Local = "local/"

// Record is one value.
type Record struct {
	ID        string
	Rev       int64 // the space's revision that stored it
	UpdatedMS int64 // Unix ms
	Body      []byte
	Deleted   bool // it was deleted at Rev and has no body
}

// State is what a space is as of one moment. A space that was never written to has the zero value.
type State struct {
	Rev   int64 // raised with each change of the space, by one while it holds records; never lowered
	Count int64 // of records that are not deleted
	Bytes int64 // of their IDs and bodies
	// CompactedRev is the revision up to which deletions are forgotten: a reader that knows the
	// space as of an earlier one must reload it.
	CompactedRev int64
}

// Change sets or deletes one record.
type Change struct {
	ID   string
	Body []byte // nil to delete
	// If is the revision that the record must have: Any, Absent for none, else Record.Rev.
	If int64
	// Caller is the caller whom a record in a space of no user is about. A deletion fails with
	// fault.Held while that caller is under hold. It may be empty.
	Caller string
}

// The special values of Change.If.
const (
	Any    = -1
	Absent = 0
)

// Limit bounds a space after a change. A zero field means no limit.
type Limit struct {
	Records int64
	Bytes   int64
	Of      string // what the records are, for the error; "" = records
}

// Check returns fault.Quota if a space that grows would exceed the limit.
func (l Limit) Check(before, after State) error {
	switch {
	case l.Records > 0 && after.Count > l.Records && after.Count > before.Count:
		return fault.New(fault.Quota, "at most %d %s are allowed, and this would make %d; delete some first", l.Records, cmp.Or(l.Of, "records"), after.Count)
	case l.Bytes > 0 && after.Bytes > l.Bytes && after.Bytes > before.Bytes:
		return fault.New(fault.Quota, "at most %d bytes of %s are allowed, and this would make %d; delete some first", l.Bytes, cmp.Or(l.Of, "records"), after.Bytes)
	}
	return nil
}

// Query selects records of a space. Exactly one of ByRev and the order by ID applies.
type Query struct {
	ByRev    bool   // in order of Rev, deleted ones too, after AfterRev; else by ID, after AfterID
	AfterRev int64  // 0 = from the beginning
	AfterID  string // "" = from the beginning
	// Limit is at least 1. A page by Rev never ends within a revision: it has all records of its
	// last one, which may be up to MaxChanges more.
	Limit int
	// Broken asks for records whose bodies cannot be decrypted too, with a nil Body. Without it,
	// one such record fails the whole page.
	Broken bool
}

// ErrStale is the answer to changes of which one names a revision that its record does not have.
// Nothing is stored.
var ErrStale = errors.New("a record has changed since the change was decided")

// Terms returns the words by which the record of a space with that body is found, nil for none. A
// store that does not encrypt keeps hashes of them beside the record.
type Terms func(s Space, body []byte) []string

// Bounds of spaces and changes. Without them one call could hold up all other writers of a store.
const (
	MaxName    = 256     // of Space.Name, in bytes
	MaxUser    = 512     // of Space.User, in bytes
	MaxID      = 512     // of an ID, in bytes
	MaxChanges = 512     // in one call
	MaxBytes   = 2 << 20 // of the IDs and bodies in one call
)

// Check returns an error if a space or changes of it break the bounds: fault.TooLarge for too many
// changes or bytes at once, else fault.Invalid.
func Check(s Space, changes []Change) error {
	switch {
	case s.Name == "" || len(s.Name) > MaxName:
		return fault.New(fault.Invalid, "the name of a set of records has %d bytes; it must have 1 to %d", len(s.Name), MaxName)
	case !utf8.ValidString(s.Name), strings.ContainsFunc(s.Name, unicode.IsControl):
		return fault.New(fault.Invalid, "the name of a set of records has control characters or is not valid UTF-8")
	case len(s.User) > MaxUser:
		return fault.New(fault.Invalid, "the ID of a user has %d bytes; at most %d are allowed", len(s.User), MaxUser)
	case len(changes) > MaxChanges:
		return fault.New(fault.TooLarge, "%d records would change at once; at most %d are allowed", len(changes), MaxChanges)
	}
	size := 0
	seen := make(map[string]bool, len(changes))
	for _, c := range changes {
		switch {
		case c.ID == "" || len(c.ID) > MaxID:
			return fault.New(fault.Invalid, "the ID of a record has %d bytes; it must have 1 to %d", len(c.ID), MaxID)
		case seen[c.ID]:
			return fault.New(fault.Invalid, "the record %q would change twice at once", c.ID)
		}
		seen[c.ID] = true
		size += len(c.ID) + len(c.Body)
	}
	if size > MaxBytes {
		return fault.New(fault.TooLarge, "%d bytes of records would change at once; at most %d are allowed", size, MaxBytes)
	}
	return nil
}

// Decide returns what a space becomes by changes, and those of them that store something. held
// returns the revision and the Size of the record with an ID, or zeros if there is none or it is
// deleted. It fails with ErrStale and as Limit.Check does.
func Decide(before State, changes []Change, limit Limit, held func(id string) (rev, size int64)) (after State, stored []Change, err error) {
	after = before
	after.Rev++
	for _, c := range changes {
		rev, size := held(c.ID)
		switch {
		case c.If != Any && c.If != rev:
			return before, nil, ErrStale
		case c.Body == nil && rev == 0:
			continue
		case c.Body == nil:
			after.Count--
		case rev == 0:
			after.Count++
		}
		after.Bytes += c.Size() - size
		stored = append(stored, c)
	}
	if err := limit.Check(before, after); err != nil {
		return before, nil, err
	}
	if len(stored) == 0 {
		after = before
	}
	return after, stored, nil
}

// Size returns how much the change's record counts in State.Bytes.
func (c *Change) Size() int64 {
	if c.Body == nil {
		return 0
	}
	return int64(len(c.ID) + len(c.Body))
}

// KeepDeletions is how long a deletion is listed. A reader by revision that was away for longer
// reads the whole space again.
const KeepDeletions = time.Hour

// ErrNoRecord returns the fault.NotFound of an ID that a space does not hold.
func ErrNoRecord(id string) error { return fault.New(fault.NotFound, "there is no record %q", id) }

// Size returns how much the record counts in State.Bytes.
func (r *Record) Size() int64 {
	if r.Deleted {
		return 0
	}
	return int64(len(r.ID) + len(r.Body))
}

// Store keeps records. storetest.RunRecords is its contract as tests. Its methods are safe for
// concurrent use, on several servers too, and what they acknowledge is on disk.
//
// Every method fails with fault.Unavailable when the store is full, closed or failing, and with the
// context's cause when ctx ends first. Deletions of many records never make writers wait longer
// than a few milliseconds at a time.
type Store interface {
	// ChangeRecords applies changes, of different IDs, all or none, together with the outbox rows
	// of the events that endpoints of the project want, and returns the space's state after it. All
	// records get that state's Rev. A deletion of a record that is not there changes nothing; if
	// nothing changes, Rev stays and the events are stored. It fails with ErrStale, with
	// fault.Conflict if there is an event with such an ID already, with fault.Held if it deletes
	// something that is under hold, and as Check and Limit.Check do.
	ChangeRecords(ctx context.Context, s Space, changes []Change, limit Limit, events []memory.Event, nowMS int64) (State, error)
	// Record returns a record, or fault.NotFound.
	Record(ctx context.Context, s Space, id string) (Record, error)
	// Records returns records and the state of the space, as of one moment.
	Records(ctx context.Context, s Space, q Query) ([]Record, State, error)
	// FindRecords returns the records of a space that have some of the words, best first, and sees
	// everything that was stored before. A store that encrypts its records finds none.
	FindRecords(ctx context.Context, s Space, q Find) (Found, error)
	// RecordSpaces returns the spaces of a project that hold records and whose names begin with
	// prefix, by name and user, in order of bytes, after the given one (zero = from the beginning).
	// limit is at least 1.
	RecordSpaces(ctx context.Context, project, prefix string, after Space, limit int) ([]Space, error)
	// EraseRecords deletes the spaces of a project whose names begin with prefix ("" = all): those
	// of a user, or, with an empty user, those of all users and of none. It returns how many
	// records there were. No byte of them and no deletion stays in a table; State.CompactedRev
	// makes readers notice. What is stored meanwhile may go or stay. It fails with fault.Held if
	// something is under hold, and may have deleted a part by then.
	EraseRecords(ctx context.Context, project, user, prefix string) (int, error)
	// SweepRecords forgets deletions from before a time, in all spaces, and spaces without a record
	// or a deletion; see State.CompactedRev.
	SweepRecords(ctx context.Context, beforeMS int64) error
}
