// Package erasure erases agents, callers and projects so that they stay erased. A Service notes
// each erasure in a Ledger outside of the database before it begins, and in the database when it is
// done. A database that came from a backup has not noted the erasures since then: Service.Apply
// compares the two and erases again.
//
// The steps are ordered so that a crash between any two ends in an erasure that is done: the entry
// is written as asked, the data is erased, the entry is written as done, and the database notes the
// entry. What the database has noted is therefore done in the ledger too, and Apply reads only the
// entries that it has not.
package erasure

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/caller"
	"github.com/heardlog/heardlog/longterm/facts"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/webhook"
)

// Service erases. All fields but Ledger and Dropped are required.
type Service struct {
	// Ledger is nil if there is none. Erasures then last for as long as the database.
	Ledger   *Ledger
	Records  record.Store
	Agents   *agents.Agents
	Facts    *facts.Service
	Callers  *caller.Service
	Items    memories.Service
	Keys     kv.Store // of conversations
	Values   kv.Store // of namespaces
	Webhooks *webhook.Service
	Now      func() time.Time
	NewID    func() string // a UUIDv7
	Settings Settings      // for receipts
	// Dropped is called by Apply for an erasure that leaves the ledger because a hold refuses it;
	// nil ignores it.
	Dropped func(project, id string)
}

// space holds the erasures that the database has noted of a project. It is not a space of the
// project itself, whose erasure would take it away.
func space(project string) record.Space {
	return record.Space{Project: memories.OwnProject(project), Name: "erasure"}
}

// Noted is an erasure as the database has it.
type Noted struct {
	Entry
	// Held is set if a legal hold, which came back with a backup, keeps what was erased before.
	Held bool `json:"held,omitempty"`
	// AgainMS is when it was last applied again, Unix ms; 0 = never.
	AgainMS int64 `json:"again_ms,omitempty"`
}

// Agent erases an agent, live or ended, and the facts that rest on it alone. It fails with
// fault.NotFound if there is no such agent, with fault.Held if it is under hold, and with
// fault.Unavailable if the ledger or the store cannot be written. After fault.NotFound nothing was
// erased, and after fault.Held only what a hold that was set meanwhile came too late for; after
// other errors, Apply finishes what was begun.
func (s *Service) Agent(ctx context.Context, project, id, by string) (Entry, error) {
	e := s.entry(project, OfAgent, by)
	e.AgentID = id
	if err := s.Agents.MayErase(ctx, project, id); err != nil { // before anything is written
		return e, err
	}
	return s.run(ctx, e, func(e *Entry) error {
		err := s.eraseAgent(ctx, e)
		if fault.Is(err, fault.NotFound) { // erased by another call meanwhile
			err = nil
		}
		return err
	})
}

// User erases the caller with a name or alias; see caller.Service.Erase. It fails as Agent does.
func (s *Service) User(ctx context.Context, project, name, by string) (Entry, caller.Erasure, error) {
	e := s.entry(project, OfUser, by)
	out := caller.Erasure{Project: project, User: name}
	names, err := s.Callers.Names(ctx, project, name)
	if err != nil {
		return e, out, err
	}
	if s.Ledger != nil {
		if e.Key, e.Names, err = s.Ledger.hash(ctx, names); err != nil {
			return e, out, err
		}
	}
	e, err = s.run(ctx, e, func(e *Entry) (err error) {
		out, err = s.Callers.Erase(ctx, project, name)
		e.count(out.Erased)
		e.Erased.Aliases = &out.Aliases
		return err
	})
	return e, out, err
}

// Project erases all that a project has. It fails as Agent does.
func (s *Service) Project(ctx context.Context, project, by string) (Entry, error) {
	if err := s.Items.Holds.CheckProject(ctx, project); err != nil {
		return Entry{}, err
	}
	return s.run(ctx, s.entry(project, OfProject, by), func(e *Entry) error { return s.eraseProject(ctx, e, memories.Always) })
}

// entry returns a new entry.
func (s *Service) entry(project string, kind Kind, by string) Entry {
	return Entry{ID: s.NewID(), Project: project, Kind: kind, State: Asked, AskedMS: s.Now().UnixMilli(), By: by, Offline: s.Settings.Offline}
}

// run notes an entry, erases, and notes that it is done.
func (s *Service) run(ctx context.Context, e Entry, erase func(*Entry) error) (Entry, error) {
	if s.Ledger != nil {
		if err := s.Ledger.put(ctx, &e); err != nil {
			return e, err
		}
	}
	err := erase(&e)
	if fault.Is(err, fault.Held) {
		return e, errors.Join(err, s.drop(context.WithoutCancel(ctx), &e))
	}
	if err != nil {
		return e, err
	}
	return e, s.done(context.WithoutCancel(ctx), &e)
}

// drop takes an erasure that a hold has refused out of the ledger, so that it does not become one
// later. One that Apply has finished on another server stays.
func (s *Service) drop(ctx context.Context, e *Entry) error {
	if s.Ledger == nil {
		return nil
	}
	now, err := s.Ledger.get(ctx, e.name())
	if fault.Is(err, fault.NotFound) || err == nil && now.State == Done {
		return nil
	}
	return errors.Join(err, s.Ledger.remove(ctx, e))
}

// done notes that an erasure is done, in the ledger and then in the database.
func (s *Service) done(ctx context.Context, e *Entry) error {
	e.State, e.DoneMS = Done, s.Now().UnixMilli()
	if s.Ledger != nil {
		if err := s.Ledger.put(ctx, e); err != nil {
			return err
		}
	}
	return s.note(ctx, []Noted{{Entry: *e}})
}

// note stores erasures of one project in the database.
func (s *Service) note(ctx context.Context, list []Noted) error {
	var changes []record.Change
	for i := range list {
		body, err := json.Marshal(&list[i])
		if err != nil {
			return err
		}
		changes = append(changes, record.Change{ID: list[i].ID, Body: body, If: record.Any})
	}
	_, err := s.Records.ChangeRecords(ctx, space(list[0].Project), changes, record.Limit{}, nil, s.Now().UnixMilli())
	return err
}

// eraseAgent erases the agent of an entry.
func (s *Service) eraseAgent(ctx context.Context, e *Entry) error {
	if err := s.Agents.MayErase(ctx, e.Project, e.AgentID); err != nil {
		return err
	}
	// What is outside the ledger of the call goes first, so that a call that fails can be repeated.
	n, err := s.Facts.EraseCall(ctx, e.Project, e.AgentID)
	e.Erased.Records += n
	if err == nil {
		err = s.Agents.Erase(ctx, e.Project, e.AgentID)
	}
	if err == nil {
		e.Erased.Agents++
	}
	return err
}

// eraseProject erases what a project had at a time.
func (s *Service) eraseProject(ctx context.Context, e *Entry, untilMS int64) error {
	saved, keys, gone := 0, 0, 0
	e.Erased.Conversations, e.Erased.Keys, e.Erased.Endpoints = &saved, &keys, &gone
	var err error
	// First, so that nothing more is sent.
	if gone, err = s.Webhooks.DeleteAll(ctx, e.Project, untilMS); err != nil {
		return err
	}
	erased, err := s.Items.EraseProject(ctx, e.Project, untilMS)
	e.count(erased)
	if err != nil {
		return err
	}
	if saved, err = kv.ClearUntil(ctx, s.Keys, kv.Space{Project: e.Project}, untilMS); err != nil {
		return err
	}
	keys, err = kv.EraseProject(ctx, s.Values, e.Project, untilMS)
	return err
}

// maxShared is how many agents an entry names that were kept.
const maxShared = 100

func (e *Entry) count(n memories.Erased) {
	e.Erased.Agents, e.Erased.Memories, e.Erased.Records = n.Agents, n.Memories, n.Records
	e.Shared, e.SharedN = n.Shared[:min(len(n.Shared), maxShared)], n.SharedN
}

// Get returns an erasure of a project, or fault.NotFound.
func (s *Service) Get(ctx context.Context, project, id string) (n Noted, err error) {
	r, err := s.Records.Record(ctx, space(project), id)
	if fault.Is(err, fault.NotFound) {
		return n, fault.New(fault.NotFound, "there is no erasure %q", id)
	}
	if err != nil {
		return n, err
	}
	return n, json.Unmarshal(r.Body, &n)
}

// List returns at most limit erasures of a project, oldest first, after a cursor, "" for the first
// page, and the cursor of the next page, "" after the last.
func (s *Service) List(ctx context.Context, project, cursor string, limit int) (list []Noted, next string, err error) {
	page, _, err := s.Records.Records(ctx, space(project), record.Query{AfterID: cursor, Limit: limit + 1})
	if err != nil {
		return nil, "", err
	}
	for i, r := range page {
		if i == limit {
			return list, page[i-1].ID, nil
		}
		var n Noted
		if err := json.Unmarshal(r.Body, &n); err != nil {
			return nil, "", err
		}
		list = append(list, n)
	}
	return list, "", nil
}
