package access

import (
	"context"
	"time"

	"github.com/heardlog/heardlog/memory/kv"
)

// Once marks names as used, on all servers of a store. It is safe for concurrent use.
type Once struct {
	Store kv.Store
	Now   func() time.Time
}

// usedOf returns where a project's used names are.
func usedOf(project string) kv.Space { return kv.Space{Project: "~used/" + project} }

// Use marks a name as used until a time. It fails with fault.Conflict if it is marked already.
func (o *Once) Use(ctx context.Context, project, name string, until time.Time) error {
	now := o.Now().UnixMilli()
	e := kv.Entry{Key: name, UpdatedMS: now, ExpiresMS: max(until.UnixMilli(), now+1)}
	return kv.PutNew(ctx, o.Store, usedOf(project), e, kv.Limit{}, now)
}

// Used reports whether a name is marked.
func (o *Once) Used(ctx context.Context, project, name string) (bool, error) {
	found, err := o.Store.GetKeys(ctx, usedOf(project), []string{name}, o.Now().UnixMilli())
	return len(found) > 0, err
}

// Forget removes the mark of a name.
func (o *Once) Forget(ctx context.Context, project, name string) error {
	_, err := o.Store.DeleteKey(ctx, usedOf(project), name, o.Now().UnixMilli())
	return err
}
