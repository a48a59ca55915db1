package record

import "context"

// page is how many records Follow reads at a time.
const page = 200

// Reader is the part of a Store that Follow needs.
type Reader interface {
	Records(ctx context.Context, at Space, q Query) ([]Record, State, error)
}

// Follow brings a reader of a space up to date and sets known to the state that it then knows. The
// zero State knows nothing. take gets the records that changed since, in order of Rev, in parts,
// and the state of the space; an error of take ends Follow. If deletions were missed, reset is
// called and all records follow. After an error known is as of the last part, unless take has set
// it.
func Follow(ctx context.Context, s Reader, at Space, known *State, take func([]Record, State) error, reset func()) error {
	for {
		list, now, err := s.Records(ctx, at, Query{ByRev: true, AfterRev: known.Rev, Limit: page})
		switch {
		case err != nil:
			return err
		case known.Rev == 0:
			known.CompactedRev = now.CompactedRev // older deletions concern nothing that is read
		case now.CompactedRev > max(known.Rev, known.CompactedRev), now.Rev < known.Rev:
			reset()
			*known = State{}
			continue
		}
		if len(list) > 0 {
			if err := take(list, now); err != nil {
				return err
			}
		}
		if len(list) < page {
			*known = now
			return nil
		}
		known.Rev = list[len(list)-1].Rev
	}
}
