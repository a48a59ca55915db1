package storetest

import (
	"context"
	"sync"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/record"
)

// CutOff is a store of records that stores nothing while it is cut off, as after the death of the
// process that uses it, or on a full disk.
type CutOff struct {
	record.Store
	mu  sync.Mutex
	err error
}

// Cut makes changes fail with an error; nil lets them succeed again.
func (c *CutOff) Cut(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// ChangeRecords implements record.Store.
func (c *CutOff) ChangeRecords(ctx context.Context, s record.Space, list []record.Change, l record.Limit, ev []memory.Event, now int64) (record.State, error) {
	c.mu.Lock()
	err := c.err
	c.mu.Unlock()
	if err != nil {
		return record.State{}, err
	}
	return c.Store.ChangeRecords(ctx, s, list, l, ev, now)
}
