// Package memcachedkv keeps keys and values in memcached. Store is a kv.Store of namespaces, with
// what memcached does not have left out: it cannot list keys or namespaces, it stores the entries
// of a batch one by one, and it bounds no namespace: it drops the values used least when it is
// full, and all of them when it restarts. Use it as a cache.
package memcachedkv

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/kv"
)

// MaxValue is the size of a value in bytes that memcached takes with its default settings, and a
// header.
const MaxValue = 1<<20 - 1024

// header is how many bytes the two times in front of a value take.
const header = 40

// maxTries bounds how often UpdateKey decides again because others were quicker.
const maxTries = 100

// Options describes a server.
type Options struct {
	Address string        // host:port
	Conns   int           // idle connections at most
	Timeout time.Duration // of connecting, and of a call
	TLS     *tls.Config   // nil for none
}

// Store is a connection to a server. Its methods are safe for concurrent use.
type Store struct {
	client *memcache.Client
}

var _ kv.Store = (*Store)(nil)

// Open returns a store. It connects with the first call.
func Open(o Options) (*Store, error) {
	if _, _, err := net.SplitHostPort(o.Address); err != nil {
		return nil, errors.New("the endpoint must be host:port")
	}
	c := memcache.New(o.Address)
	c.Timeout, c.MaxIdleConns = o.Timeout, o.Conns
	if o.TLS != nil {
		dial := tls.Dialer{NetDialer: &net.Dialer{Timeout: o.Timeout}, Config: o.TLS}
		c.DialContext = dial.DialContext
	}
	return &Store{c}, nil
}

// Close closes the connections.
func (s *Store) Close() error { return s.client.Close() }

// Ping checks that the server answers.
func (s *Store) Ping(context.Context) error { return classify(s.client.Ping()) }

// classify returns fault.Unavailable for whatever the client or the server fails with.
func classify(err error) error {
	if err == nil {
		return nil
	}
	return fault.Wrap(fault.Unavailable, err, "the key-value server does not answer")
}

// name returns a name that memcached takes: at most 250 bytes without spaces.
func name(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return "heardlog:" + base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// generation returns the numbers of a project and of a space, which are in the names of its keys:
// with another number, all of them are gone.
func (s *Store) generation(space kv.Space) (string, error) {
	project, own := name("generation", space.Project), name("generation", space.Owner())
	for range maxTries {
		items, err := s.client.GetMulti([]string{project, own})
		if err != nil {
			return "", classify(err)
		}
		if items[project] != nil && items[own] != nil {
			return string(items[project].Value) + " " + string(items[own].Value), nil
		}
		for _, at := range []string{project, own} {
			// A time, so that a number that the server has dropped does not return.
			err = s.client.Add(&memcache.Item{Key: at, Value: strconv.AppendInt(nil, time.Now().UnixNano(), 10)})
			if err != nil && !errors.Is(err, memcache.ErrNotStored) {
				return "", classify(err)
			}
		}
	}
	return "", fault.New(fault.Unavailable, "the key-value server drops what it has just stored")
}

// item returns what is stored of an entry. Ends that memcached cannot express are found in the
// header alone.
func item(at string, e *kv.Entry) (*memcache.Item, error) {
	if len(e.Value) > MaxValue {
		return nil, fault.New(fault.TooLarge, "the value has %d bytes; the provider memcached takes at most %d", len(e.Value), MaxValue)
	}
	i := &memcache.Item{Key: at, Value: append(fmt.Appendf(nil, "%020d%020d", e.UpdatedMS, e.ExpiresMS), e.Value...)}
	if seconds := (e.ExpiresMS + 999) / 1000; e.ExpiresMS != kv.Never && seconds <= math.MaxInt32 {
		i.Expiration = int32(seconds) // a time, since it is more than 30 days
	}
	return i, nil
}

// read returns the entry of an item, or nil if it has expired.
func read(key string, i *memcache.Item, nowMS int64) (*kv.Entry, error) {
	e := &kv.Entry{Key: key}
	if len(i.Value) < header {
		return nil, fault.New(fault.Internal, "the key-value server holds something else under its names")
	}
	var err1, err2 error
	e.UpdatedMS, err1 = strconv.ParseInt(string(i.Value[:header/2]), 10, 64)
	e.ExpiresMS, err2 = strconv.ParseInt(string(i.Value[header/2:header]), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the key-value server holds something else under its names")
	}
	if e.ExpiresMS <= nowMS {
		return nil, nil
	}
	e.Value = i.Value[header:]
	return e, nil
}

// PutKeys implements kv.Store, except that it stores one entry after the other, and that the limit
// does not apply.
func (s *Store) PutKeys(ctx context.Context, space kv.Space, entries []kv.Entry, _ kv.Limit, _ int64) error {
	gen, err := s.generation(space)
	if err != nil {
		return err
	}
	items := make([]*memcache.Item, len(entries))
	for i := range entries {
		if items[i], err = item(name(space.Owner(), gen, entries[i].Key), &entries[i]); err != nil {
			return err
		}
	}
	for _, i := range items {
		if ctx.Err() != nil {
			return fault.Ended(ctx)
		}
		if err := s.client.Set(i); err != nil {
			return classify(err)
		}
	}
	return nil
}

// UpdateKey implements kv.Store, except that the limit does not apply. With a once it fails with
// fault.Unsupported: an entry and a mark cannot be stored together.
func (s *Store) UpdateKey(ctx context.Context, space kv.Space, key string, once kv.Once, _ kv.Limit, nowMS int64, decide func(*kv.Entry) (kv.Entry, error)) (e kv.Entry, err error) {
	if once.ID != "" {
		return e, fault.At(fault.Unsupported, "Idempotency-Key", "must be absent: the provider memcached cannot make a repeated call count once")
	}
	for range maxTries {
		if ctx.Err() != nil {
			return e, fault.Ended(ctx)
		}
		gen, err := s.generation(space)
		if err != nil {
			return e, err
		}
		at := name(space.Owner(), gen, key)
		var old *kv.Entry
		was, err := s.client.Get(at)
		switch {
		case err == nil:
			if old, err = read(key, was, nowMS); err != nil {
				return e, err
			}
		case !errors.Is(err, memcache.ErrCacheMiss):
			return e, classify(err)
		}
		if e, err = decide(old); err != nil {
			return e, err
		}
		next, err := item(at, &e)
		if err != nil {
			return e, err
		}
		if was == nil {
			err = s.client.Add(next)
		} else {
			was.Value, was.Expiration = next.Value, next.Expiration
			err = s.client.CompareAndSwap(was)
		}
		switch {
		case err == nil:
			return e, nil
		case !errors.Is(err, memcache.ErrNotStored) && !errors.Is(err, memcache.ErrCASConflict) && !errors.Is(err, memcache.ErrCacheMiss):
			return e, classify(err)
		}
	}
	return e, fault.New(fault.Unavailable, "the key is being changed by too many calls at once; try again")
}

// GetKeys implements kv.Store.
func (s *Store) GetKeys(ctx context.Context, space kv.Space, keys []string, nowMS int64) (found []kv.Entry, err error) {
	if ctx.Err() != nil {
		return nil, fault.Ended(ctx)
	}
	gen, err := s.generation(space)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = name(space.Owner(), gen, key)
	}
	items, err := s.client.GetMulti(names)
	if err != nil {
		return nil, classify(err)
	}
	for i, key := range keys {
		if items[names[i]] == nil {
			continue
		}
		e, err := read(key, items[names[i]], nowMS)
		if err != nil {
			return nil, err
		}
		if e != nil {
			found = append(found, *e)
		}
	}
	return found, nil
}

// DeleteKey implements kv.Store.
func (s *Store) DeleteKey(ctx context.Context, space kv.Space, key string, nowMS int64) (bool, error) {
	found, err := s.GetKeys(ctx, space, []string{key}, nowMS)
	if err != nil {
		return false, err
	}
	gen, err := s.generation(space)
	if err != nil {
		return false, err
	}
	err = s.client.Delete(name(space.Owner(), gen, key))
	if errors.Is(err, memcache.ErrCacheMiss) {
		return false, nil
	}
	return len(found) > 0, classify(err)
}

// ListKeys fails with fault.Unsupported.
func (s *Store) ListKeys(context.Context, kv.Space, string, int, int64) (kv.Page, error) {
	return kv.Page{}, fault.New(fault.Unsupported, "the provider memcached cannot list or search keys")
}

// Spaces fails with fault.Unsupported.
func (s *Store) Spaces(context.Context, string) ([]kv.Space, error) {
	return nil, fault.New(fault.Unsupported, "the provider memcached cannot list namespaces")
}

// ClearKeys deletes all entries of a space, or, without a name, of all spaces of the project. How
// many there were is not known: it returns 0.
func (s *Store) ClearKeys(_ context.Context, space kv.Space, _ int64) (int, error) {
	err := s.client.Set(&memcache.Item{Key: name("generation", space.Owner()), Value: strconv.AppendInt(nil, time.Now().UnixNano(), 10)})
	return 0, classify(err)
}

// SweepKeys does nothing: memcached drops what has expired by itself.
func (s *Store) SweepKeys(context.Context, int64) (int, error) { return 0, nil }
