package kv

import (
	"bytes"
	"context"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Bounds of a working memory. Sizes are those of OSSA's schema.
const (
	MaxWorkingKey     = 256    // characters of a key
	MaxWorkingKeys    = 10_000 // of one agent
	DefaultWorkingMB  = 64
	MinWorkingTTL     = 60 // seconds
	MaxWorkingTTL     = 86_400
	DefaultWorkingTTL = 3600 // if neither the call nor the agent sets one
)

// sweepEvery is how often expired entries are erased. No entry lives for less than MinWorkingTTL.
const sweepEvery = time.Minute

// Working holds the rules of agents' working memories over a store: any JSON under keys of an
// agent's own, each for a limited time, gone with the agent.
type Working struct {
	Store  Store
	Agents interface {
		Head(ctx context.Context, project, id string) (memory.Head, error)
	}
	// MaxMB bounds an agent's working memory whatever the agent's own setting is; 0 = no limit of
	// the server's.
	MaxMB int
	Now   func() time.Time
	// OnError reports what Run could not do.
	OnError func(what string, err error)
}

// limit returns an agent and how much its working memory may hold. It fails with fault.Conflict if
// that is switched off.
func (w *Working) limit(ctx context.Context, project, id string) (memory.Agent, Limit, error) {
	h, err := w.Agents.Head(ctx, project, id)
	if err != nil {
		return memory.Agent{}, Limit{}, err
	}
	own := h.Agent.Settings.Memory.Working
	if own.Off {
		return memory.Agent{}, Limit{}, fault.New(fault.Conflict, "the agent's working memory is switched off: properties.heardlog.working_memory.enabled is false")
	}
	mb := DefaultWorkingMB
	if own.MaxSizeMB > 0 {
		mb = own.MaxSizeMB
	}
	if w.MaxMB > 0 {
		mb = min(mb, w.MaxMB)
	}
	return h.Agent, Limit{Keys: MaxWorkingKeys, Bytes: int64(mb) << 20}, nil
}

func (w *Working) nowMS() int64 { return w.Now().UnixMilli() }

// Put stores a value, any JSON, under a key of the agent's for ttl seconds; 0 = the agent's
// default. It fails with fault.Stopped once the agent has ended, and with fault.Quota over its
// limit.
func (w *Working) Put(ctx context.Context, project, id, key string, value []byte, ttl int) (Entry, error) {
	if err := validKey("key", key, MaxWorkingKey); err != nil {
		return Entry{}, err
	}
	if ttl != 0 && (ttl < MinWorkingTTL || ttl > MaxWorkingTTL) {
		return Entry{}, fault.At(fault.Invalid, "ttl_seconds", "%d is not from %d to %d", ttl, MinWorkingTTL, MaxWorkingTTL)
	}
	switch {
	case len(value) == 0:
		return Entry{}, fault.At(fault.Missing, "value", "is missing; any JSON is taken, null too")
	case !utf8.Valid(value) || !json.Valid(value):
		return Entry{}, fault.At(fault.Invalid, "value", "is not valid JSON in UTF-8")
	}
	a, limit, err := w.limit(ctx, project, id)
	if err != nil {
		return Entry{}, err
	}
	if ttl == 0 {
		ttl = DefaultWorkingTTL
		if own := a.Settings.Memory.Working.TTL; own > 0 {
			ttl = own
		}
	}
	now := w.nowMS()
	e := Entry{Key: key, Value: bytes.Clone(value), UpdatedMS: now, ExpiresMS: now + int64(ttl)*1000}
	return e, w.Store.PutKey(ctx, Space{project, id}, e, limit, now)
}

// Get returns the entry of a key, or fault.NotFound if there is none or it has expired.
func (w *Working) Get(ctx context.Context, project, id, key string) (Entry, error) {
	if err := w.check(ctx, project, id, key); err != nil {
		return Entry{}, err
	}
	return w.Store.GetKey(ctx, Space{project, id}, key, w.nowMS())
}

// Delete deletes a key and reports whether it was there.
func (w *Working) Delete(ctx context.Context, project, id, key string) (bool, error) {
	if err := w.check(ctx, project, id, key); err != nil {
		return false, err
	}
	return w.Store.DeleteKey(ctx, Space{project, id}, key, w.nowMS())
}

func (w *Working) check(ctx context.Context, project, id, key string) error {
	if err := validKey("key", key, MaxWorkingKey); err != nil {
		return err
	}
	_, _, err := w.limit(ctx, project, id)
	return err
}

// Keys lists an agent's keys after the given one, and returns how much its working memory may hold.
func (w *Working) Keys(ctx context.Context, project, id, after string, limit int) (Page, Limit, error) {
	_, most, err := w.limit(ctx, project, id)
	if err != nil {
		return Page{}, most, err
	}
	page, err := w.Store.ListKeys(ctx, Space{project, id}, after, limit, w.nowMS())
	return page, most, err
}

// Clear deletes all of an agent's keys and returns how many there were.
func (w *Working) Clear(ctx context.Context, project, id string) (int, error) {
	if _, _, err := w.limit(ctx, project, id); err != nil {
		return 0, err
	}
	return w.Store.ClearKeys(ctx, Space{project, id}, w.nowMS())
}

// Run erases expired entries, at once and then every minute, until ctx is done. It returns nil.
func (w *Working) Run(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if _, err := w.Store.SweepKeys(ctx, w.nowMS()); err != nil && ctx.Err() == nil {
			w.OnError("erase expired working memory", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
