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

// How much one search looks at: the newest of its scope, so many and so many bytes of texts. The bytes are looked at after each page, so that a page of the longest
// texts must not be more than them.
const (
	MaxItemsLooked = 10_000
	maxItemBytes   = 32 << 20
	itemPage       = 128
)

// clearPage is how many messages a clear takes in one commit: a few ms.
const clearPage = 200

// ownAgent gives the agent whose ledger keeps the items of a project that belong to no agent. It has ended before it began, so that no timer, limit or list
// is concerned with it, and its end is so late that no sweep ever takes it.
func ownAgent(project string) Agent {
	sum := sha256.Sum256([]byte("items of no agent\x00" + project))
	id := sum[:16]
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // a UUID of version 8
	return Agent{
		ID: fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]), Project: ownProject + project,
		Status: Stopped, StopMS: math.MaxInt64, Message: EndOK, Rev: 1, Settings: Settings{LLM: LLMSettings{MaxHistory: 1}},
	}
}

// AddItem stores a message with its Scope and Item: in the ledger of the agent that Item.AgentID names if that runs, else in one that the project has for it.
// A message whose ID (not Item.ID) is stored already comes back as it stands; fault.Conflict if it says something else.
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
		if _, _, err := s.cfg.Store.Create(ctx, own, 0, Change{}); err != nil && !fault.Is(err, fault.Conflict) { // somebody else was first
			return StoredItem{}, err
		}
		err = s.update(ctx, own.Project, own.ID, add)
	}
	if err != nil {
		return StoredItem{}, err
	}
	return asItem(own.Project, own.ID, out), nil
}

// checkItems refuses one more item in the ledger of a project that holds as many as it may. What was cleared does not count.
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

// sameItem refuses a memory that comes again with other content, or for somebody else: who sent it would take it for stored. What became of its status does not count.
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

// Item gives an item; fault.NotFound if there is none of that id, or it is no part of any memory any more.
func (s *Service) Item(ctx context.Context, project, id string) (StoredItem, error) {
	it, err := s.cfg.Items.Item(ctx, project, id)
	if err != nil {
		return StoredItem{}, err
	}
	bases := map[agentKey]int64{}
	held, err := s.held(ctx, []StoredItem{it}, bases)
	if err == nil && len(held) == 0 {
		return s.laterItem(ctx, project, it, bases)
	}
	return it, err
}

// laterItem gives, of the items that share the id of one that is no part of a memory any more, the first that is. It looks at the newest MaxItemsLooked of the same
// scope: the same id comes again where the same one is added again.
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
		if page, bad = s.held(ctx, page, bases); bad != nil {
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

// held gives those items that are part of a memory: what was cut, merged or replaced is not, and neither is what an agent's memory was cleared of. bases remembers where the
// memories begin.
func (s *Service) held(ctx context.Context, list []StoredItem, bases map[agentKey]int64) ([]StoredItem, error) {
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
			case fault.Is(err, fault.NotFound): // erased meanwhile
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

// SetItemStatus moves an item to another status (003-6). fault.NotFound if there is no such item, fault.Conflict where the change is not allowed.
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

// ItemSearch is a search over a project's items (003-7). Its SearchQuery.Scope and Level say whose.
type ItemSearch struct {
	rules.SearchQuery
}

// FoundItems is what a search found, oldest first.
type FoundItems struct {
	Items []StoredItem
	// Total is how many items of the scope were looked at, Truncated that there are older ones which were not: see MaxItemsLooked.
	Total     int
	Truncated bool
}

// SearchItems looks for items, by window.Search: the oldest of what is found come first, and the limit takes those (003-8). It looks at the newest
// MaxItemsLooked of the scope. Nothing is changed (003-19).
func (s *Service) SearchItems(ctx context.Context, project string, q ItemSearch) (FoundItems, error) {
	var out FoundItems
	bases, size := map[agentKey]int64{}, 0
	var all []StoredItem
	ask := askFor(q.Level, q.Scope)
	for looked := 0; ; {
		ask.Limit = min(itemPage, MaxItemsLooked-looked)
		page, next, err := s.cfg.Items.Items(ctx, project, ask)
		for i := range page {
			size += page[i].bytes()
		}
		if err == nil {
			page, err = s.held(ctx, page, bases)
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
		list[i] = all[i].view(i)
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

// bytes gives how much the item holds on to, about.
func (it *StoredItem) bytes() int {
	m := &it.Message
	n := len(m.Content) + len(m.Parts) + len(m.ToolCalls) + len(m.Generated) + len(m.Sent) + len(m.Raw())
	if item := m.Item(); item != nil {
		n += len(item.Extra)
	}
	return n
}

// askFor gives what the store is asked: the ids that the level looks at (003-11).
func askFor(level rules.Level, scope rules.Scope) ItemQuery {
	q := ItemQuery{Scope: Scope{UserID: scope.UserID}, AgentID: scope.AgentID}
	if level != rules.UserLevel {
		q.SessionID = scope.SessionID
		if level != rules.SessionLevel {
			q.TaskID = scope.TaskID
		}
	}
	return q
}

// view gives the item as the rules look at it.
func (it *StoredItem) view(ref int) rules.Message {
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

// ClearItems takes all items of a scope away (003-17) and gives how many it took; asking for nothing takes all of the project's. Their places stay in the ledgers,
// without content. Items that are added while it runs may stay.
func (s *Service) ClearItems(ctx context.Context, project string, level rules.Level, scope rules.Scope) (int, error) {
	removed, ask := 0, askFor(level, scope)
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

// removeMessages leaves nothing of messages but their places, and gives how many were part of the memory until then.
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
	if fault.Is(err, fault.NotFound) { // erased meanwhile
		return 0, nil
	}
	return n, err
}
