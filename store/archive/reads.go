package archive

import (
	"context"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/webhook"
)

// Reads reads what else the store has of calls in an archive: single messages and events.
type Reads struct{ s *Store }

// Reads returns the other reads of the store.
func (s *Store) Reads() Reads { return Reads{s} }

// call returns the archived call of an agent, nil if its rows are in the store.
func (r Reads) call(ctx context.Context, ref memory.Ref) (*Call, error) {
	st, err := r.s.Rows.Load(ctx, ref.Project, ref.ID, 0, memory.Version{})
	if err != nil || st.Head.Agent.Cold == nil {
		return nil, err
	}
	return r.s.archive.Read(ctx, ref, st.Head.Agent.Cold)
}

// Items implements memories.Store.
func (r Reads) Items(ctx context.Context, project string, q memories.Query) (list []memories.Item, next int64, err error) {
	for range tries {
		if list, next, err = r.s.Rows.Items(ctx, project, q); err != nil {
			return nil, 0, err
		}
		if moved, err := r.fill(ctx, list); err != nil || !moved {
			return list, next, err
		}
	}
	return nil, 0, errMoves
}

// Item implements memories.Store.
func (r Reads) Item(ctx context.Context, project, id string) (memories.Item, error) {
	for range tries {
		it, err := r.s.Rows.Item(ctx, project, id)
		if err != nil {
			return it, err
		}
		list := []memories.Item{it}
		if moved, err := r.fill(ctx, list); err != nil || !moved {
			return list[0], err
		}
	}
	return memories.Item{}, errMoves
}

// fill sets the messages that are in the archive. It reports whether a call has moved meanwhile.
func (r Reads) fill(ctx context.Context, list []memories.Item) (moved bool, err error) {
	calls := map[memory.Ref]*Call{}
	for i := range list {
		it := &list[i]
		if !it.Cold {
			continue
		}
		ref := memory.Ref{Project: it.Project, ID: it.AgentID}
		c := calls[ref]
		if c == nil {
			switch c, err = r.call(ctx, ref); {
			case fault.Is(err, fault.NotFound), err == nil && c == nil:
				return true, nil
			case err != nil:
				return false, err
			}
			calls[ref] = c
		}
		m := memory.FindSeq(c.Messages, it.Message.Seq)
		if m == nil {
			return true, nil
		}
		it.Message, it.Cold = *m, false
	}
	return false, nil
}

// Event implements webhook.Log.
func (r Reads) Event(ctx context.Context, project, id string) (webhook.Event, error) {
	for range tries {
		e, err := r.s.Rows.Event(ctx, project, id)
		if err != nil || len(e.Body) > 0 || e.AgentID == "" {
			return e, err
		}
		c, err := r.call(ctx, memory.Ref{Project: e.Project, ID: e.AgentID})
		if err != nil {
			return webhook.Event{}, err
		}
		if c == nil {
			continue
		}
		if body, ok := c.body(id); ok {
			e.Body, e.Size = body, len(body)
			return e, nil
		}
	}
	return webhook.Event{}, errMoves
}

// AgentEvents implements webhook.Log.
func (r Reads) AgentEvents(ctx context.Context, project, agentID string, each func(webhook.Event) error) error {
	for range tries {
		var list []webhook.Event
		cold := false
		err := r.s.Rows.AgentEvents(ctx, project, agentID, func(e webhook.Event) error {
			list = append(list, e)
			cold = cold || len(e.Body) == 0
			return nil
		})
		var c *Call
		if err == nil && cold {
			c, err = r.call(ctx, memory.Ref{Project: project, ID: agentID})
		}
		if err != nil {
			return err
		}
		if cold && c == nil {
			continue
		}
		for _, e := range list {
			if len(e.Body) == 0 {
				e.Body, _ = c.body(e.ID)
				e.Size = len(e.Body)
			}
			if err := each(e); err != nil {
				return err
			}
		}
		return nil
	}
	return errMoves
}
