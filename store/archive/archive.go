// Package archive keeps calls that ended long ago as objects in a folder or a bucket, one object a
// call, and out of the tables of the store. A Keeper moves them there. A Store below the engine
// reads them as if they had never left, and brings a call back before it is changed.
//
// The row of the agent stays in the store, with its labels and counts, and with the name and the
// key of the object (memory.Cold). An object is sealed with a key of its own, of which there is no
// other copy: once the row is erased, the object cannot be read, whether it is gone or not.
//
// The steps of a move are ordered so that a crash between any two loses nothing. The name is noted
// in the store. The object is written, read back and compared. Then one transaction of the store
// takes the rows away and notes where they are. Objects that are noted and that no call needs are
// deleted later. No object is ever searched for, so several servers may share a bucket.
package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/blob"
	"github.com/heardlog/heardlog/internal/cache"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

const (
	// CacheBytes is how much of unpacked calls is kept in memory.
	CacheBytes = 32 << 20
	// maxReads is how many objects are read at a time.
	maxReads = 32
	// readFor and writeFor are how long one object may take.
	readFor  = 10 * time.Second
	writeFor = 30 * time.Second
)

var errNone = errors.New("the setting names no archive")

var errTooLarge = fmt.Errorf("the call has more than %d bytes", MaxCall)

// Archive reads and writes objects.
type Archive struct {
	place blob.Store
	cache *cache.Cache[string, *Call]
	reads chan struct{}
	// onFail, if not nil, is called for each object that could not be read.
	onFail func()

	work   sync.WaitGroup // reads under way
	mu     sync.Mutex     // guards flying
	flying map[string]*flight
}

// flight is a read under way.
type flight struct {
	done chan struct{}
	call *Call
	err  error
}

// New returns an archive in a place, nil for none.
func New(place blob.Store) *Archive {
	return &Archive{
		place: place, flying: map[string]*flight{}, reads: make(chan struct{}, maxReads),
		cache: cache.New[string](CacheBytes, func(c *Call) int64 { return 2*c.bytes + 1000 }),
	}
}

// Fault is the error of an object that cannot be read.
type Fault struct {
	Object, Place string
	Err           error
}

// Error names the object and the fault.
func (f *Fault) Error() string {
	return fmt.Sprintf("object %s of the archive %s: %v", f.Object, f.Place, f.Err)
}

// Unwrap returns the fault and memory.ErrArchive.
func (f *Fault) Unwrap() []error { return []error{f.Err, memory.ErrArchive} }

func (a *Archive) fail(object string, err error) error {
	place := "HEARDLOG_ARCHIVE"
	if a.place != nil {
		place = a.place.String()
	}
	return fault.Wrap(fault.Unavailable, &Fault{object, place, err}, "the call is in the archive, which cannot be read now")
}

// Read returns a call. What it returns is shared: do not change it. It fails with
// fault.Unavailable and a *Fault if the object cannot be read, is missing or damaged.
func (a *Archive) Read(ctx context.Context, ref memory.Ref, cold *memory.Cold) (*Call, error) {
	if c, ok := a.cache.Get(cold.Object); ok && c.Agent.Ref() == ref {
		return c, nil
	}
	if a.place == nil {
		return nil, a.fail(cold.Object, errNone)
	}
	a.mu.Lock()
	f := a.flying[cold.Object]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		a.flying[cold.Object] = f
		// Not under ctx: others may wait for the same object.
		a.work.Go(func() { a.fly(context.WithoutCancel(ctx), f, ref, cold) })
	}
	a.mu.Unlock()
	select {
	case <-f.done:
		return f.call, f.err
	case <-ctx.Done():
		return nil, fault.Ended(ctx)
	}
}

// fly reads an object for all that wait for it.
func (a *Archive) fly(ctx context.Context, f *flight, ref memory.Ref, cold *memory.Cold) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	defer func() {
		a.mu.Lock()
		delete(a.flying, cold.Object)
		a.mu.Unlock()
		close(f.done)
	}()
	select {
	case a.reads <- struct{}{}:
		defer func() { <-a.reads }()
	case <-ctx.Done():
		f.err = a.fail(cold.Object, errors.New("too many objects are being read"))
		return
	}
	object, err := a.get(ctx, cold.Object, cold.Bytes)
	if err == nil {
		f.call, err = decode(ref, cold, object)
	}
	if err != nil {
		if a.onFail != nil {
			a.onFail()
		}
		f.call, f.err = nil, a.fail(cold.Object, err)
		return
	}
	a.cache.Set(cold.Object, f.call)
}

// Close waits for the reads under way, for at most their time.
func (a *Archive) Close() { a.work.Wait() }

// get returns the bytes of an object, which has so many.
func (a *Archive) get(ctx context.Context, name string, size int64) ([]byte, error) {
	r, err := a.place.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	// A folder on a network may ignore ctx.
	stop := context.AfterFunc(ctx, func() { _ = r.Close() })
	b, err := io.ReadAll(io.LimitReader(r, size+1))
	if stop() {
		err = errors.Join(err, r.Close())
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil && int64(len(b)) != size {
		err = errDamaged
	}
	return b, err
}

// remove deletes an object.
func (a *Archive) remove(ctx context.Context, name string) error {
	if a.place == nil {
		return errNone
	}
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	return a.place.Remove(ctx, name)
}

// put writes an object and reads it back.
func (a *Archive) put(ctx context.Context, name string, object []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeFor)
	defer cancel()
	if err := a.place.PutBytes(ctx, name, object); err != nil {
		return fmt.Errorf("write object %s: %w", name, err)
	}
	back, err := a.get(ctx, name, int64(len(object)))
	if err == nil && !bytes.Equal(back, object) {
		err = errDamaged
	}
	if err != nil {
		return fmt.Errorf("read object %s back after it was written: %w", name, err)
	}
	return nil
}
