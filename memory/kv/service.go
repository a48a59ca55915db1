package kv

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
)

// Bounds of namespaces. Those of working memories are of OSSA's schema.
const (
	MaxName           = 128 // characters of a namespace
	MaxKey            = 256 // characters of a key
	MaxKeys           = 100_000
	MaxWorkingKeys    = 10_000      // of one agent
	MaxBatch          = 100         // keys of one call
	MaxTTL            = 315_360_000 // seconds: ten years
	DefaultMB         = 64
	DefaultWorkingTTL = 3600 // seconds, if neither the call nor the agent sets one
)

// The values of a time to live besides a number of seconds.
const (
	DefaultTTL = 0  // of the namespace: none, except in a working memory
	NoEnd      = -1 // the entry stays until it is deleted
)

// AgentPrefix begins the name of the namespace that is the working memory of the agent with the ID
// that follows.
const AgentPrefix = "agent:"

// Service holds the rules of namespaces over a store. The working memory of an agent is the
// namespace AgentPrefix + ID: it takes nothing once the agent has ended, and is gone with the
// agent.
type Service struct {
	Store Store
	// External is set if Store is not the server's own: it knows no agents. Working memories in it
	// end with their time to live, which is at most a day.
	External bool
	Agents   interface {
		Head(ctx context.Context, project, id string) (memory.Head, error)
	}
	// Held returns fault.Held for an agent under hold: nothing of its working memory is deleted
	// in an External store. Other stores know it by themselves. nil holds none.
	Held func(ctx context.Context, h *memory.Head) error
	// MaxMB bounds each namespace, and each working memory whatever the agent's own setting is; 0 =
	// DefaultMB.
	MaxMB int
	// Quota bounds what all namespaces of a project hold; nil = no limit.
	Quota interface {
		Room(project string, messages int, bytes int64) error
		Stored(project string, messages int, bytes int64)
	}
	// GC is how namespaces make room; the zero value evicts nothing from them. Agents have settings
	// of their own for their working memories.
	GC memory.GC
	// Evicted is called after keys were evicted; nil ignores it.
	Evicted func(strategy string, keys int)
	Now     func() time.Time

	used used
}

// place is a namespace with its limits.
type place struct {
	Space
	limit Limit
	ttl   int          // seconds that an entry lives unless the call says otherwise, or NoEnd
	owner *memory.Head // whose working memory it is, in a store that knows no agents
	gc    memory.GC
}

// maxExternalTTL bounds how long working memories stay in a store that knows no agents, in seconds.
const maxExternalTTL = 86_400

// check fails if the place takes no entry with that time to live.
func (p *place) check(ttl int) error {
	if p.owner == nil {
		return nil
	}
	if ttl == NoEnd || ttl > maxExternalTTL {
		return fault.At(fault.Invalid, "ttl_seconds", "must be from 1 to %d in the working memory of an agent, which is kept outside the store", maxExternalTTL)
	}
	return p.owner.Agent.MustBeActive(fault.Stopped)
}

// open returns where a namespace is. It fails with fault.NotFound if it is the working memory of an
// agent that the project does not have, and with fault.Conflict if that is switched off.
func (s *Service) open(ctx context.Context, project, name string) (place, error) {
	id, ok := strings.CutPrefix(name, AgentPrefix)
	if err := validKey("namespace", name, MaxName+len(name)-len(id)); err != nil {
		return place{}, err
	}
	mb := DefaultMB
	if s.MaxMB > 0 {
		mb = s.MaxMB
	}
	if !ok {
		return place{Space{Project: project, Name: name}, Limit{Keys: MaxKeys, Bytes: int64(mb) << 20}, NoEnd, nil, s.GC}, nil
	}
	h, err := s.Agents.Head(ctx, project, id)
	if err != nil {
		return place{}, err
	}
	own := h.Agent.Settings.Memory.Working
	if own.Off {
		return place{}, fault.New(fault.Conflict, "the agent's working memory is switched off: properties.heardlog.working_memory.enabled is false")
	}
	if own.MaxSizeMB > 0 {
		mb = min(mb, own.MaxSizeMB)
	} else {
		mb = min(mb, DefaultMB)
	}
	p := place{Space{Project: project, Agent: id}, Limit{Keys: MaxWorkingKeys, Bytes: int64(mb) << 20}, DefaultWorkingTTL, nil, own.GC}
	if s.External {
		p.Space, p.owner = Space{Project: project, Name: name}, &h
	}
	if own.TTL > 0 {
		p.ttl = own.TTL
	}
	return p, nil
}

// expires returns when an entry ends that is set now.
func (p *place) expires(now int64, ttl int) int64 {
	if ttl == DefaultTTL {
		ttl = p.ttl
	}
	if ttl == NoEnd {
		return Never
	}
	return now + int64(ttl)*1000
}

func checkTTL(field string, ttl int) error {
	if ttl < NoEnd || ttl > MaxTTL {
		return fault.At(fault.Invalid, field, "%d is not from 1 to %d, nor null for no end", ttl, MaxTTL)
	}
	return nil
}

// checkKeys checks the keys of the list field, where each stands in a member of its element, unless
// that is "". A single key is named key in errors.
func checkKeys(field, member string, keys []string) error {
	if len(keys) == 0 || len(keys) > MaxBatch {
		return fault.At(fault.Invalid, field, "has %d elements, allowed are 1 to %d", len(keys), MaxBatch)
	}
	seen := make(map[string]bool, len(keys))
	for i, key := range keys {
		at := "key"
		if len(keys) > 1 {
			at = fmt.Sprintf("%s[%d]%s", field, i, member)
		}
		if err := validKey(at, key, MaxKey); err != nil {
			return err
		}
		if seen[key] {
			return fault.At(fault.Invalid, field, "names the key %q twice", text.Clip(key, 80))
		}
		seen[key] = true
	}
	return nil
}

// Value is a value to store: any JSON, for TTL seconds, DefaultTTL or NoEnd.
type Value struct {
	Key    string
	JSON   []byte
	TTL    int
	Pinned bool // it is not evicted
}

// Set stores values, all or none, and returns their entries. It fails with fault.Stopped if the
// namespace is of an agent that has ended, and with fault.Quota over a limit.
func (s *Service) Set(ctx context.Context, project, name string, values ...Value) ([]Entry, error) {
	keys := make([]string, len(values))
	for i, v := range values {
		keys[i] = v.Key
	}
	at := func(i int, field string) string {
		if len(values) == 1 {
			return field
		}
		return fmt.Sprintf("entries[%d].%s", i, field)
	}
	if err := checkKeys("entries", ".key", keys); err != nil {
		return nil, err
	}
	size := int64(0)
	for i, v := range values {
		if err := checkTTL(at(i, "ttl_seconds"), v.TTL); err != nil {
			return nil, err
		}
		switch {
		case len(v.JSON) == 0:
			return nil, fault.At(fault.Missing, at(i, "value"), "is missing; any JSON is taken, null too")
		case !utf8.Valid(v.JSON) || !json.Valid(v.JSON):
			return nil, fault.At(fault.Invalid, at(i, "value"), "is not valid JSON in UTF-8")
		}
		size += int64(len(v.Key) + len(v.JSON))
	}
	p, err := s.open(ctx, project, name)
	if err != nil {
		return nil, err
	}
	for _, v := range values {
		if err := p.check(v.TTL); err != nil {
			return nil, err
		}
		if _, ok := s.Store.(Evicter); v.Pinned && !ok {
			return nil, fault.New(fault.Unsupported, "the provider of keys and values cannot pin keys")
		}
	}
	now := s.nowMS()
	entries := make([]Entry, len(values))
	for i, v := range values {
		entries[i] = Entry{Key: v.Key, Value: bytes.Clone(v.JSON), UpdatedMS: now, ExpiresMS: p.expires(now, v.TTL), Pinned: v.Pinned}
	}
	err = s.makingRoom(ctx, &p, keys, size, func() error {
		return s.counted(&p, size, func() error { return s.Store.PutKeys(ctx, p.Space, entries, p.limit, now) })
	})
	return entries, err
}

// counted runs put, which stores so many bytes, if the project has room for them. Working memories
// have limits of their own, and other stores are not counted.
func (s *Service) counted(p *place, size int64, put func() error) error {
	if s.Quota == nil || p.Agent != "" || s.External {
		return put()
	}
	if err := s.Quota.Room(p.Project, 0, size); err != nil {
		return err
	}
	err := put()
	if err == nil {
		s.Quota.Stored(p.Project, 0, size)
	}
	return err
}

// Get returns the entry of a key, or fault.NotFound if there is none or it has expired.
func (s *Service) Get(ctx context.Context, project, name, key string) (Entry, error) {
	found, p, err := s.get(ctx, project, name, []string{key})
	if err == nil && len(found) == 0 {
		err = errNoKey(p.Space, key)
	}
	if err != nil {
		return Entry{}, err
	}
	return found[0], nil
}

// GetMany returns those entries of the keys that are there, in order of the keys.
func (s *Service) GetMany(ctx context.Context, project, name string, keys []string) ([]Entry, error) {
	found, _, err := s.get(ctx, project, name, keys)
	return found, err
}

func (s *Service) get(ctx context.Context, project, name string, keys []string) ([]Entry, place, error) {
	if err := checkKeys("keys", "", keys); err != nil {
		return nil, place{}, err
	}
	p, err := s.open(ctx, project, name)
	if err != nil {
		return nil, p, err
	}
	now := s.nowMS()
	found, err := s.Store.GetKeys(ctx, p.Space, keys, now)
	if p.gc.Strategy != "" {
		s.used.read(&p, found, now)
	}
	return found, p, err
}

// Delete deletes a key, or fails with fault.NotFound if there is none.
func (s *Service) Delete(ctx context.Context, project, name, key string) error {
	if err := validKey("key", key, MaxKey); err != nil {
		return err
	}
	p, err := s.openToDelete(ctx, project, name)
	if err != nil {
		return err
	}
	found, err := s.Store.DeleteKey(ctx, p.Space, key, s.nowMS())
	if err == nil && !found {
		err = errNoKey(p.Space, key)
	}
	return err
}

// openToDelete is open for a namespace of which keys are deleted. It fails with fault.Held if that
// is the working memory of an agent under hold in an external store.
func (s *Service) openToDelete(ctx context.Context, project, name string) (place, error) {
	p, err := s.open(ctx, project, name)
	if err == nil && p.owner != nil && s.Held != nil {
		err = s.Held(ctx, p.owner)
	}
	return p, err
}

// Clear deletes all keys of a namespace and returns how many there were.
func (s *Service) Clear(ctx context.Context, project, name string) (int, error) {
	p, err := s.openToDelete(ctx, project, name)
	if err != nil {
		return 0, err
	}
	return s.Store.ClearKeys(ctx, p.Space, s.nowMS())
}

// Names returns the names of a project's namespaces, without those of agents.
func (s *Service) Names(ctx context.Context, project string) (names []string, err error) {
	spaces, err := s.Store.Spaces(ctx, project)
	for _, at := range spaces {
		if !strings.HasPrefix(at.Name, AgentPrefix) {
			names = append(names, at.Name)
		}
	}
	return names, err
}

// ForgetAgent deletes the working memory of an agent that is erased from a store that does not do
// so by itself.
func (s *Service) ForgetAgent(ctx context.Context, project, id string) error {
	if !s.External {
		return nil
	}
	_, err := s.Store.ClearKeys(ctx, Space{Project: project, Name: AgentPrefix + id}, s.nowMS())
	return err
}

// EraseProject deletes the entries of all namespaces of a project, without those of agents, that
// were stored up to a time, Unix ms, and returns how many there were; math.MaxInt64 deletes all. A
// store that cannot list deletes all or nothing.
func EraseProject(ctx context.Context, store Store, project string, untilMS int64) (int, error) {
	spaces, err := store.Spaces(ctx, project)
	if fault.Is(err, fault.Unsupported) {
		if untilMS != math.MaxInt64 {
			return 0, nil
		}
		return store.ClearKeys(ctx, Space{Project: project}, 0)
	}
	erased := 0
	for i := 0; i < len(spaces) && err == nil; i++ {
		var n int
		n, err = ClearUntil(ctx, store, spaces[i], untilMS)
		erased += n
	}
	return erased, err
}

// ClearUntil deletes the entries of a space that were stored up to a time, Unix ms, and returns how
// many there were; math.MaxInt64 deletes all. Entries without a time are of before there were
// times.
func ClearUntil(ctx context.Context, store Store, s Space, untilMS int64) (n int, err error) {
	if untilMS == math.MaxInt64 {
		return store.ClearKeys(ctx, s, 0)
	}
	for after := ""; ; {
		page, err := store.ListKeys(ctx, s, after, clearPage, 0)
		if err != nil {
			return n, err
		}
		for _, k := range page.Keys {
			if after = k.Key; k.UpdatedMS > untilMS {
				continue
			}
			gone, err := store.DeleteKey(ctx, s, k.Key, 0)
			if err != nil {
				return n, err
			}
			if gone {
				n++
			}
		}
		if len(page.Keys) < clearPage {
			return n, nil
		}
	}
}

// clearPage is how many keys ClearUntil lists at a time.
const clearPage = 500

func (s *Service) nowMS() int64 { return s.Now().UnixMilli() }

// Sweep erases expired entries and evicts what is due. It goes on after what fails.
func (s *Service) Sweep(ctx context.Context) error {
	_, err := s.Store.SweepKeys(ctx, s.nowMS())
	if err != nil {
		err = fmt.Errorf("erase expired keys: %w", err)
	}
	return errors.Join(err, s.collect(ctx))
}
