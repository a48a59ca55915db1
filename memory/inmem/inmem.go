// Package inmem keeps agents, messages and the webhook outbox in memory, behind one mutex: for tests and for trying things out.
//
// It keeps the whole contract of memory.Ledger and webhook.Store (memorytest and webhooktest run on it) but one point: nothing of it is
// durable. What it acknowledges is gone with the process.
package inmem

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sort"
	"sync"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

// Store is an empty or filled memory store. Make one with New.
type Store struct {
	mu         sync.Mutex
	closed     bool
	agents     map[key]*agent
	made       int            // agents and events so far
	joins      map[key]string // by project and JoinKey: agent id
	endpoints  []webhook.Endpoint
	events     map[string]*event // by id
	deliveries []*delivery       // by id, which is the place + 1; nil = erased
	woken      chan struct{}
	keys       map[string][]byte // by name
	replays    map[key]replay    // by project and name

	conversations map[key][]byte // by project and id
	mark          []byte         // of an import that was not finished
	items         []itemPlace    // in the order in which they came; those of agents and messages that are gone stay
}

type key struct{ project, id string }

type agent struct {
	no   int // in the order in which they were made
	head memory.Head
	list []memory.Message // in order of Seq; replaced as a whole, never written to, since callers hold parts of it

	working map[string]memory.WorkingEntry
}

var (
	_ memory.Ledger = (*Store)(nil)
	_ webhook.Store = (*Store)(nil)
)

// New makes an empty store.
func New() *Store {
	return &Store{agents: map[key]*agent{}, joins: map[key]string{}, events: map[string]*event{}, woken: make(chan struct{}, 1), keys: map[string][]byte{}, conversations: map[key][]byte{}, replays: map[key]replay{}}
}

// enter locks the store for one call; without an error the caller unlocks it.
func (s *Store) enter(ctx context.Context) error {
	if ctx.Err() != nil {
		cause := context.Cause(ctx)
		switch {
		case fault.CodeOf(cause) != fault.Internal:
			return cause
		case errors.Is(cause, context.DeadlineExceeded):
			return fault.Wrap(fault.Unavailable, cause, "the store did not answer in time")
		}
		return fault.Wrap(fault.Canceled, cause, "the call was given up")
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fault.New(fault.Unavailable, "the store is closed")
	}
	return nil
}

func (s *Store) find(project, id string) (*agent, error) {
	if a := s.agents[key{project, id}]; a != nil {
		return a, nil
	}
	return nil, fault.New(fault.NotFound, "there is no agent %q", id)
}

// Create stores a new agent.
func (s *Store) Create(ctx context.Context, a memory.Agent, limit int, c memory.Change) (memory.Agent, bool, error) {
	if c.Agent != nil {
		return memory.Agent{}, false, fault.New(fault.Internal, "a new agent's change holds an agent")
	}
	if err := s.enter(ctx); err != nil {
		return memory.Agent{}, false, err
	}
	defer s.mu.Unlock()
	if a.JoinKey != "" {
		if id, ok := s.joins[key{a.Project, a.JoinKey}]; ok {
			return s.agents[key{a.Project, id}].head.Agent, false, nil
		}
	}
	live := 0
	for k, other := range s.agents {
		if k.project != a.Project || other.head.Agent.Status.Ended() {
			continue
		}
		live++
		if a.Name != "" && other.head.Agent.Name == a.Name {
			err := fault.At(fault.Conflict, "name", "a running agent has the name %q already", a.Name)
			return memory.Agent{}, false, &memory.NameTakenError{AgentID: k.id, Err: err}
		}
	}
	for _, callKey := range a.Settings.Call.Keys {
		for k, other := range s.agents {
			if k.project == a.Project && !other.head.Agent.Status.Ended() && slices.Contains(other.head.Agent.Settings.Call.Keys, callKey) {
				return memory.Agent{}, false, memory.KeyTaken(callKey, k.id)
			}
		}
	}
	if limit > 0 && live >= limit {
		return memory.Agent{}, false, fault.New(fault.Quota, "the project runs %d agents already, which is its limit", limit)
	}
	k := key{a.Project, a.ID}
	if s.agents[k] != nil {
		return memory.Agent{}, false, fault.New(fault.Conflict, "there is an agent %q already", a.ID)
	}
	s.made++
	fresh := &agent{no: s.made, head: memory.NewHead(a, nil, 0)}
	if err := s.write(k, fresh, c); err != nil {
		return memory.Agent{}, false, err
	}
	s.agents[k] = fresh
	if a.JoinKey != "" {
		s.joins[key{a.Project, a.JoinKey}] = a.ID
	}
	return a, true, nil
}

// Update runs a decision and writes what it says.
func (s *Store) Update(ctx context.Context, project, id string, decide memory.Decision) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	a, err := s.find(project, id)
	if err != nil {
		return err
	}
	c, err := run(decide, tx{a})
	if err != nil || c.Empty() {
		return err
	}
	return s.write(key{project, id}, a, c)
}

// run turns a panic of the decision into its caller's error.
func run(decide memory.Decision, t tx) (c memory.Change, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Wrap(fault.Internal, fmt.Errorf("panic in a decision: %v\n%s", p, debug.Stack()), "the store failed")
		}
	}()
	return decide(t)
}

// write checks the whole change and then makes it.
func (s *Store) write(k key, a *agent, c memory.Change) error {
	if c.Agent != nil && (c.Agent.ID != k.id || c.Agent.Project != k.project) {
		return fault.New(fault.Internal, "a decision changed the agent's id or project")
	}
	list := append(make([]memory.Message, 0, len(a.list)+len(c.Append)), a.list...)
	ids := map[string]bool{}
	for _, m := range list {
		ids[m.ID] = true
	}
	for _, m := range c.Append {
		i, taken := place(list, m.Seq)
		switch {
		case m.Seq < 1:
			return fault.New(fault.Internal, "a decision appended a message without seq")
		case taken:
			return fault.New(fault.Conflict, "there is a message with seq %d already", m.Seq)
		case m.ID != "" && ids[m.ID]:
			return fault.New(fault.Conflict, "there is a message with the id %q already", m.ID)
		}
		ids[m.ID] = true
		list = append(list, memory.Message{})
		copy(list[i+1:], list[i:])
		list[i] = m
	}
	for _, m := range c.Replace {
		i, ok := place(list, m.Seq)
		if !ok || list[i].ID != m.ID {
			return fault.New(fault.Internal, "a decision replaced message %d, which is not there under the id %q", m.Seq, m.ID)
		}
		list[i] = m
	}
	if err := s.enqueue(k, c.Events); err != nil {
		return err
	}
	a.head, a.list = a.head.Apply(c), list
	s.noteItems(k, a, c)
	return nil
}

// place gives where a Seq stands, or would stand.
func place(list []memory.Message, seq int64) (int, bool) {
	i := sort.Search(len(list), func(i int) bool { return list[i].Seq >= seq })
	return i, i < len(list) && list[i].Seq == seq
}

// tx is what a decision reads, under the store's lock.
type tx struct{ a *agent }

func (t tx) Head() memory.Head { return t.a.head }

func (t tx) Last(n int) ([]memory.Message, error) { return newest(t.a.list, n), nil }

func (t tx) ByIDs(ids []string) (map[string]memory.Message, error) {
	out := map[string]memory.Message{}
	for _, id := range ids {
		for _, m := range t.a.list {
			if id != "" && m.ID == id {
				out[id] = m
			}
		}
	}
	return out, nil
}

func (t tx) Turn(turnID int64) (out []memory.Message, err error) {
	for _, m := range t.a.list {
		if m.TurnID == turnID {
			out = append(out, m)
		}
	}
	return out, nil
}

func (t tx) Seq(seq int64) (memory.Message, error) {
	if i, ok := place(t.a.list, seq); ok {
		return t.a.list[i], nil
	}
	return memory.Message{}, fault.New(fault.NotFound, "there is no message with seq %d", seq)
}

func newest(list []memory.Message, n int) []memory.Message {
	from := max(len(list)-max(n, 0), 0)
	return list[from:len(list):len(list)]
}

// UpdateEarly implements memory.Ledger; it is never early.
func (s *Store) UpdateEarly(ctx context.Context, project, id string, decide memory.Decision, _ func(error)) (bool, error) {
	return false, s.Update(ctx, project, id, decide)
}
