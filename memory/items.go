package memory

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	rules "github.com/heardlog/heardlog/memory/window"
)

// How much one search reads: the newest items of its scope, up to these numbers of items and bytes
// of text. The bytes are checked after each page, so a page of the longest texts must not exceed
// them.
const (
	MaxItemsLooked = 10_000
	maxItemBytes   = 32 << 20
	itemPage       = 128
)

// clearPage is how many messages one commit of a clear removes, which takes a few ms.
const clearPage = 200

// ownAgent returns the agent whose ledger keeps the items of a project that belong to no agent. It
// has ended before it started, so that no timer, limit or list includes it, and its end is so late
// that no sweep erases it.
func ownAgent(project string) Agent {
	sum := sha256.Sum256([]byte("items of no agent\x00" + project))
	id := sum[:16]
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // a UUID of version 8
	return Agent{
		ID: fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]), Project: ownProject + project,
		Status: Stopped, StopMS: math.MaxInt64, Message: EndOK, Rev: 1, Settings: Settings{LLM: LLMSettings{MaxHistory: 1}},
	}
}

// AddItem stores a message with its Scope and Item: in the ledger of the agent Item.AgentID if that
// is live, else in the project's own. A message whose ID (not Item.ID) is stored already is
// returned as stored. It returns fault.Conflict if that has other content.
func (s *Service) AddItem(ctx context.Context, project string, m Message) (StoredItem, error) {
	item := *m.Item()
	if item.ID == "" {
		item.ID = strings.ReplaceAll(s.cfg.NewID(), "-", "")
	}
	m.Amend(func(r *Rare) { r.Item = &item })
	if id := item.AgentID; id != "" {
		stored, err := s.Append(ctx, project, id, []Message{m})
		if err == nil {
			return asItem(project, id, stored[0]), sameItem(&stored[0], &m)
		}
		if code := fault.CodeOf(err); code != fault.NotFound && code != fault.Stopped {
			return StoredItem{}, err
		}
	}
	own := ownAgent(project)
	var out Message
	add := func(view AgentView) (Change, error) {
		known, err := knownIDs(view, []Message{m})
		if err != nil {
			return Change{}, err
		}
		if stored, ok := known[m.ID]; ok && m.ID != "" {
			out = stored
			return Change{}, sameItem(&stored, &m)
		}
		h := view.Head()
		if err := s.checkItems(view, &h); err != nil {
			return Change{}, err
		}
		if out, err = h.Place(m, view.Head().Rev+1, s.NowMS(), false); err != nil {
			return Change{}, err
		}
		return Change{Append: []Message{out}}, nil
	}
	err := s.update(ctx, own.Project, own.ID, add)
	if fault.Is(err, fault.NotFound) {
		// Created by another call
		if _, _, err := s.cfg.Store.Create(ctx, own, 0, Change{}); err != nil && !fault.Is(err, fault.Conflict) {
			return StoredItem{}, err
		}
		err = s.update(ctx, own.Project, own.ID, add)
	}
	if err != nil {
		return StoredItem{}, err
	}
	return asItem(own.Project, own.ID, out), nil
}

// checkItems refuses an item if the project's own ledger has as many as allowed. Cleared items do
// not count.
func (s *Service) checkItems(view AgentView, h *Head) error {
	most, n := int64(s.cfg.MaxItems), h.NextSeq-1
	if most == 0 || n < most { // a ledger has no more messages than places
		return nil
	}
	from := int64(1)
	if f := h.Agent.Settings.Memory.Front; f != nil {
		from, n = f.Seq, n-f.Removed
	}
	msgs, err := view.Last(int(h.NextSeq - from))
	if err != nil {
		return err
	}
	for i := range msgs {
		if msgs[i].Seq >= from && msgs[i].State == Removed {
			n--
		}
	}
	if n < most {
		return nil
	}
	return fault.New(fault.Quota, "the project holds %d memories that are no running agent's, as many as it may; clear some", n)
}

// sameItem refuses a repeated item with other content or another owner: its sender would take it
// for stored. The status is not compared.
func sameItem(stored, again *Message) error {
	was, is := stored.Item(), again.Item()
	switch {
	case stored.State == Removed:
		return fault.At(fault.Conflict, "Idempotency-Key", "was used for a memory that has been cleared")
	case was == nil || was.AgentID != is.AgentID || !bytes.Equal(was.Extra, is.Extra) || again.Scope() != (Scope{}) && stored.Scope() != again.Scope() ||
		stored.Category() != again.Category() || !sameWords(*stored, *again):
		return fault.At(fault.Conflict, "Idempotency-Key", "was used for another memory")
	}
	return nil
}

func asItem(project, agentID string, m Message) StoredItem {
	row, _ := m.ItemRow(project, agentID)
	return StoredItem{Project: project, AgentID: agentID, Message: m, Row: row}
}

// Item returns an item, or fault.NotFound if no item in a memory has the ID.
func (s *Service) Item(ctx context.Context, project, id string) (StoredItem, error) {
	it, err := s.cfg.Items.Item(ctx, project, id)
	if err != nil {
		return StoredItem{}, err
	}
	bases := map[agentKey]int64{}
	kept, err := s.inMemory(ctx, []StoredItem{it}, bases)
	if err == nil && len(kept) == 0 {
		return s.laterItem(ctx, project, it, bases)
	}
	return it, err
}

// laterItem returns the first item in a memory among those that share the ID of one that is not. It
// searches the newest MaxItemsLooked of the same scope. An ID occurs again if the same item is
// added again.
func (s *Service) laterItem(ctx context.Context, project string, first StoredItem, bases map[agentKey]int64) (found StoredItem, err error) {
	id := first.Row.ID
	found, err = first, ErrNoItem(id)
	ask := ItemQuery{Scope: first.Row.Scope, AgentID: first.Row.AgentID}
	for looked := 0; looked < MaxItemsLooked; looked += itemPage {
		ask.Limit = itemPage
		page, next, bad := s.cfg.Items.Items(ctx, project, ask)
		if bad != nil {
			return first, bad
		}
		page = slices.DeleteFunc(page, func(it StoredItem) bool { return it.Row.ID != id })
		if page, bad = s.inMemory(ctx, page, bases); bad != nil {
			return first, bad
		}
		if n := len(page); n > 0 { // newest first
			found, err = page[n-1], nil
		}
		if ask.Before = next; next == 0 || next <= first.No {
			break
		}
	}
	return found, err
}

// inMemory returns the items that are in a memory, without those that were cut, merged, replaced or
// cleared. bases caches the starts of the memories.
func (s *Service) inMemory(ctx context.Context, list []StoredItem, bases map[agentKey]int64) ([]StoredItem, error) {
	out := list[:0]
	for _, it := range list {
		if it.Message.State != Final {
			continue
		}
		k := agentKey{it.Project, it.AgentID}
		base, known := bases[k]
		if !known {
			h, err := s.cfg.Store.Head(ctx, it.Project, it.AgentID)
			switch {
			case fault.Is(err, fault.NotFound): // erased in the meantime
				base = math.MaxInt64
			case err != nil:
				return nil, err
			default:
				base = h.Agent.Settings.Memory.BaseSeq
			}
			bases[k] = base
		}
		if it.Message.Seq >= base {
			out = append(out, it)
		}
	}
	return out, nil
}

// SetItemStatus changes the status of an item. It returns fault.NotFound if there is no such item
// and fault.Conflict if the change is not allowed.
func (s *Service) SetItemStatus(ctx context.Context, project, id string, next rules.Status) (StoredItem, error) {
	it, err := s.Item(ctx, project, id)
	if err != nil {
		return StoredItem{}, err
	}
	err = s.update(ctx, it.Project, it.AgentID, func(view AgentView) (Change, error) {
		m, err := view.Seq(it.Message.Seq)
		h := view.Head()
		if err == nil && (m.State != Final || m.Seq < h.Agent.Settings.Memory.BaseSeq) {
			err = ErrNoItem(id)
		}
		if err != nil {
			return Change{}, err
		}
		if err := m.Status.To(next); err != nil {
			return Change{}, err
		}
		item := Item{AgentID: it.AgentID}
		if was := m.Item(); was != nil {
			item = *was
		}
		item.UpdatedMS = s.NowMS()
		if m.Status = next; next == rules.Accepted {
			m.Status = Accepted
		}
		m.Rev = h.Rev + 1
		m.Amend(func(r *Rare) { r.Item = &item })
		it.Message = m
		return Change{Replace: []Message{m}}, nil
	})
	return it, err
}

// ItemSearch is a search over a project's items, in the scope of SearchQuery.Scope and Level.
type ItemSearch struct {
	rules.SearchQuery
}

// FoundItems is what a search found, oldest first.
type FoundItems struct {
	Items []StoredItem
	// Total is how many items of the scope were searched. Truncated is set if older ones were not;
	// see MaxItemsLooked.
	Total     int
	Truncated bool
}

// SearchItems searches items with window.Search: results are oldest first, and the limit takes the
// oldest. It searches the newest MaxItemsLooked of the scope and changes nothing.
func (s *Service) SearchItems(ctx context.Context, project string, q ItemSearch) (FoundItems, error) {
	var out FoundItems
	bases, size := map[agentKey]int64{}, 0
	var all []StoredItem
	ask := queryFor(q.Level, q.Scope)
	for looked := 0; ; {
		ask.Limit = min(itemPage, MaxItemsLooked-looked)
		page, next, err := s.cfg.Items.Items(ctx, project, ask)
		for i := range page {
			size += page[i].bytes()
		}
		if err == nil {
			page, err = s.inMemory(ctx, page, bases)
		}
		if err != nil {
			return out, err
		}
		all = append(all, page...)
		looked += ask.Limit
		if ask.Before = next; next == 0 {
			break
		}
		if looked >= MaxItemsLooked || size > maxItemBytes {
			out.Truncated = true
			break
		}
	}
	slices.Reverse(all)
	out.Total = len(all)
	list := make([]rules.Message, len(all))
	for i := range all {
		list[i] = all[i].forWindow(i)
	}
	hits := map[agentKey]int{}
	if q.Scope.AgentID != "" {
		hits[agentKey{project, q.Scope.AgentID}] = 0
	}
	for _, i := range rules.Search(list, q.SearchQuery) {
		out.Items = append(out.Items, all[i])
		hits[agentKey{all[i].Project, all[i].AgentID}]++
	}
	for k, n := range hits {
		s.Searched(k.project, k.id, n)
	}
	return out, nil
}

// bytes returns the approximate memory that the item takes.
func (it *StoredItem) bytes() int {
	m := &it.Message
	n := len(m.Content) + len(m.Parts) + len(m.ToolCalls) + len(m.Generated) + len(m.Sent) + len(m.Raw())
	if item := m.Item(); item != nil {
		n += len(item.Extra)
	}
	return n
}

// queryFor returns the query to the store: the IDs that the level compares.
func queryFor(level rules.Level, scope rules.Scope) ItemQuery {
	q := ItemQuery{Scope: Scope{UserID: scope.UserID}, AgentID: scope.AgentID}
	if level != rules.UserLevel {
		q.SessionID = scope.SessionID
		if level != rules.SessionLevel {
			q.TaskID = scope.TaskID
		}
	}
	return q
}

// forWindow returns the item in the form that package window uses.
func (it *StoredItem) forWindow(ref int) rules.Message {
	m := &it.Message
	out := rules.Message{
		Ref: ref, Role: m.Role, Text: m.Content, Parts: m.Parts, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, ToolName: m.ToolName,
		Status: m.Status.Named(), Category: m.Category(),
		Scope: &rules.Scope{UserID: it.Row.UserID, SessionID: it.Row.SessionID, TaskID: it.Row.TaskID, AgentID: it.Row.AgentID},
	}
	if m.Role == Developer { // which is no type of its own here
		out.Role = rules.System
	}
	return out
}

// ClearItems removes all items of a scope and returns how many; an empty scope removes all of the
// project's. Their places stay in the ledgers, without content. Items that are added while it runs
// may stay.
func (s *Service) ClearItems(ctx context.Context, project string, level rules.Level, scope rules.Scope) (int, error) {
	removed, ask := 0, queryFor(level, scope)
	ask.Limit = clearPage
	for {
		page, next, err := s.cfg.Items.Items(ctx, project, ask)
		if err != nil {
			return removed, err
		}
		byLedger := map[agentKey][]int64{}
		for _, it := range page {
			k := agentKey{it.Project, it.AgentID}
			byLedger[k] = append(byLedger[k], it.Message.Seq)
		}
		for k, seqs := range byLedger {
			n, err := s.removeMessages(ctx, k, seqs)
			if err != nil {
				return removed, err
			}
			removed += n
		}
		if ask.Before = next; next == 0 {
			return removed, nil
		}
	}
}

// removeMessages removes the content of messages and returns how many were in memory until then.
func (s *Service) removeMessages(ctx context.Context, k agentKey, seqs []int64) (n int, err error) {
	err = s.update(ctx, k.project, k.id, func(view AgentView) (Change, error) {
		n = 0
		var c Change
		h := view.Head()
		for _, seq := range seqs {
			m, err := view.Seq(seq)
			if fault.Is(err, fault.NotFound) || err == nil && m.State == Removed {
				continue
			}
			if err != nil {
				return Change{}, err
			}
			if m.State == Final && m.Seq >= h.Agent.Settings.Memory.BaseSeq {
				n++
			}
			c.Replace = append(c.Replace, m.tombstone(h.Rev+1))
		}
		return c, nil
	})
	if fault.Is(err, fault.NotFound) { // erased in the meantime
		return 0, nil
	}
	return n, err
}
