// Package kv keeps values under keys: the namespaces of a project, of which each agent's working
// memory is one (Service), and the saved conversations of a project (Conversations). All stand on
// one contract, Store.
package kv

import (
	"context"
	"math"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
)

// Space is a set of keys: a namespace of a project (Name), the working memory of an agent (Agent),
// or, with neither, the conversations of a project.
type Space struct{ Project, Agent, Name string }

// Owner returns the name under which stores keep a space that is not an agent's. No project's name
// has a slash.
func (s Space) Owner() string {
	if s.Name == "" {
		return s.Project
	}
	return s.Project + "/" + s.Name
}

// Entry is a value under a key.
type Entry struct {
	Key       string
	Value     []byte
	UpdatedMS int64 // when it was set, Unix ms
	ExpiresMS int64 // it is absent from then on, Unix ms; Never for an entry that stays
	Pinned    bool  // it is not evicted
}

// Never is the ExpiresMS of an entry that stays until it is deleted.
const Never = math.MaxInt64

// Size returns how much the entry counts against a limit: its key and its value, in bytes.
func (e *Entry) Size() int64 { return int64(len(e.Key) + len(e.Value)) }

// Key is an entry without its value.
type Key struct {
	Key       string
	Bytes     int64 // Entry.Size
	UpdatedMS int64
	ExpiresMS int64
	Pinned    bool
	UsedMS    int64 // when it was last set or, as far as Store.TouchKeys was told, read
	Uses      int64 // how often, at least 1
}

// Use is a number of reads of a key.
type Use struct {
	Key    string
	Uses   int64
	UsedMS int64 // of the last read, Unix ms
}

// Page is a page of a space's keys, without those that have expired.
type Page struct {
	Keys  []Key // by code point
	Total int   // of all keys, on this page or not
	Bytes int64 // of all entries; conversations need not be added up
}

// Limit bounds a space. Entries that have expired do not count. A zero field means no limit.
type Limit struct {
	Keys  int
	Bytes int64
}

// Check returns fault.Quota if a space may not hold so many keys and bytes.
func (l Limit) Check(s Space, keys, size int64) error {
	switch {
	case l.Keys > 0 && keys > int64(l.Keys) && s.Agent == "" && s.Name == "":
		return fault.New(fault.Quota, "the project holds %d conversations already, which is its limit; delete some, or save in the place of one", l.Keys)
	case l.Keys > 0 && keys > int64(l.Keys):
		return fault.New(fault.Quota, "%s would hold %d keys, which is more than its limit of %d; delete some, or wait until some expire", s.what(), keys, l.Keys)
	case l.Bytes > 0 && size > l.Bytes:
		return fault.New(fault.Quota, "%s would hold %d bytes, which is more than its limit of %d; delete some, or wait until some expire", s.what(), size, l.Bytes)
	}
	return nil
}

// what names a space in errors.
func (s Space) what() string {
	if s.Agent != "" {
		return "the working memory"
	}
	return "the namespace"
}

// errNoKey returns the fault.NotFound of a key that a space does not hold.
func errNoKey(s Space, key string) error {
	if s.Agent == "" && s.Name == "" {
		return fault.New(fault.NotFound, "there is no conversation %q", key)
	}
	return fault.New(fault.NotFound, "%s holds no key %q", s.what(), key)
}

// Store keeps the entries of all spaces. What has expired is absent for every method, and an
// agent's entries are gone with the agent. storetest.RunConversations and RunWorking are its
// contract as tests. Its methods are safe for concurrent use, and what they acknowledge is on disk,
// except in drivers that say otherwise. nowMS is the time, Unix ms.
//
// Every method fails with fault.NotFound if the space names an agent that the project does not
// have, with fault.Unavailable when the store is full, closed or failing, and with the context's
// cause when ctx ends first. Deletions of many entries never make writers wait longer than a few
// milliseconds at a time.
type Store interface {
	// PutKeys stores entries of different keys, all or none, and replaces those of the same keys.
	// It fails with fault.Stopped once the space's agent has ended, and as Limit.Check does. With a
	// limit of zero bytes a store need not add up the space's bytes.
	PutKeys(ctx context.Context, s Space, entries []Entry, limit Limit, nowMS int64) error
	// UpdateKey stores what decide returns for the entry of a key, which is nil if there is none.
	// No other call changes the entry in between, on any server. decide may run again; its error is
	// returned and nothing is stored. It must be quick. With a once, a repeat stores nothing and
	// returns what the first update has stored, for OnceFor. UpdateKey fails as PutKeys and
	// Once.Repeat do, and with fault.Unsupported if the store has no once.
	UpdateKey(ctx context.Context, s Space, key string, once Once, limit Limit, nowMS int64, decide func(old *Entry) (Entry, error)) (Entry, error)
	// GetKeys returns those entries of the keys that are there, byte for byte, in order of the keys
	// asked for.
	GetKeys(ctx context.Context, s Space, keys []string, nowMS int64) ([]Entry, error)
	// DeleteKey deletes an entry and reports whether there was one.
	DeleteKey(ctx context.Context, s Space, key string, nowMS int64) (bool, error)
	// ListKeys returns the first limit keys after the given one ("" = from the beginning) by code
	// point.
	ListKeys(ctx context.Context, s Space, after string, limit int, nowMS int64) (Page, error)
	// Spaces returns the namespaces of a project that hold keys, expired ones too, by name. With an
	// empty project it returns those of all projects and the working memories that hold keys, in
	// any order. A store that cannot list fails with fault.Unsupported; there, ClearKeys of the
	// project's space deletes all namespaces.
	Spaces(ctx context.Context, project string) ([]Space, error)
	// ClearKeys deletes all entries of a space and returns how many there were. An entry that is
	// stored meanwhile may go or stay.
	ClearKeys(ctx context.Context, s Space, nowMS int64) (int, error)
	// SweepKeys deletes what has expired, in all spaces, and returns how many entries those were.
	SweepKeys(ctx context.Context, nowMS int64) (int, error)
}

// Evicter is a Store that notes how keys are used and which are pinned, so that a Service can evict
// keys.
type Evicter interface {
	// EvictKeys deletes those of the keys that are not pinned and have not been set since they were
	// listed. It returns how many that were.
	EvictKeys(ctx context.Context, s Space, keys []Key) (int, error)
	// TouchKeys notes reads. Keys that are not there are ignored.
	TouchKeys(ctx context.Context, s Space, uses []Use) error
}

// Put stores one entry; see Store.PutKeys.
func Put(ctx context.Context, store Store, s Space, e Entry, limit Limit, nowMS int64) error {
	return store.PutKeys(ctx, s, []Entry{e}, limit, nowMS)
}

// PutNew stores an entry unless there is one of its key, which fails with fault.Conflict. Of
// several calls at the same time, on any server, one succeeds.
func PutNew(ctx context.Context, store Store, s Space, e Entry, limit Limit, nowMS int64) error {
	_, err := store.UpdateKey(ctx, s, e.Key, Once{}, limit, nowMS, func(old *Entry) (Entry, error) {
		if old != nil {
			return e, fault.New(fault.Conflict, "there is an entry %q already", e.Key)
		}
		return e, nil
	})
	return err
}

// Get returns the entry of a key, or fault.NotFound.
func Get(ctx context.Context, store Store, s Space, key string, nowMS int64) (Entry, error) {
	found, err := store.GetKeys(ctx, s, []string{key}, nowMS)
	if err != nil {
		return Entry{}, err
	}
	if len(found) == 0 {
		return Entry{}, errNoKey(s, key)
	}
	return found[0], nil
}

// validKey refuses names that a URL path cannot carry, and unreadable ones.
func validKey(field, key string, maxChars int) error {
	if key == "." || key == ".." {
		return fault.At(fault.Invalid, field, "%q is no %s, since paths lose it on their way", key, field)
	}
	return text.ValidName(field, key, maxChars)
}
