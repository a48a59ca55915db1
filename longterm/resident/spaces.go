package resident

import (
	"context"

	"github.com/heardlog/heardlog/store/record"
)

// Index is a value that is made of the records of a space.
type Index interface {
	Value
	// Take puts records into the index, in place of those with the same IDs, or removes deleted
	// ones. now is the state of the space.
	Take(list []record.Record, now record.State) error
}

// Refuse returns an error if a space is to have no index: because of its state, before it is read,
// when size is 0, or because of the size of the index so far.
type Refuse func(at record.Space, now record.State, size int64) error

// Spaces is a Cache of the indexes of record spaces.
type Spaces[T Index] struct {
	*Cache[record.Space, T]
	store  record.Reader
	fresh  func(record.Space) T
	refuse Refuse
	reads  chan struct{} // has a value for each space of more than a page that is read whole
}

// NewSpaces returns Spaces whose indexes take at most maxBytes in all. fresh returns the empty
// index of a space. If refuse is nil, all spaces have an index.
func NewSpaces[T Index](store record.Reader, maxBytes int64, fresh func(record.Space) T, refuse Refuse) *Spaces[T] {
	return &Spaces[T]{New[record.Space, T](maxBytes), store, fresh, refuse, make(chan struct{}, readers)}
}

// follower is how far an entry has followed its space.
type follower struct {
	state   record.State // that the index knows
	read    bool         // all of the space was read once
	refused record.State // in which the size of the index was refused
	refusal error        // then
}

// page is how many records are read without waiting for others.
const page = 200

// Enter enters the entry of a space, whose index then has all that was stored before the call. It
// fails as the store, Index.Take and refuse do, and with fault.Canceled if ctx ends first. An index
// that was refused is not read again before its space changes.
func (s *Spaces[T]) Enter(ctx context.Context, at record.Space) (*Entry[record.Space, T], error) {
	e := s.Get(at, func() T { return s.fresh(at) })
	return e, e.Enter(ctx, func() error { return s.follow(ctx, e) })
}

func (s *Spaces[T]) follow(ctx context.Context, e *Entry[record.Space, T]) error {
	if s.refuse != nil && !e.read {
		_, now, err := s.store.Records(ctx, e.key, record.Query{Limit: 1})
		switch {
		case err != nil || now.Rev == 0 && e.state.Rev == 0:
			return err
		case e.refusal != nil && now == e.refused:
			return e.refusal
		}
		if err := s.refuse(e.key, now, 0); err != nil {
			return err
		}
		if now.Count > page {
			select {
			case s.reads <- struct{}{}:
				defer func() { <-s.reads }()
			case <-ctx.Done():
				return givenUp(ctx)
			}
		}
	}
	reset := func() { e.Value, e.state, e.read = s.fresh(e.key), record.State{}, false }
	err := record.Follow(ctx, s.store, e.key, &e.state, func(list []record.Record, now record.State) error {
		if err := e.Value.Take(list, now); err != nil || s.refuse == nil {
			return err
		}
		err := s.refuse(e.key, now, e.Value.Bytes())
		if err != nil {
			reset()
			e.refused, e.refusal = now, err
		}
		return err
	}, reset)
	e.read = e.read || err == nil
	return err
}
