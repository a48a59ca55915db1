package record

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
)

// Map keeps values of one type as the JSON bodies of records. A noun that has no rules about others
// needs nothing else of a store.
type Map[T any] struct {
	Store Store
	Noun  string // what a value is called in errors, such as "pattern"; its plural has an s
	Limit int64  // values of a space at most; 0 means no limit
	// Fill, if set, sets what a value does not have from its body, such as its ID.
	Fill func(v *T, r *Record)
}

// Get returns the value with an ID, or fault.NotFound.
func (m Map[T]) Get(ctx context.Context, s Space, id string) (v T, err error) {
	r, err := m.Store.Record(ctx, s, id)
	if fault.Is(err, fault.NotFound) {
		return v, fault.New(fault.NotFound, "there is no %s %q", m.Noun, text.Clip(id, MaxID))
	}
	if err != nil {
		return v, err
	}
	return m.decode(&r)
}

// List returns values by their IDs, after the given one ("" = from the beginning), limit at most,
// and how many there are.
func (m Map[T]) List(ctx context.Context, s Space, after string, limit int) ([]T, int64, error) {
	list, state, err := m.Store.Records(ctx, s, Query{AfterID: after, Limit: limit})
	if err != nil {
		return nil, 0, err
	}
	out := make([]T, len(list))
	for i := range list {
		if out[i], err = m.decode(&list[i]); err != nil {
			return nil, 0, err
		}
	}
	return out, state.Count, nil
}

// Update stores what decide makes of the value with an ID, and returns it. decide gets the zero
// value and is=false if there is none; nothing is stored if it returns false. It may be called
// again. Update fails as decide, Limit.Check and Retry do.
func (m Map[T]) Update(ctx context.Context, s Space, id string, nowMS int64, decide func(v *T, is bool) (bool, error)) (v T, err error) {
	_, err = Update{
		Space: s, IDs: []string{id}, What: "the " + m.Noun + "s", Limit: m.limit(), NowMS: nowMS,
		Decide: func(_ int, old Record) (body []byte, changed bool, err error) {
			v = *new(T)
			if old.Rev != 0 {
				v, err = m.decode(&old)
			}
			if err == nil {
				changed, err = decide(&v, old.Rev != 0)
			}
			if err != nil || !changed {
				return nil, false, err
			}
			if m.Fill != nil {
				m.Fill(&v, &Record{ID: id, UpdatedMS: nowMS})
			}
			body, err = json.Marshal(v)
			return body, true, err
		},
	}.Apply(ctx, m.Store)
	return v, err
}

// Put stores a value in place of an earlier one with the ID.
func (m Map[T]) Put(ctx context.Context, s Space, id string, nowMS int64, v T) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = m.Store.ChangeRecords(ctx, s, []Change{{ID: id, Body: body, If: Any}}, m.limit(), nil, nowMS)
	return err
}

func (m Map[T]) limit() Limit { return Limit{Records: m.Limit, Of: m.Noun + "s"} }

// Delete deletes the value with an ID. It is not an error if there is none.
func (m Map[T]) Delete(ctx context.Context, s Space, id string, nowMS int64) error {
	_, err := m.Store.ChangeRecords(ctx, s, []Change{{ID: id, If: Any}}, Limit{}, nil, nowMS)
	return err
}

func (m Map[T]) decode(r *Record) (v T, err error) {
	if err := json.Unmarshal(r.Body, &v); err != nil {
		return v, fault.Wrap(fault.Internal, err, "the record of "+m.Noun+" "+strconv.Quote(r.ID)+" cannot be read")
	}
	if m.Fill != nil {
		m.Fill(&v, r)
	}
	return v, nil
}
