package handlers

import (
	"context"
	"math"
	"net/http"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/llmadapter/responses"
	"github.com/heardlog/heardlog/memory"
)

// Page sizes of items, which are OpenAI's.
const (
	defaultItems = 20
	maxItemsPage = 100
)

// itemQuery is a page of an agent's items.
type itemQuery struct {
	project, agent string
	before         int64  // the Seq below which they stand
	after          string // the ID of an item, or ""
	oldestFirst    bool
	limit          int
}

// itemQueryOf reads limit, order and after. include is taken, and changes nothing: what it asks for
// does not exist here, or is there anyway.
func itemQueryOf(r *http.Request, agent string, before int64) (q itemQuery, err error) {
	query := r.URL.Query()
	q = itemQuery{project: projectOf(r), agent: agent, before: before, after: query.Get("after")}
	if q.limit, err = intParam(query, "limit", defaultItems, 1, maxItemsPage); err != nil {
		return q, err
	}
	switch order := query.Get("order"); order {
	case "", "desc":
	case "asc":
		q.oldestFirst = true
	default:
		return q, fault.At(fault.Invalid, "order", "must be asc or desc, not %q", text.Clip(order, 40))
	}
	if q.after != "" {
		if ref, ok := responses.ParseRef(q.after); !ok || ref.Agent != agent {
			return q, fault.At(fault.Invalid, "after", "there is no item %q", text.Clip(q.after, 200))
		}
	}
	return q, nil
}

// itemsOf returns the items of a message that is in the memory of its agent, oldest first.
func itemsOf(agent string, m *memory.Message) []*responses.Item {
	if !m.InMemory() {
		return nil
	}
	e := responses.Entry{Ref: responses.Ref{Agent: agent, Seq: m.Seq}, Role: string(m.WireRole()), Parts: m.Parts, CallID: m.ToolCallID, Answer: answerOf(m)}
	return e.Items()
}

// items returns a page of items. It fails with fault.NotFound if there is no such agent.
func (a *proxyAPI) itemPage(ctx context.Context, q itemQuery) (responses.List, error) {
	var out []*responses.Item
	add := func(m *memory.Message) {
		items := itemsOf(q.agent, m)
		if !q.oldestFirst {
			slices.Reverse(items)
		}
		if ref, _ := responses.ParseRef(q.after); ref.Seq == m.Seq {
			items = responses.Behind(items, q.after)
		}
		out = append(out, items...)
	}
	ref, _ := responses.ParseRef(q.after) // checked
	step := int64(4 * q.limit)
	if q.oldestFirst {
		for from := max(ref.Seq, 1); len(out) <= q.limit; {
			list, err := a.memory.Messages.Page(ctx, q.project, q.agent, memory.MessageQuery{AfterSeq: from - 1, Limit: int(step)})
			if err != nil {
				return responses.List{}, err
			}
			for i := range list {
				if list[i].Seq < q.before {
					add(&list[i])
				}
			}
			if len(list) < int(step) {
				break
			}
			from = list[len(list)-1].Seq + 1
		}
		return responses.NewList(out, q.limit), nil
	}
	head, err := a.memory.Messages.Head(ctx, q.project, q.agent)
	if err != nil {
		return responses.List{}, err
	}
	end := min(q.before, head.NextSeq)
	if ref.Seq > 0 {
		end = min(end, ref.Seq+1)
	}
	for ; end > 1 && len(out) <= q.limit; end -= step { // numbers may skip, so that a step has so many messages at most
		list, err := a.memory.Messages.Page(ctx, q.project, q.agent, memory.MessageQuery{AfterSeq: max(end-step, 1) - 1, Limit: int(step)})
		if err != nil {
			return responses.List{}, err
		}
		for i := range slices.Backward(list) {
			if list[i].Seq < end {
				add(&list[i])
			}
		}
	}
	return responses.NewList(out, q.limit), nil
}

// inputItems serves GET …/responses/{response}/input_items: what the memory has before the answer.
func (a *proxyAPI) inputItems(w http.ResponseWriter, r *http.Request) error {
	ref, _, err := a.responseInPath(r)
	if err != nil {
		return err
	}
	q, err := itemQueryOf(r, ref.Agent, ref.Seq)
	if err != nil {
		return err
	}
	list, err := a.itemPage(r.Context(), q)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, list)
}

// allItems is the Seq before which all messages of an agent stand.
const allItems = math.MaxInt64
