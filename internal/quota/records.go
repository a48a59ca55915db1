package quota

import (
	"context"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/record"
)

// Records is a record store whose projects are held to their limits by a Keeper: what is set counts
// as bytes, and is refused with fault.Quota when there is no room. Deletions always go.
type Records struct {
	record.Store
	Keeper *Keeper
}

// ChangeRecords implements record.Store.
func (r Records) ChangeRecords(ctx context.Context, s record.Space, changes []record.Change, limit record.Limit, events []memory.Event, nowMS int64) (record.State, error) {
	var bytes int64
	for _, c := range changes {
		if c.Body != nil {
			bytes += int64(len(c.ID) + len(c.Body))
		}
	}
	if err := r.Keeper.Room(s.Project, 0, bytes); err != nil {
		return record.State{}, err
	}
	state, err := r.Store.ChangeRecords(ctx, s, changes, limit, events, nowMS)
	if err == nil {
		r.Keeper.Stored(s.Project, 0, bytes)
	}
	return state, err
}
