package record

import (
	"context"

	"github.com/heardlog/heardlog/internal/fault"
)

// Update changes records of a space by what they hold.
type Update struct {
	Space Space
	IDs   []string // all different
	What  string   // the records as a user calls them; see Retry
	Limit Limit
	NowMS int64
	// Decide returns the new body of the record with IDs[i], nil to delete it, or changed=false to
	// leave it. old is the zero value if there is none. It may be called again for the same record.
	Decide func(i int, old Record) (body []byte, changed bool, err error)
	// Absent, if set, reports whether IDs[i] is new, so that its record need not be looked for.
	Absent func(i int) bool
}

// Apply stores the changes, as many at once as one call may have, and returns how many there were.
// If it fails, some may be stored. It fails as Decide, the store and Retry do.
func (u Update) Apply(ctx context.Context, s Store) (n int, err error) {
	for from, to := 0, 0; from < len(u.IDs); from = to {
		var changes []Change
		err := Retry(ctx, u.What, func() (err error) {
			if changes, to, err = u.decide(ctx, s, from); err != nil || len(changes) == 0 {
				return err
			}
			_, err = s.ChangeRecords(ctx, u.Space, changes, u.Limit, nil, u.NowMS)
			return err
		})
		if err != nil {
			return n, err
		}
		n += len(changes)
	}
	return n, nil
}

// decide returns the changes of the records with IDs[from:to], at least one.
func (u Update) decide(ctx context.Context, s Store, from int) (changes []Change, to int, err error) {
	size := 0
	for to = from; to < min(from+MaxChanges, len(u.IDs)); to++ {
		var old Record
		if u.Absent == nil || !u.Absent(to) {
			if old, err = s.Record(ctx, u.Space, u.IDs[to]); err != nil && !fault.Is(err, fault.NotFound) {
				return nil, to, err
			}
		}
		body, changed, err := u.Decide(to, old)
		if err != nil {
			return nil, to, err
		}
		if !changed || body == nil && old.Rev == 0 {
			continue
		}
		if size += len(u.IDs[to]) + len(body); size > MaxBytes && len(changes) > 0 {
			break
		}
		changes = append(changes, Change{ID: u.IDs[to], Body: body, If: old.Rev})
	}
	return changes, to, nil
}
