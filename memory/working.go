package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
)

// WorkingEntry is one value of an agent's working memory (reference/memory-semantics.md 004-6).
type WorkingEntry struct {
	Key       string
	Value     []byte // JSON, as it was given
	UpdatedMS int64  // when it was set, Unix ms
	ExpiresMS int64  // from when on it is absent, Unix ms
}

// Size is how much an entry counts against the limit: its key and its value, in bytes.
func (e *WorkingEntry) Size() int64 { return int64(len(e.Key) + len(e.Value)) }

// WorkingKey is an entry without its value.
type WorkingKey struct {
	Key       string
	Bytes     int64 // WorkingEntry.Size
	UpdatedMS int64
	ExpiresMS int64
}

// WorkingPage is a page of an agent's working memory. What has expired is no part of it.
type WorkingPage struct {
	Keys  []WorkingKey // by code point
	Total int          // of all keys, this page or not
	Bytes int64        // of all entries
}

// WorkingLimit bounds an agent's working memory; what has expired does not count.
type WorkingLimit struct {
	Keys  int
	Bytes int64
}

// Check refuses an entry with which there would be so many keys and bytes.
func (l WorkingLimit) Check(keys, size int64) error {
	switch {
	case keys > int64(l.Keys):
		return fault.New(fault.Quota, "the working memory holds %d keys already, which is its limit; delete some, or wait until some expire", l.Keys)
	case size > l.Bytes:
		return fault.New(fault.Quota, "the working memory would hold %d bytes, which is more than its limit of %d; delete some, or wait until some expire", size, l.Bytes)
	}
	return nil
}

// WorkingStore keeps working memories: keys and values of an agent's own, which are absent everywhere from their end on, and gone with their agent.
// memorytest.RunWorking is its full contract; methods are safe for concurrent use, and what one acknowledges is on disk, except in drivers that say otherwise. Every method
// fails with fault.NotFound if the project has no such agent, with fault.Unavailable when the store is full, closed or failing, and with the context's cause
// when ctx ends first. nowMS is the time, Unix ms.
type WorkingStore interface {
	// PutWorking stores an entry, in the place of one of its key. It fails as MustBeActive does once the agent has ended, and with the limit's error where the agent would hold more.
	PutWorking(ctx context.Context, project, agentID string, e WorkingEntry, limit WorkingLimit, nowMS int64) error
	// Working gives an entry; fault.NotFound if there is none.
	Working(ctx context.Context, project, agentID, key string, nowMS int64) (WorkingEntry, error)
	// DeleteWorking takes an entry away and tells whether there was one.
	DeleteWorking(ctx context.Context, project, agentID, key string, nowMS int64) (bool, error)
	// WorkingKeys gives the first limit keys after the given one ("" = from the beginning) by code point.
	WorkingKeys(ctx context.Context, project, agentID, after string, limit int, nowMS int64) (WorkingPage, error)
	// ClearWorking takes all of an agent's entries away and gives their number. It does not make writers wait longer than for a few ms at a time; one that is
	// stored meanwhile may go or stay.
	ClearWorking(ctx context.Context, project, agentID string, nowMS int64) (int, error)
	// SweepWorking erases what has expired, of all agents, and gives how many entries that were. It does not make writers wait longer than for a few ms at a time.
	SweepWorking(ctx context.Context, nowMS int64) (int, error)
}

// Bounds of a working memory. Sizes are those of OSSA's schema.
const (
	MaxWorkingKey    = 256    // characters of a key
	MaxWorkingKeys   = 10_000 // of one agent
	DefaultWorkingMB = 64
	MaxWorkingMB     = 1024
	MinWorkingTTL    = 60 // seconds
	MaxWorkingTTL    = 86_400
	// DefaultWorkingTTL holds where neither the call nor the agent says anything.
	DefaultWorkingTTL = 3600
)

// WorkingSettings is what an agent says of its working memory. Zero values say nothing.
type WorkingSettings struct {
	Off       bool `json:"off,omitempty"`
	MaxSizeMB int  `json:"max_size_mb,omitempty"` // 1 to MaxWorkingMB; the server's limit holds beside it
	TTL       int  `json:"ttl,omitempty"`         // seconds an entry lives that says nothing of it
}

// working gives an agent and what its working memory may hold. fault.Conflict where it is switched off.
func (s *Service) working(ctx context.Context, project, id string) (Agent, WorkingLimit, error) {
	h, err := s.cfg.Store.Head(ctx, project, id)
	if err != nil {
		return Agent{}, WorkingLimit{}, err
	}
	own := h.Agent.Settings.Memory.Working
	if own.Off {
		return Agent{}, WorkingLimit{}, fault.New(fault.Conflict, "the agent's working memory is switched off: properties.heardlog.working_memory.enabled is false")
	}
	mb := DefaultWorkingMB
	if own.MaxSizeMB > 0 {
		mb = own.MaxSizeMB
	}
	if s.cfg.MaxWorkingMB > 0 {
		mb = min(mb, s.cfg.MaxWorkingMB)
	}
	return h.Agent, WorkingLimit{Keys: MaxWorkingKeys, Bytes: int64(mb) << 20}, nil
}

// PutWorking stores a value, any JSON, under a key of the agent's, for so many seconds; 0 = the agent's default. fault.Stopped once the agent has ended,
// fault.Quota over its limit.
func (s *Service) PutWorking(ctx context.Context, project, id, key string, value []byte, ttl int) (WorkingEntry, error) {
	if err := validPathName("key", key, MaxWorkingKey); err != nil {
		return WorkingEntry{}, err
	}
	if ttl != 0 && (ttl < MinWorkingTTL || ttl > MaxWorkingTTL) {
		return WorkingEntry{}, fault.At(fault.Invalid, "ttl_seconds", "%d is not from %d to %d", ttl, MinWorkingTTL, MaxWorkingTTL)
	}
	switch {
	case len(value) == 0:
		return WorkingEntry{}, fault.At(fault.Missing, "value", "is missing; any JSON is taken, null too")
	case !utf8.Valid(value) || !json.Valid(value):
		return WorkingEntry{}, fault.At(fault.Invalid, "value", "is not valid JSON in UTF-8")
	}
	a, limit, err := s.working(ctx, project, id)
	if err != nil {
		return WorkingEntry{}, err
	}
	if ttl == 0 {
		ttl = DefaultWorkingTTL
		if own := a.Settings.Memory.Working.TTL; own > 0 {
			ttl = own
		}
	}
	now := s.NowMS()
	e := WorkingEntry{Key: key, Value: bytes.Clone(value), UpdatedMS: now, ExpiresMS: now + int64(ttl)*1000}
	return e, s.cfg.Working.PutWorking(ctx, project, id, e, limit, now)
}

// Working gives what is stored under a key; fault.NotFound if that is nothing, or has expired.
func (s *Service) Working(ctx context.Context, project, id, key string) (WorkingEntry, error) {
	if err := validPathName("key", key, MaxWorkingKey); err != nil {
		return WorkingEntry{}, err
	}
	if _, _, err := s.working(ctx, project, id); err != nil {
		return WorkingEntry{}, err
	}
	return s.cfg.Working.Working(ctx, project, id, key, s.NowMS())
}

// DeleteWorking takes a key away and tells whether it was there.
func (s *Service) DeleteWorking(ctx context.Context, project, id, key string) (bool, error) {
	if err := validPathName("key", key, MaxWorkingKey); err != nil {
		return false, err
	}
	if _, _, err := s.working(ctx, project, id); err != nil {
		return false, err
	}
	return s.cfg.Working.DeleteWorking(ctx, project, id, key, s.NowMS())
}

// WorkingKeys lists an agent's keys after the given one, and gives what its working memory may hold.
func (s *Service) WorkingKeys(ctx context.Context, project, id, after string, limit int) (WorkingPage, WorkingLimit, error) {
	_, most, err := s.working(ctx, project, id)
	if err != nil {
		return WorkingPage{}, most, err
	}
	page, err := s.cfg.Working.WorkingKeys(ctx, project, id, after, limit, s.NowMS())
	return page, most, err
}

// ClearWorking takes all of an agent's keys away and gives their number.
func (s *Service) ClearWorking(ctx context.Context, project, id string) (int, error) {
	if _, _, err := s.working(ctx, project, id); err != nil {
		return 0, err
	}
	return s.cfg.Working.ClearWorking(ctx, project, id, s.NowMS())
}

// workingSweepEvery is how often what has expired is erased: no entry lives for less than MinWorkingTTL.
const workingSweepEvery = time.Minute

// sweepWorkingUntil erases what has expired of working memories, now and from time to time, until ctx is done.
func (s *Service) sweepWorkingUntil(ctx context.Context) {
	if s.cfg.Working == nil {
		return
	}
	tick := time.NewTicker(workingSweepEvery)
	defer tick.Stop()
	for {
		if _, err := s.cfg.Working.SweepWorking(ctx, s.NowMS()); err != nil && ctx.Err() == nil {
			s.cfg.OnError("erase expired working memory", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ErrNoWorking says that there is no such key.
func ErrNoWorking(key string) error {
	return fault.New(fault.NotFound, "the working memory holds no key %q", key)
}
