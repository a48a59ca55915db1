package record

import (
	"context"
	"maps"
	"math"
	"slices"
)

// EraseUsers is Store.EraseRecords of all spaces of users, but leaves records that were stored
// after a time: untilMS has it by user, Unix ms; with math.MaxInt64 all are erased. The data keys
// of a user who has later records stay.
func EraseUsers(ctx context.Context, s Store, project string, untilMS map[string]int64) (n int, err error) {
	users := slices.Sorted(maps.Keys(untilMS))
	spaces := map[string][]Space{} // of users with a bound
	if slices.ContainsFunc(users, func(user string) bool { return untilMS[user] < math.MaxInt64 }) {
		err := eachSpace(ctx, s, project, func(sp Space) error {
			if at, is := untilMS[sp.User]; is && at < math.MaxInt64 {
				spaces[sp.User] = append(spaces[sp.User], sp)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	for _, user := range users {
		gone, err := eraseUntil(ctx, s, spaces[user], untilMS[user], func() (int, error) { return s.EraseRecords(ctx, project, user, "") })
		if n += gone; err != nil {
			return n, err
		}
	}
	return n, nil
}

// EraseProject is EraseUsers for all records of a project.
func EraseProject(ctx context.Context, s Store, project string, untilMS int64) (int, error) {
	var spaces []Space
	if untilMS < math.MaxInt64 {
		err := eachSpace(ctx, s, project, func(sp Space) error { spaces = append(spaces, sp); return nil })
		if err != nil {
			return 0, err
		}
	}
	return eraseUntil(ctx, s, spaces, untilMS, func() (int, error) { return s.EraseRecords(ctx, project, "", "") })
}

// EraseSpace deletes the records of one space. Unlike Store.EraseRecords it leaves spaces whose
// names go on behind the name of this one.
func EraseSpace(ctx context.Context, s Store, sp Space, nowMS int64) error {
	return eachPage(ctx, s, sp, func(page []Record) error {
		gone := make([]Change, len(page))
		for i, r := range page {
			gone[i] = Change{ID: r.ID, If: Any}
		}
		_, err := s.ChangeRecords(ctx, sp, gone, Limit{}, nil, nowMS)
		return err
	})
}

// erasePage is how many spaces or records are read at a time.
const erasePage = 500

// eachSpace calls fn with the spaces of a project.
func eachSpace(ctx context.Context, s Store, project string, fn func(Space) error) error {
	for after := (Space{}); ; {
		page, err := s.RecordSpaces(ctx, project, "", after, erasePage)
		if err != nil {
			return err
		}
		for _, sp := range page {
			after = sp
			if err := fn(sp); err != nil {
				return err
			}
		}
		if len(page) < erasePage {
			return nil
		}
	}
}

// eraseUntil calls all if no record of the spaces was stored after a time, and else deletes those
// that were not.
func eraseUntil(ctx context.Context, s Store, spaces []Space, untilMS int64, all func() (int, error)) (n int, err error) {
	later := false
	for _, sp := range spaces {
		err := eachPage(ctx, s, sp, func(page []Record) error {
			later = later || slices.ContainsFunc(page, func(r Record) bool { return r.UpdatedMS > untilMS })
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	if !later {
		return all()
	}
	for _, sp := range spaces {
		err := Retry(ctx, "the records", func() error {
			return eachPage(ctx, s, sp, func(page []Record) error {
				var old []Change
				for _, r := range page {
					if r.UpdatedMS <= untilMS {
						old = append(old, Change{ID: r.ID, If: r.Rev})
					}
				}
				if len(old) == 0 {
					return nil
				}
				_, err := s.ChangeRecords(ctx, sp, old, Limit{}, nil, untilMS)
				if err == nil {
					n += len(old)
				}
				return err
			})
		})
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// eachPage calls fn with the records of a space.
func eachPage(ctx context.Context, s Store, sp Space, fn func([]Record) error) error {
	for q := (Query{Limit: erasePage, Broken: true}); ; {
		page, _, err := s.Records(ctx, sp, q)
		if err != nil || len(page) == 0 {
			return err
		}
		q.AfterID = page[len(page)-1].ID
		if err := fn(page); err != nil || len(page) < q.Limit {
			return err
		}
	}
}
