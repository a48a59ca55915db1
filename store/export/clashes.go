package export

import (
	"bytes"
	"context"
	"io"
)

// Reasons why a record cannot be imported.
const (
	IsThere      = "is there already"
	NameTaken    = "has the name of a live agent"
	JoinKeyTaken = "has a join key that was used already"
	CallKeyTaken = "has a call key of a live agent"
	OtherProject = "has an id that another project has given already"
)

// Clashes is what of an export cannot be imported because a store holds something in its place.
type Clashes struct {
	Total int
	First []string // the first of them, with the reason
	// Reports is set if the store has reports of the same time. These do not count in Total; see
	// Recount.
	Reports bool
}

// FindClashes reads an export to its end, looks for what the store already holds in its place, and
// names the first of it, up to most. What an earlier import of the same export has stored does not
// count. It changes nothing. It fails with fault.Conflict if an import of another export is
// unfinished.
func FindClashes(ctx context.Context, r io.Reader, to Target, most int) (found Clashes, err error) {
	in, _, err := newReader(r, mayClash)
	if err != nil {
		return found, err
	}
	defer in.close()
	had, err := to.Mark(ctx)
	if err == nil && had != nil {
		_, _, err = in.skip(had)
	}
	if err != nil {
		return found, err
	}
	var batch []Record
	flush := func() error {
		err := to.Clashes(ctx, batch, func(r Record, why string) {
			if isSum(&r) {
				found.Reports = true
				return
			}
			if found.Total++; len(found.First) < most {
				found.First = append(found.First, r.name()+" "+why)
			}
		})
		batch = batch[:0]
		return err
	}
	for {
		rec, _, end, err := in.next()
		if err != nil {
			return found, err
		}
		if end != nil {
			return found, flush()
		}
		if rec.Agent != nil || rec.Endpoint != nil || rec.Event != nil || rec.Conversation != nil || rec.Value != nil {
			if batch = append(batch, rec); len(batch) == batchRecords {
				if err := flush(); err != nil {
					return found, err
				}
			}
		}
	}
}

// mayClash reports whether a line may clash, other than by its agent: almost all lines do not.
func mayClash(line []byte) bool {
	for _, kind := range []string{"message", "item", "working", "delivery"} {
		if bytes.HasPrefix(line, []byte(`{"`+kind+`":`)) {
			return false
		}
	}
	return true
}
