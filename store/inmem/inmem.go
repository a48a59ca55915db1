// Package inmem keeps agents, messages and the webhook outbox in maps behind one mutex, for tests
// and for trying things out. Store is a memory.Store and a webhook.Store.
//
// Nothing is durable. What a Store acknowledges is lost with the process.
package inmem

import (
	"context"
	"slices"
	"sort"
	"sync"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/webhook"
)

// Store is a store in memory. Make one with New.
type Store struct {
	// Terms, if not nil, returns the words by which FindRecords finds a record. It must be set
	// before the store is used.
	Terms record.Terms

	mu         sync.Mutex
	closed     bool
	agents     map[memory.Ref]*agent
	made       int                  // agents and events so far
	joins      map[[2]string]string // by project and JoinKey: agent id
	endpoints  []webhook.Endpoint
	published  *[]webhook.Endpoint // a copy of endpoints; nil if they have changed since
	events     map[string]*event   // by id
	deliveries []*delivery         // by id, which is the place + 1; nil = erased
	woken      chan struct{}
	keys       map[string][]byte    // by name
	replays    map[[2]string]replay // by project and name

	spaces map[kv.Space]map[string]kept

	records records
	items   []itemPlace // in order of arrival; those of erased agents stay
}

type agent struct {
	no   int   // in the order in which they were made
	ver  int64 // see memory.Version
	head memory.Head
	// In order of Seq; replaced as a whole, never changed, since callers hold parts of it.
	list    []memory.Message
	written int64 // see memory.Usage.Bytes
}

var (
	_ memory.Store  = (*Store)(nil)
	_ webhook.Store = (*Store)(nil)
)

// New returns an empty store.
func New() *Store {
	return &Store{agents: map[memory.Ref]*agent{}, joins: map[[2]string]string{}, events: map[string]*event{}, woken: make(chan struct{}, 1), keys: map[string][]byte{}, spaces: map[kv.Space]map[string]kept{}, records: newRecords(), replays: map[[2]string]replay{}}
}

// enter locks the store for one call; without an error the caller unlocks it.
func (s *Store) enter(ctx context.Context) error {
	if ctx.Err() != nil {
		return fault.Ended(ctx)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fault.New(fault.Unavailable, "the store is closed")
	}
	return nil
}

func (s *Store) find(project, id string) (*agent, error) {
	if a := s.agents[memory.Ref{Project: project, ID: id}]; a != nil {
		return a, nil
	}
	return nil, fault.New(fault.NotFound, "there is no agent %q", id)
}

// Create implements memory.Store.
func (s *Store) Create(ctx context.Context, w memory.Write, limit int) (no int64, existing string, err error) {
	if err := s.enter(ctx); err != nil {
		return 0, "", err
	}
	defer s.mu.Unlock()
	a := w.Head.Agent
	if a.JoinKey != "" {
		if id, ok := s.joins[[2]string{a.Project, a.JoinKey}]; ok {
			return 0, id, nil
		}
	}
	if !a.Status.Ended() {
		if err := s.room(a, limit); err != nil {
			return 0, "", err
		}
	}
	k := a.Ref()
	if s.agents[k] != nil {
		return 0, "", fault.New(fault.Conflict, "there is an agent %q already", a.ID)
	}
	fresh := &agent{no: s.made + 1}
	if err := s.write(k, fresh, &w); err != nil {
		return 0, "", err
	}
	s.made++
	s.agents[k] = fresh
	if a.JoinKey != "" {
		s.joins[[2]string{a.Project, a.JoinKey}] = a.ID
	}
	return int64(fresh.no), "", nil
}

// room returns an error if a new live agent cannot be created: its name or a key is taken, or the
// project has too many.
func (s *Store) room(a *memory.Agent, limit int) error {
	live, sessions := 0, 0
	own := &a.Settings.Memory
	for k, other := range s.agents {
		h := other.head.Agent
		if k.Project != a.Project || h.Status.Ended() {
			continue
		}
		live++
		if own.Model != "" && h.Settings.Memory.Model == own.Model {
			sessions++
		}
		if a.Name != "" && h.Name == a.Name {
			err := fault.At(fault.Conflict, "name", "a running agent has the name %q already", a.Name)
			return &memory.NameTakenError{AgentID: k.ID, Err: err}
		}
		for _, callKey := range a.Settings.Call.Keys {
			if slices.Contains(h.Settings.Call.Keys, callKey) {
				return memory.KeyTaken(callKey, k.ID)
			}
		}
	}
	if limit > 0 && live >= limit {
		return fault.New(fault.Quota, "the project runs %d agents already, which is its limit", limit)
	}
	if own.MaxSessions > 0 && sessions >= own.MaxSessions {
		return a.ErrSessions()
	}
	return nil
}

// Apply implements memory.Store.
func (s *Store) Apply(ctx context.Context, batch []memory.Write) ([]error, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	errs := make([]error, len(batch))
	failed := map[int64]bool{}
	for i := range batch {
		w := &batch[i]
		k := w.Ref
		switch a := s.agents[k]; {
		case failed[w.No], a == nil, int64(a.no) != w.No, a.head.Rev != w.Rev, a.ver != w.Ver && w.Ver > 0:
			errs[i] = memory.ErrStale
		default:
			errs[i] = s.write(k, a, w)
		}
		failed[w.No] = failed[w.No] || errs[i] != nil
	}
	return errs, nil
}

// write checks the whole change and then makes it.
func (s *Store) write(k memory.Ref, a *agent, w *memory.Write) error {
	c := &w.Change
	list := append(make([]memory.Message, 0, len(a.list)+len(c.Append)), a.list...)
	ids := map[string]bool{}
	for i := range list {
		ids[list[i].ID] = true
	}
	for _, m := range c.Append {
		i, taken := place(list, m.Seq)
		switch {
		case taken:
			return fault.New(fault.Conflict, "there is a message with seq %d already", m.Seq)
		case m.ID != "" && ids[m.ID]:
			return fault.New(fault.Conflict, "there is a message with the id %q already", m.ID)
		}
		ids[m.ID] = true
		m.GivenTurn = false
		list = slices.Insert(list, i, m)
	}
	for _, m := range c.Replace {
		i, ok := place(list, m.Seq)
		if !ok || list[i].ID != m.ID {
			return fault.New(fault.Internal, "a decision replaced message %d, which is not there under the id %q", m.Seq, m.ID)
		}
		m.GivenTurn = false
		list[i] = m
	}
	if err := s.enqueue(k, c.Events); err != nil {
		return err
	}
	s.rewrite(k, c.Rewritten)
	a.head, a.list = *w.Head, list
	a.written += w.Bytes()
	a.ver++
	s.noteItems(k, a, *c)
	return nil
}

// place returns where a Seq is in the list, or would be.
func place(list []memory.Message, seq int64) (int, bool) {
	i := sort.Search(len(list), func(i int) bool { return list[i].Seq >= seq })
	return i, i < len(list) && list[i].Seq == seq
}

func newest(list []memory.Message, n int) []memory.Message {
	from := max(len(list)-max(n, 0), 0)
	return list[from:len(list):len(list)]
}
