package archive

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/heardlog/heardlog/internal/blob"
)

// Check writes a small object, reads it back and deletes it.
func (a *Archive) Check(ctx context.Context) error {
	if a.place == nil {
		return errNone
	}
	name, text := "check/"+rand.Text(), []byte(rand.Text())
	if err := a.put(ctx, name, text); err != nil {
		return err
	}
	return a.remove(ctx, name)
}

// Verified is what Verify has read.
type Verified struct {
	Objects, Bytes int64
}

// Verify reads every object in a place, and calls each for those that cannot be read or have other
// bytes than were written. It needs no store and no key. Calls of each do not overlap.
func Verify(ctx context.Context, place blob.Store, each func(object string, err error)) (n Verified, err error) {
	var mu sync.Mutex // guards n and each
	var group sync.WaitGroup
	names := make(chan string)
	for range ahead {
		group.Go(func() {
			for name := range names {
				size, err := verify(ctx, place, name)
				mu.Lock()
				n.Objects, n.Bytes = n.Objects+1, n.Bytes+size
				if err != nil && ctx.Err() == nil {
					each(name, err)
				}
				mu.Unlock()
			}
		})
	}
	err = place.Each(ctx, func(name string) error {
		select {
		case names <- name:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	close(names)
	group.Wait()
	return n, errors.Join(err, ctx.Err())
}

func verify(ctx context.Context, place blob.Store, name string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	r, err := place.Open(ctx, name)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxObject+1))
	switch {
	case err != nil:
	case len(b) > maxObject:
		err = fmt.Errorf("it has more than %d bytes", maxObject)
	case !bytes.HasPrefix(b, []byte(magic)):
		err = errNoCall
	default:
		err = check(name, b)
	}
	return int64(len(b)), err
}
