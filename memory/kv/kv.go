// Package kv keeps values under keys: the working memory of an agent (Working) and the saved
// conversations of a project (Conversations). Both stand on one contract, Store.
package kv

import (
	"context"
	"math"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
)

// Space is a set of keys: the working memory of an agent, or, with an empty Agent, the
// conversations of a project.
type Space struct{ Project, Agent string }

// Entry is a value under a key.
type Entry struct {
	Key       string
	Value     []byte
	UpdatedMS int64 // when it was set, Unix ms
	ExpiresMS int64 // it is absent from then on, Unix ms; Never for an entry that stays
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
}

// Page is a page of a space's keys, without those that have expired.
type Page struct {
	Keys  []Key // by code point
	Total int   // of all keys, on this page or not
	Bytes int64 // of all entries; only an agent's space counts them
}

// Limit bounds a space. Entries that have expired do not count. A zero field means no limit.
type Limit struct {
	Keys  int
	Bytes int64
	// New refuses to replace an entry that has not expired. Of several calls at the same time, on
	// any server, one succeeds.
	New bool
}

// ErrTaken returns the fault.Conflict of a key that Limit.New finds in use.
func ErrTaken(key string) error {
	return fault.New(fault.Conflict, "there is an entry %q already", key)
}

// Check returns fault.Quota if a space may not hold so many keys and bytes.
func (l Limit) Check(s Space, keys, size int64) error {
	switch {
	case l.Keys > 0 && keys > int64(l.Keys) && s.Agent == "":
		return fault.New(fault.Quota, "the project holds %d conversations already, which is its limit; delete some, or save in the place of one", l.Keys)
	case l.Keys > 0 && keys > int64(l.Keys):
		return fault.New(fault.Quota, "the working memory holds %d keys already, which is its limit; delete some, or wait until some expire", l.Keys)
	case l.Bytes > 0 && size > l.Bytes:
		return fault.New(fault.Quota, "the working memory would hold %d bytes, which is more than its limit of %d; delete some, or wait until some expire", size, l.Bytes)
	}
	return nil
}

// ErrNoKey returns the fault.NotFound of a key that a space does not hold.
func ErrNoKey(s Space, key string) error {
	if s.Agent == "" {
		return fault.New(fault.NotFound, "there is no conversation %q", key)
	}
	return fault.New(fault.NotFound, "the working memory holds no key %q", key)
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
	// PutKey stores an entry and replaces one of the same key. It fails with fault.Stopped once the
	// space's agent has ended, with fault.Conflict if limit.New forbids to replace, and as
	// Limit.Check does. With a limit of zero bytes a store need not add up the space's bytes.
	PutKey(ctx context.Context, s Space, e Entry, limit Limit, nowMS int64) error
	// GetKey returns an entry, byte for byte, or fault.NotFound.
	GetKey(ctx context.Context, s Space, key string, nowMS int64) (Entry, error)
	// DeleteKey deletes an entry and reports whether there was one.
	DeleteKey(ctx context.Context, s Space, key string, nowMS int64) (bool, error)
	// ListKeys returns the first limit keys after the given one ("" = from the beginning) by code
	// point. In a project's space, Page.Total may count expired entries until SweepKeys.
	ListKeys(ctx context.Context, s Space, after string, limit int, nowMS int64) (Page, error)
	// ClearKeys deletes all entries of a space and returns how many there were. An entry that is
	// stored meanwhile may go or stay.
	ClearKeys(ctx context.Context, s Space, nowMS int64) (int, error)
	// SweepKeys deletes what has expired, in all spaces, and returns how many entries those were.
	SweepKeys(ctx context.Context, nowMS int64) (int, error)
}

// validKey refuses names that a URL path cannot carry, and unreadable ones.
func validKey(field, key string, maxChars int) error {
	if key == "." || key == ".." {
		return fault.At(fault.Invalid, field, "%q is no %s, since paths lose it on their way", key, field)
	}
	return text.ValidName(field, key, maxChars)
}
