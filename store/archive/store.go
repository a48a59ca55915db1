package archive

import (
	"context"
	"errors"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/webhook"
)

// Rows is a store whose calls can move into an archive.
type Rows interface {
	memory.Store
	memory.ColdStore
	memories.Store
	Event(ctx context.Context, project, id string) (webhook.Event, error)
	AgentEvents(ctx context.Context, project, agentID string, each func(webhook.Event) error) error
}

// Store is a memory.Store over another one, some of whose calls are in an archive. It reads these
// from there. The engine above calls Thaw before it changes one.
type Store struct {
	Rows
	archive *Archive
}

// NewStore returns a Store over the rows.
func NewStore(rows Rows, a *Archive) *Store { return &Store{rows, a} }

// tries is how often a read or a move begins again because the call has moved meanwhile.
const tries = 5

var errMoves = fault.New(fault.Unavailable, "the call moves into the archive or out of it all the time; try again")

// Load implements memory.Store. With n below 0 it reads no messages, and leaves Head.Last unset for
// a call in the archive.
func (s *Store) Load(ctx context.Context, project, id string, n int, known memory.Version) (memory.Stored, error) {
	for range tries {
		st, err := s.Rows.Load(ctx, project, id, max(n, 0), known)
		if err != nil || st.Head.Agent.Cold == nil || n < 0 {
			return st, err
		}
		c, err := s.archive.Read(ctx, st.Head.Agent.Ref(), st.Head.Agent.Cold)
		switch {
		case err == nil:
			if k := len(c.Messages); k > 0 {
				st.Head.Last = c.Messages[k-1]
				st.Tail = append([]memory.Message(nil), c.Messages[k-min(k, n):]...)
			}
			return st, nil
		case !s.moved(ctx, &st):
			return memory.Stored{}, err
		}
	}
	return memory.Stored{}, errMoves
}

// moved reports whether a call is no longer as it was loaded. Its object may be gone then.
func (s *Store) moved(ctx context.Context, st *memory.Stored) bool {
	a := st.Head.Agent
	now, err := s.Rows.Load(ctx, a.Project, a.ID, 0, memory.Version{})
	return fault.Is(err, fault.NotFound) || err == nil && (now.No != st.No || now.Head.Agent.Cold == nil || now.Head.Agent.Cold.Object != a.Cold.Object)
}

// Page implements memory.Store.
func (s *Store) Page(ctx context.Context, no int64, q memory.MessageQuery) ([]memory.Message, error) {
	if q.Agent == nil || !q.Agent.Status.Ended() {
		return s.Rows.Page(ctx, no, q)
	}
	cold, at := q.Agent.Cold, memory.Version{}
	for range tries {
		var unread error
		if cold == nil {
			if list, err := s.Rows.Page(ctx, no, q); err != nil || len(list) > 0 {
				return list, err
			}
		} else {
			c, err := s.archive.Read(ctx, q.Agent.Ref(), cold)
			if err == nil {
				return c.page(q), nil
			}
			if unread = err; !errors.Is(err, memory.ErrArchive) {
				return nil, err
			}
		}
		// There are none, or the call has moved.
		now, err := s.Rows.Load(ctx, q.Agent.Project, q.Agent.ID, 0, memory.Version{})
		switch {
		case fault.Is(err, fault.NotFound), err == nil && now.No != no:
			return nil, nil
		case err != nil:
			return nil, err
		}
		then, is := at, now.Head.Agent.Cold
		at = memory.Version{No: now.No, Rev: now.Head.Rev, Ver: now.Ver}
		if cold == nil && is == nil && then == at || cold != nil && is != nil && cold.Object == is.Object {
			return nil, unread
		}
		cold = is
	}
	return nil, errMoves
}

// Thaw brings the rows of a call back into the store. It returns nil if they are there already. It
// fails with fault.NotFound if there is no such agent.
func (s *Store) Thaw(ctx context.Context, ref memory.Ref) error {
	for range tries {
		st, err := s.Load(ctx, ref.Project, ref.ID, 0, memory.Version{})
		if err != nil || st.Head.Agent.Cold == nil {
			return err
		}
		c, err := s.archive.Read(ctx, ref, st.Head.Agent.Cold)
		if err != nil {
			return err
		}
		m, err := moveOf(&st, nil, c)
		if err != nil {
			return err
		}
		for i := range c.Messages {
			body, err := codec.EncodeMessage(&c.Messages[i])
			if err != nil {
				return fault.Wrap(fault.Internal, err, "the call cannot be brought back from the archive")
			}
			m.Bodies = append(m.Bodies, body)
		}
		m.Object, m.Append = st.Head.Agent.Cold.Object, c.Messages
		err = s.Rows.Thaw(ctx, m)
		if err == nil {
			s.discard(ctx, memory.ColdObject{No: st.No, Name: m.Object})
		}
		if !errors.Is(err, memory.ErrStale) {
			return err
		}
	}
	return errMoves
}

// Erase implements memory.Store. Keeper.Sweep deletes the objects of several calls that are erased.
func (s *Store) Erase(ctx context.Context, e memory.Erasure) ([]memory.Ref, error) {
	var o memory.ColdObject
	if e.Ref != (memory.Ref{}) {
		if st, err := s.Rows.Load(ctx, e.Project, e.ID, 0, memory.Version{}); err == nil && st.Head.Agent.Cold != nil {
			o = memory.ColdObject{No: st.No, Name: st.Head.Agent.Cold.Object}
		}
	}
	gone, err := s.Rows.Erase(ctx, e)
	if err == nil && o.No != 0 {
		s.discard(ctx, o)
	}
	return gone, err
}

// discard deletes an object that the store no longer needs, in the background. If that fails,
// Keeper.Sweep does it.
func (s *Store) discard(ctx context.Context, o memory.ColdObject) {
	ctx = context.WithoutCancel(ctx)
	s.archive.work.Go(func() {
		s.archive.cache.Remove(o.Name)
		if s.archive.remove(ctx, o.Name) == nil {
			_ = s.Rows.ForgetObject(ctx, o)
		}
	})
}

// moveOf returns a move of a call, after which the agent has that Cold.
func moveOf(st *memory.Stored, cold *memory.Cold, c *Call) (memory.Move, error) {
	a := *st.Head.Agent
	a.Cold = cold
	private, err := codec.EncodeAgent(&a)
	if err != nil {
		return memory.Move{}, fault.Wrap(fault.Internal, err, "the store failed")
	}
	return memory.Move{
		Ref: a.Ref(), Version: memory.Version{No: st.No, Rev: st.Head.Rev, Ver: st.Ver}, Private: private, User: a.Settings.Scope.UserID, Messages: len(c.Messages), Events: c.Events,
	}, nil
}

// Close implements memory.Store.
func (s *Store) Close() error {
	s.archive.Close()
	return s.Rows.Close()
}
