package memories

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/hold"
	"github.com/heardlog/heardlog/memory/redact"
	"github.com/heardlog/heardlog/memory/requests"
	"github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/store/record"
)

// How much one search reads: the newest items of its scope, up to these numbers of items and bytes
// of text. The bytes are checked after each page, so a page of the longest texts must not exceed
// them.
const (
	MaxSearched  = 10_000
	maxItemBytes = 32 << 20
	itemPage     = 128
)

// clearPage is how many messages one commit of a clear removes, which takes a few ms.
const clearPage = 200

// ownAgent returns the agent whose ledger keeps the items of a project that belong to no agent. It
// has ended before it started, so that no timer, limit or list includes it, and its end is so late
// that no sweep erases it.
func ownAgent(project string) memory.Agent {
	sum := sha256.Sum256([]byte("items of no agent\x00" + project))
	id := sum[:16]
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // a UUID of version 8
	return memory.Agent{
		ID: fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]), Project: ownProject + project,
		Status: memory.Stopped, StopMS: math.MaxInt64, Message: memory.EndOK, Rev: 1, Settings: memory.Settings{LLM: memory.LLMSettings{MaxHistory: 1}},
	}
}

// Service has the rules of items. All fields but Max are required; NewID is for Add only.
type Service struct {
	Memory *agents.Service
	Ledger memory.Ledger // that of Memory
	Store  Store         // finds the messages of Ledger
	// Records are erased with their user or project.
	Records record.Store
	Holds   *hold.Service
	NewID   func() string
	// Events returns the stored events of an agent that hold words of messages that its ledger has
	// as removed, with bodies that do not. nil = there are no events. It is called in decisions.
	Events func(ctx context.Context, project, agentID string, ledger []memory.Message) ([]memory.Event, error)
	// Max limits the items of a project that are in no agent's ledger; 0 means no limit.
	Max int
}

// Add stores a message with its Scope and Item: in the ledger of the agent Item.AgentID if that is
// live, else in the project's own. A message whose ID (not Item.ID) is stored already is
// returned as stored. It returns fault.Conflict if that has other content.
func (s Service) Add(ctx context.Context, project string, m memory.Message) (Item, error) {
	item := *m.Filed().Item
	if item.ID == "" {
		item.ID = strings.ReplaceAll(s.NewID(), "-", "")
	}
	m.Amend(func(r *memory.Details) { r.Item = &item })
	if id := item.AgentID; id != "" {
		done, err := s.Memory.Messages.Append(ctx, project, id, []memory.Message{m})
		if err == nil {
			stored := &done.Messages[0]
			agent, err := s.Memory.Agents.Agent(ctx, project, id)
			if err != nil {
				return Item{}, err
			}
			if stored.Hidden() {
				return asItem(project, id, *stored), nil
			}
			var differs error
			err = s.Memory.Messages.Redact(ctx, &agent, func(r *redact.Redactor) {
				differs = sameItem(stored, &m, r)
			})
			if fault.Is(err, fault.Unavailable) { // it is stored, whether now or before
				err, differs = nil, nil
			}
			return asItem(project, id, *stored), cmp.Or(err, differs)
		}
		if code := fault.CodeOf(err); code != fault.NotFound && code != fault.Stopped {
			return Item{}, err
		}
	}
	own := ownAgent(project)
	given := m
	var out memory.Message
	add := func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		m := given.Redacted(s.Memory.Messages.Redactor(h.Agent))
		if m.ID != "" {
			known, err := view.ByIDs([]string{m.ID})
			if err != nil {
				return memory.Change{}, err
			}
			if stored, ok := known[m.ID]; ok {
				out = stored
				return memory.Change{}, sameItem(&stored, &given, s.Memory.Messages.Redactor(h.Agent))
			}
		}
		if err := s.checkItems(&h); err != nil {
			return memory.Change{}, err
		}
		var err error
		if out, err = h.Place(m, h.Rev+1, s.Memory.Messages.NowMS(), false); err != nil {
			return memory.Change{}, err
		}
		return memory.Change{Append: []memory.Message{out}}, nil
	}
	err := s.Memory.Messages.Change(ctx, own.Project, own.ID, add)
	if fault.Is(err, fault.NotFound) {
		// Created by another call
		if _, _, err := s.Ledger.Create(ctx, own, 0, memory.Change{}); err != nil && !fault.Is(err, fault.Conflict) {
			return Item{}, err
		}
		err = s.Memory.Messages.Change(ctx, own.Project, own.ID, add)
	}
	if err != nil {
		return Item{}, err
	}
	return asItem(own.Project, own.ID, out), nil
}

// checkItems refuses an item if the project's own ledger has as many as allowed. Cleared items do
// not count.
func (s Service) checkItems(h *memory.Head) error {
	most, n := int64(s.Max), h.NextSeq-1-h.Agent.Settings.Memory.Removed
	if most == 0 || n < most {
		return nil
	}
	return fault.New(fault.Quota, "the project holds %d memories that belong to no running agent, as many as it may; clear some", n)
}

// sameItem refuses a repeated item with other content or another owner: its sender would take it
// for stored. The status is not compared.
func sameItem(stored, given *memory.Message, r *redact.Redactor) error {
	again := given.Redacted(r)
	was, is := stored.Filed().Item, again.Filed().Item
	switch {
	case stored.State == memory.Removed:
		return fault.At(fault.Conflict, "Idempotency-Key", "was used for a memory that has been cleared")
	case was == nil || was.AgentID != is.AgentID || !bytes.Equal(was.Extra, is.Extra) || again.Filed().Scope != (memory.Scope{}) && stored.Filed().Scope != again.Filed().Scope ||
		stored.Filed().Category != again.Filed().Category || !memory.SameSaid(*stored, *given, r):
		return fault.At(fault.Conflict, "Idempotency-Key", "was used for another memory")
	}
	return nil
}

func asItem(project, agentID string, m memory.Message) Item {
	row, _ := RowOf(&m, project, agentID)
	return Item{Project: project, AgentID: agentID, Message: m, Row: row}
}

// Get returns an item, or fault.NotFound if no item in a memory has the ID.
func (s Service) Get(ctx context.Context, project, id string) (Item, error) {
	it, err := s.Store.Item(ctx, project, id)
	if err != nil {
		return Item{}, err
	}
	bases := map[memory.Ref]int64{}
	kept, err := s.inMemory(ctx, []Item{it}, bases)
	if err == nil && len(kept) == 0 {
		return s.laterItem(ctx, project, it, bases)
	}
	return it, err
}

// laterItem returns the first item in a memory among those that share the ID of one that is not. It
// searches the newest MaxSearched of the same scope. An ID occurs again if the same item is
// added again.
func (s Service) laterItem(ctx context.Context, project string, first Item, bases map[memory.Ref]int64) (found Item, err error) {
	id := first.Row.ID
	found, err = first, ErrNotFound(id)
	ask := Query{Scope: first.Row.Scope}
	for looked := 0; looked < MaxSearched; looked += itemPage {
		ask.Limit = itemPage
		page, next, bad := s.Store.Items(ctx, project, ask)
		if bad != nil {
			return first, bad
		}
		page = slices.DeleteFunc(page, func(it Item) bool { return it.Row.ID != id })
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
func (s Service) inMemory(ctx context.Context, list []Item, bases map[memory.Ref]int64) ([]Item, error) {
	out := list[:0]
	for _, it := range list {
		if it.Message.State != memory.Final {
			continue
		}
		k := memory.Ref{Project: it.Project, ID: it.AgentID}
		base, known := bases[k]
		if !known {
			h, err := s.Ledger.Head(ctx, it.Project, it.AgentID)
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

// SetStatus changes the status of an item. It returns fault.NotFound if there is no such item
// and fault.Conflict if the change is not allowed.
func (s Service) SetStatus(ctx context.Context, project, id string, next window.Status) (Item, error) {
	it, err := s.Get(ctx, project, id)
	if err != nil {
		return Item{}, err
	}
	err = s.Memory.Messages.Change(ctx, it.Project, it.AgentID, func(view memory.AgentView) (memory.Change, error) {
		m, err := view.Seq(it.Message.Seq)
		h := view.Head()
		if err == nil && (m.State != memory.Final || m.Seq < h.Agent.Settings.Memory.BaseSeq) {
			err = ErrNotFound(id)
		}
		if err != nil {
			return memory.Change{}, err
		}
		if err := m.Status.To(next); err != nil {
			return memory.Change{}, err
		}
		item := memory.Item{AgentID: it.AgentID}
		if was := m.Filed().Item; was != nil {
			item = *was
		}
		item.UpdatedMS = s.Memory.Messages.NowMS()
		if m.Status = next; next == window.Accepted {
			m.Status = memory.Accepted
		}
		m.Rev = h.Rev + 1
		m.Amend(func(r *memory.Details) { r.Item = &item })
		it.Message = m
		return memory.Change{Replace: []memory.Message{m}}, nil
	})
	return it, err
}

// Found is what a search found, oldest first.
type Found struct {
	Items []Item
	// Total is how many items of the scope were searched. Truncated is set if older ones were not;
	// see MaxSearched.
	Total     int
	Truncated bool
}

// Search searches items with window.Search: results are oldest first, and the limit takes the
// oldest. It searches the newest MaxSearched of the scope and changes nothing.
func (s Service) Search(ctx context.Context, project string, q window.SearchQuery) (Found, error) {
	var out Found
	bases, size := map[memory.Ref]int64{}, 0
	var all []Item
	ask := queryFor(q.Level, q.Scope)
	for looked := 0; ; {
		ask.Limit = min(itemPage, MaxSearched-looked)
		page, next, err := s.Store.Items(ctx, project, ask)
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
		if looked >= MaxSearched || size > maxItemBytes {
			out.Truncated = true
			break
		}
	}
	slices.Reverse(all)
	out.Total = len(all)
	list := make([]window.Message, len(all))
	for i := range all {
		list[i] = all[i].forWindow(i)
	}
	hits := map[memory.Ref]int{}
	if q.Scope.AgentID != "" {
		hits[memory.Ref{Project: project, ID: q.Scope.AgentID}] = 0
	}
	for _, i := range window.Search(list, q) {
		out.Items = append(out.Items, all[i])
		hits[memory.Ref{Project: all[i].Project, ID: all[i].AgentID}]++
	}
	for k, n := range hits {
		s.Memory.Messages.Searched(k.Project, k.ID, n)
	}
	return out, nil
}

// bytes returns the approximate memory that the item takes.
func (it *Item) bytes() int {
	m := &it.Message
	n := len(m.Content) + len(m.Parts) + len(m.ToolCalls) + len(m.Generated) + len(m.Sent) + len(m.Filed().Raw) + len(m.Made().Members)
	if item := m.Filed().Item; item != nil {
		n += len(item.Extra)
	}
	return n
}

// queryFor returns the query to the store: the IDs that the level compares.
func queryFor(level window.Level, scope window.Scope) Query {
	if level == window.UserLevel {
		scope.SessionID = ""
	}
	if level == window.UserLevel || level == window.SessionLevel {
		scope.TaskID = ""
	}
	return Query{Scope: scope}
}

// forWindow returns the item in the form that package window uses.
func (it *Item) forWindow(ref int) window.Message {
	m := &it.Message
	out := window.Message{
		Ref: ref, Role: m.Role, Text: m.Content, Parts: m.Parts, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, ToolName: m.ToolName,
		Status: m.Status.Named(), Category: m.Filed().Category,
		Scope: &it.Row.Scope,
	}
	if m.Role == memory.Developer { // which is not a type of its own here
		out.Role = window.System
	}
	return out
}

// Clear removes all items of a scope and returns how many; an empty scope removes all of the
// project's. Their places stay in the ledgers, without content. Items that are added while it runs
// may stay.
func (s Service) Clear(ctx context.Context, project string, level window.Level, scope window.Scope) (int, error) {
	return s.clear(ctx, project, queryFor(level, scope), Always)
}

// clear is Clear for messages that were said up to a time, Unix ms.
func (s Service) clear(ctx context.Context, project string, ask Query, untilMS int64) (removed int, err error) {
	ask.Limit = clearPage
	for {
		page, next, err := s.Store.Items(ctx, project, ask)
		if err != nil {
			return removed, err
		}
		byLedger := map[memory.Ref][]int64{}
		for _, it := range page {
			if it.Message.Timestamp > untilMS {
				continue
			}
			k := memory.Ref{Project: it.Project, ID: it.AgentID}
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

// RemoveMessage removes the content of a message from a ledger, as Clear does it. A message that is
// not there is no error.
func (s Service) RemoveMessage(ctx context.Context, project, agentID string, seq int64) error {
	_, err := s.removeMessages(ctx, memory.Ref{Project: project, ID: agentID}, []int64{seq})
	return err
}

// removeMessages removes the content of messages and returns how many were in memory until then.
func (s Service) removeMessages(ctx context.Context, k memory.Ref, seqs []int64) (n int, err error) {
	err = s.Memory.Messages.Change(ctx, k.Project, k.ID, func(view memory.AgentView) (memory.Change, error) {
		n = 0
		var c memory.Change
		h := view.Head()
		for _, seq := range seqs {
			m, err := view.Seq(seq)
			if fault.Is(err, fault.NotFound) || err == nil && m.State == memory.Removed {
				continue
			}
			if err != nil {
				return memory.Change{}, err
			}
			if m.State == memory.Final && m.Seq >= h.Agent.Settings.Memory.BaseSeq {
				n++
			}
			c.Replace = append(c.Replace, tombstone(&m, h.Rev+1))
		}
		if len(c.Replace) == 0 {
			return c, nil
		}
		if strings.HasPrefix(k.Project, ownProject) { // see checkItems
			a := *h.Agent
			a.Settings.Memory.Removed += int64(len(c.Replace))
			c.Agent = &a
		}
		ledger, err := view.Last(int(h.NextSeq))
		if err != nil {
			return c, err
		}
		untold := requests.Drop(ledger, func(seq int64) bool {
			return slices.ContainsFunc(c.Replace, func(m memory.Message) bool { return m.Seq == seq })
		})
		ledger = slices.Clone(ledger)
		for i := range ledger {
			if at := slices.IndexFunc(c.Replace, func(m memory.Message) bool { return m.Seq == ledger[i].Seq }); at >= 0 {
				ledger[i] = c.Replace[at]
			}
		}
		if s.Events != nil {
			if c.Rewritten, err = s.Events(ctx, k.Project, k.ID, ledger); err != nil {
				return c, err
			}
		}
		for _, m := range untold {
			m.Rev = h.Rev + 1
			c.Replace = append(c.Replace, m)
		}
		return c, nil
	})
	if fault.Is(err, fault.NotFound) { // erased in the meantime
		return 0, nil
	}
	return n, err
}

// tombstone returns what clearing leaves of the message: its place, its ID and its order, without
// content.
func tombstone(m *memory.Message, rev int64) memory.Message {
	return memory.Message{
		Seq: m.Seq, Rev: rev, ID: m.ID, Role: m.Role, TurnID: m.TurnID, Timestamp: m.Timestamp, Source: m.Source, State: memory.Removed,
		AnswerSeq: m.AnswerSeq, TurnHasUser: m.TurnHasUser, Opens: m.Opens, Method: m.Method,
	}
}
