package record

import (
	"context"
	"math"

	"github.com/heardlog/heardlog/internal/fault"
)

// EraseUntil is Store.EraseRecords of all spaces, but leaves records that were stored after a time,
// Unix ms. Data keys are destroyed only if nothing is left that they seal.
func EraseUntil(ctx context.Context, s Store, project, user string, untilMS int64) (n int, err error) {
	if untilMS == math.MaxInt64 {
		return s.EraseRecords(ctx, project, user, "")
	}
	var spaces []Space
	newer := false
	for after := (Space{}); ; {
		page, err := s.RecordSpaces(ctx, project, "", after, erasePage)
		if err != nil {
			return 0, err
		}
		for _, sp := range page {
			if after = sp; user != "" && sp.User != user {
				continue
			}
			spaces = append(spaces, sp)
			_, left, err := eachOld(ctx, s, sp, untilMS, nil)
			if err != nil {
				return 0, err
			}
			newer = newer || left
		}
		if len(page) < erasePage {
			break
		}
	}
	if !newer {
		return s.EraseRecords(ctx, project, user, "")
	}
	for _, sp := range spaces {
		err := Retry(ctx, "the records", func() error {
			gone, _, err := eachOld(ctx, s, sp, untilMS, func(changes []Change) error {
				_, err := s.ChangeRecords(ctx, sp, changes, Limit{}, nil, untilMS)
				return err
			})
			n += gone
			return err
		})
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// erasePage is how many spaces or records are read at a time.
const erasePage = 500

// eachOld calls drop, if not nil, with deletions of the records of a space that were stored until a
// time. It returns how many were deleted, and whether there are later ones.
func eachOld(ctx context.Context, s Store, sp Space, untilMS int64, drop func([]Change) error) (n int, newer bool, err error) {
	for q := (Query{Limit: erasePage, Broken: true}); ; {
		page, _, err := s.Records(ctx, sp, q)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return n, newer, err
		}
		var old []Change
		for _, r := range page {
			if q.AfterID = r.ID; r.UpdatedMS > untilMS {
				newer = true
				continue
			}
			old = append(old, Change{ID: r.ID, If: r.Rev})
		}
		if drop != nil && len(old) > 0 {
			if err := drop(old); err != nil {
				return n, newer, err
			}
			n += len(old)
		}
		if len(page) < q.Limit {
			return n, newer, nil
		}
	}
}
