package inmem

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/export"
	"github.com/heardlog/heardlog/memory/items"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/record"
	"github.com/heardlog/heardlog/webhook"
)

var (
	_ export.Source = (*Store)(nil)
	_ export.Target = (*Store)(nil)
)

// Export visits everything in the store. The store is locked meanwhile.
func (s *Store) Export(ctx context.Context, sc export.Scope, each func(export.Record) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	start := export.Start{}
	for _, d := range s.deliveries {
		if d != nil && s.eventIn(sc, d.event) {
			start.LastDelivery = max(start.LastDelivery, d.id)
		}
	}
	for _, r := range append([]export.Record{{Start: &start}}, s.exported(sc)...) {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) agentIn(sc export.Scope, k key) bool {
	p := sc.Projects()
	return sc.Project == "" || k.project == p[0] && (sc.Agent == "" || sc.Agent == k.id) || k.project == p[1] && sc.Agent == ""
}

func (s *Store) eventIn(sc export.Scope, e *event) bool {
	return (sc.Project == "" || e.agent.project == sc.Project) && (sc.Agent == "" || e.agent.id == sc.Agent) && (e.agent.id == "" || s.agents[e.agent] != nil)
}

// exported returns all records of a scope in order. The caller holds mu.
func (s *Store) exported(sc export.Scope) (out []export.Record) {
	if sc.Project == "" {
		for _, name := range slices.Sorted(maps.Keys(s.keys)) {
			out = append(out, export.Record{Key: &export.Key{Name: name, Value: s.keys[name]}})
		}
	}
	for _, e := range s.endpoints {
		used := sc.Agent == "" || slices.ContainsFunc(s.deliveries, func(d *delivery) bool { return d != nil && !d.orphan && d.endpoint == e.ID && s.eventIn(sc, d.event) })
		if (sc.Project == "" || e.Project == sc.Project) && used {
			out = append(out, export.Record{Endpoint: &e})
		}
	}
	agents := slices.SortedFunc(maps.Values(s.agents), func(a, b *agent) int { return cmp.Compare(a.no, b.no) })
	for _, a := range agents {
		h := a.head
		if !s.agentIn(sc, key{h.Agent.Project, h.Agent.ID}) {
			continue
		}
		out = append(out, export.Record{Agent: &export.Agent{Agent: h.Agent, HeadRev: h.Rev, NextSeq: h.NextSeq, LastTurn: h.LastTurn}})
		for _, m := range a.list {
			out = append(out, export.Record{Message: &export.Message{Project: h.Agent.Project, AgentID: h.Agent.ID, Message: m}})
		}
	}
	for i, p := range s.items {
		if it, ok := s.item(items.ProjectOf(p.key.project), i); ok && s.agentIn(sc, p.key) {
			out = append(out, export.Record{Item: &export.Item{Project: p.key.project, AgentID: p.key.id, Seq: p.seq, Row: it.Row}})
		}
	}
	for _, a := range agents {
		if k := (key{a.head.Agent.Project, a.head.Agent.ID}); s.agentIn(sc, k) {
			list := s.spaces[kv.Space{Project: k.project, Agent: k.id}]
			for _, name := range slices.Sorted(maps.Keys(list)) {
				e := list[name]
				out = append(out, export.Record{Working: &export.Working{Project: k.project, AgentID: k.id, Key: e.Key, Value: e.Value, UpdatedMS: e.UpdatedMS, ExpiresMS: e.ExpiresMS}})
			}
		}
	}
	if sc.Agent == "" {
		for _, space := range slices.SortedFunc(maps.Keys(s.spaces), func(a, b kv.Space) int { return cmp.Compare(a.Project, b.Project) }) {
			if space.Agent != "" || sc.Project != "" && space.Project != sc.Project {
				continue
			}
			for _, id := range slices.Sorted(maps.Keys(s.spaces[space])) {
				if e := s.spaces[space][id]; e.ExpiresMS == kv.Never { // others are marks that a copy does not need
					out = append(out, export.Record{Conversation: &export.Conversation{Project: space.Project, ID: id, Body: e.Value}})
				}
			}
		}
	}
	return append(append(append(out, s.values(sc)...), s.eventRecords(sc)...), s.deliveryRecords(sc)...)
}

func (s *Store) values(sc export.Scope) (out []export.Record) {
	for at, space := range s.records.spaces {
		for _, r := range space.rows {
			if !r.Deleted && sc.Agent == "" && (sc.Project == "" || sc.Project == at.Project) {
				out = append(out, export.Record{Value: &export.Value{
					Project: at.Project, Name: at.Name, User: export.Text(at.User), ID: export.Text(r.ID), Rev: r.Rev, UpdatedMS: r.UpdatedMS, Body: r.Body, SpaceRev: space.state.Rev,
				}})
			}
		}
	}
	slices.SortFunc(out, func(a, b export.Record) int {
		v, w := a.Value, b.Value
		return cmp.Or(cmp.Compare(v.Project, w.Project), cmp.Compare(v.Name, w.Name), bytes.Compare(v.User, w.User), bytes.Compare(v.ID, w.ID))
	})
	return out
}

func (s *Store) eventRecords(sc export.Scope) (out []export.Record) {
	for _, e := range slices.SortedFunc(maps.Values(s.events), func(a, b *event) int { return cmp.Compare(a.no, b.no) }) {
		if s.eventIn(sc, e) {
			out = append(out, export.Record{Event: &export.Event{ID: e.ID, Project: e.agent.project, AgentID: e.agent.id, Type: e.Type, CreatedMS: e.CreatedMS, Body: e.Body}})
		}
	}
	return out
}

func (s *Store) deliveryRecords(sc export.Scope) (out []export.Record) {
	for _, d := range s.deliveries {
		if d == nil || !s.eventIn(sc, d.event) {
			continue
		}
		rec := export.Delivery{
			ID: d.id, Event: d.event.ID, Project: d.event.agent.project, Endpoint: d.endpoint, Gone: d.orphan, State: d.state, Attempt: d.attempt, DueMS: d.due, Fence: d.fence,
			Reason: export.Text(d.reason), Created: d.created, DoneMS: d.done, FirstMS: d.first, Urgent: d.urgent, ReplayOf: d.replayOf,
			Attempts: slices.SortedStableFunc(slices.Values(d.attempts), func(a, b webhook.Attempt) int { return cmp.Compare(a.N, b.N) }),
		}
		if rec.FirstMS == rec.Created {
			rec.FirstMS = 0
		}
		rec.Free(d.claimed, d.event.CreatedMS)
		out = append(out, export.Record{Delivery: &rec})
	}
	return out
}

// Mark returns the mark of an unfinished import.
func (s *Store) Mark(ctx context.Context) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return bytes.Clone(s.mark), nil
}

// Reserve returns the highest ID of a delivery so far.
func (s *Store) Reserve(ctx context.Context, _ int64) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	return int64(len(s.deliveries)), nil
}

// Import stores records, all or none: it works on a copy of what they change.
func (s *Store) Import(ctx context.Context, batch []export.Record, had, mark []byte) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if !bytes.Equal(s.mark, had) {
		return export.ErrMoved()
	}
	next := Store{
		agents: maps.Clone(s.agents), made: s.made, joins: maps.Clone(s.joins), endpoints: slices.Clone(s.endpoints), events: maps.Clone(s.events),
		deliveries: slices.Clone(s.deliveries), keys: maps.Clone(s.keys), spaces: maps.Clone(s.spaces), items: slices.Clone(s.items), records: s.records.clone(),
	}
	for space, list := range next.spaces {
		next.spaces[space] = maps.Clone(list)
	}
	fresh := map[key]*agent{} // what this call may change: others are shared with s
	for i := range batch {
		if err := next.importOne(&batch[i], fresh); err != nil {
			return err
		}
	}
	for i := range next.items { // items point at their agents
		if a := fresh[next.items[i].key]; a != nil {
			next.items[i].agent = a
		}
	}
	s.published = nil
	s.agents, s.made, s.joins, s.endpoints, s.events = next.agents, next.made, next.joins, next.endpoints, next.events
	s.deliveries, s.keys, s.spaces, s.items, s.records, s.mark = next.deliveries, next.keys, next.spaces, next.items, next.records, bytes.Clone(mark)
	s.wake()
	return nil
}

func taken(format string, args ...any) error {
	return fault.New(fault.Conflict, format+" cannot be imported: the store holds something in its place already", args...)
}

// Clashes visits the records that the store holds already.
func (s *Store) Clashes(ctx context.Context, batch []export.Record, each func(export.Record, string)) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, r := range batch {
		if why := s.against(&r); why != "" {
			each(r, why)
		}
	}
	return nil
}

// against returns why a record cannot be imported, or "" if it can.
func (s *Store) against(r *export.Record) string {
	switch {
	case r.Endpoint != nil:
		if i := s.endpoint(r.Endpoint.ID); i >= 0 && s.endpoints[i].Project != r.Endpoint.Project {
			return export.OtherProject
		}
	case r.Agent != nil:
		return s.againstAgent(r.Agent)
	case r.Conversation != nil:
		if _, there := s.spaces[kv.Space{Project: r.Conversation.Project}][r.Conversation.ID]; there {
			return export.IsThere
		}
	case r.Value != nil:
		if row, there := s.records.space(r.Value.Space()).rows[string(r.Value.ID)]; there && !row.Deleted {
			return export.IsThere
		}
	case r.Event != nil:
		if s.events[r.Event.ID] != nil {
			return export.IsThere
		}
	}
	return ""
}

func (s *Store) againstAgent(a *export.Agent) string {
	if s.agents[key{a.Project, a.ID}] != nil {
		return export.IsThere
	}
	for other, b := range s.agents {
		h := b.head.Agent
		if other.project != a.Project || h.Status.Ended() || a.Status.Ended() {
			continue
		}
		if a.Name != "" && a.Name == h.Name {
			return export.NameTaken
		}
		if slices.ContainsFunc(a.Settings.Call.Keys, func(c string) bool { return slices.Contains(h.Settings.Call.Keys, c) }) {
			return export.CallKeyTaken
		}
	}
	if _, there := s.joins[key{a.Project, a.JoinKey}]; there && a.JoinKey != "" {
		return export.JoinKeyTaken
	}
	return ""
}

func (s *Store) importOne(r *export.Record, fresh map[key]*agent) error {
	switch {
	case r.Key != nil:
		if s.keys[r.Key.Name] == nil {
			s.keys[r.Key.Name] = bytes.Clone(r.Key.Value)
		}
	case r.Endpoint != nil:
		i := s.endpoint(r.Endpoint.ID)
		if i < 0 {
			s.published = nil
			s.endpoints = append(s.endpoints, r.Endpoint.Clone())
		} else if s.endpoints[i].Project != r.Endpoint.Project {
			return taken("endpoint %s", r.Endpoint.ID)
		}
	case r.Agent != nil:
		return s.importAgent(r.Agent, fresh)
	case r.Message != nil:
		return s.importMessage(r.Message, fresh)
	case r.Item != nil:
		k := key{r.Item.Project, r.Item.AgentID}
		if s.agents[k] == nil {
			return noImport("item", r.Item.Row.ID, k)
		}
		s.items = append(s.items, itemPlace{k, s.agents[k], r.Item.Seq})
	case r.Working != nil:
		e := r.Working
		k := key{e.Project, e.AgentID}
		if s.agents[k] == nil {
			return noImport("key", e.Key, k)
		}
		if !s.addEntry(kv.Space{Project: e.Project, Agent: e.AgentID}, kv.Entry{Key: e.Key, Value: e.Value, UpdatedMS: e.UpdatedMS, ExpiresMS: e.ExpiresMS}) {
			return taken("key %s of agent %s", e.Key, e.AgentID)
		}
	case r.Conversation != nil:
		c := r.Conversation
		if !s.addEntry(kv.Space{Project: c.Project}, kv.Entry{Key: c.ID, Value: c.Body, ExpiresMS: kv.Never}) {
			return taken("conversation %s of project %s", c.ID, c.Project)
		}
	case r.Value != nil:
		v := r.Value
		if s.against(r) != "" {
			return export.ErrThere(v)
		}
		space := s.records.own(v.Space())
		space.state = v.Place(space.state)
		space.rows[string(v.ID)] = record.Record{ID: string(v.ID), Rev: v.Rev, UpdatedMS: v.UpdatedMS, Body: bytes.Clone(v.Body)}
	case r.Event != nil:
		e := r.Event
		k := key{e.Project, e.AgentID}
		if e.AgentID != "" && s.agents[k] == nil {
			return noImport("event", e.ID, k)
		}
		if s.events[e.ID] != nil {
			return taken("event %s", e.ID)
		}
		s.keep(webhook.Event{ID: e.ID, Type: e.Type, Project: e.Project, AgentID: e.AgentID, CreatedMS: e.CreatedMS, Body: e.Body})
	case r.Delivery != nil:
		return s.importDelivery(r.Delivery)
	}
	return nil
}

// addEntry adds an entry to a space and reports whether its key was free.
func (s *Store) addEntry(space kv.Space, e kv.Entry) bool {
	if _, there := s.spaces[space][e.Key]; there {
		return false
	}
	if s.spaces[space] == nil {
		s.spaces[space] = map[string]kv.Entry{}
	}
	e.Value = bytes.Clone(e.Value)
	s.spaces[space][e.Key] = e
	return true
}

func noImport(what, id string, k key) error {
	return fault.New(fault.Invalid, "%s %s belongs to an agent %q of project %q that is not there", what, id, k.id, k.project)
}

func (s *Store) importAgent(a *export.Agent, fresh map[key]*agent) error {
	k := key{a.Project, a.ID}
	if s.againstAgent(a) != "" {
		return taken("agent %s (%s) of project %s", a.ID, a.Name, a.Project)
	}
	if a.JoinKey != "" {
		s.joins[key{a.Project, a.JoinKey}] = a.ID
	}
	s.made++
	fresh[k] = &agent{no: s.made, head: memory.Head{Agent: a.Agent, NextSeq: a.NextSeq, Rev: a.HeadRev, LastTurn: a.LastTurn}}
	s.agents[k] = fresh[k]
	return nil
}

// own returns an agent that this call may change.
func (s *Store) own(k key, fresh map[key]*agent) *agent {
	a := s.agents[k]
	if fresh[k] == nil { // of an earlier call
		a = &agent{no: a.no, head: a.head, list: slices.Clone(a.list), written: a.written}
		fresh[k], s.agents[k] = a, a
	}
	return a
}

func (s *Store) importMessage(m *export.Message, fresh map[key]*agent) error {
	k := key{m.Project, m.AgentID}
	a := s.agents[k]
	if a == nil {
		return noImport("message", m.ID, k)
	}
	a = s.own(k, fresh)
	i, there := place(a.list, m.Seq)
	if there || m.ID != "" && slices.ContainsFunc(a.list, func(o memory.Message) bool { return o.ID == m.ID }) {
		return taken("message %d of agent %s", m.Seq, m.AgentID)
	}
	a.list = slices.Insert(a.list, i, m.Message)
	a.written += int64(len(m.Content) + len(m.Parts) + len(m.ToolCalls))
	a.head.Last = a.list[len(a.list)-1]
	return nil
}

func (s *Store) importDelivery(d *export.Delivery) error {
	e := s.events[d.Event]
	switch {
	case e == nil || e.agent.project != d.Project:
		return fault.New(fault.Invalid, "delivery %d is of an event %q that is not there", d.ID, d.Event)
	case !d.Gone && s.endpoint(d.Endpoint) < 0:
		return fault.New(fault.Invalid, "delivery %d is for an endpoint %q that is not there", d.ID, d.Endpoint)
	case d.ID <= int64(len(s.deliveries)) && s.deliveries[d.ID-1] != nil:
		return taken("delivery %d", d.ID)
	case d.ID > 1<<24:
		return fault.New(fault.Invalid, "delivery %d: this store keeps a place for every id and takes them up to %d", d.ID, 1<<24)
	}
	for int64(len(s.deliveries)) < d.ID {
		s.deliveries = append(s.deliveries, nil)
	}
	first := d.FirstMS
	if first == 0 {
		first = d.Created
	}
	s.deliveries[d.ID-1] = &delivery{
		id: d.ID, event: e, endpoint: d.Endpoint, state: d.State, attempt: d.Attempt, due: d.DueMS, fence: d.Fence, reason: string(d.Reason), created: d.Created, done: d.DoneMS,
		replayOf: d.ReplayOf, first: first, urgent: d.Urgent, orphan: d.Gone, attempts: slices.Clone(d.Attempts),
	}
	return nil
}
