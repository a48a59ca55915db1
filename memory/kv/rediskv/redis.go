// Package rediskv keeps keys and values in Redis or Valkey. Store is a kv.Store of namespaces; it
// knows no agents. What it acknowledges is as durable as the server's own settings make it.
package rediskv

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/kv"
)

// prefix begins every key. spaces is the sorted set of the names of all spaces.
const (
	prefix = "heardlog:kv:"
	spaces = "heardlog:kv-spaces"
)

// never is kv.Never as scripts see it: the largest number of 15 digits.
const never = 999_999_999_999_999

// dialTimeout bounds connecting; a server that is away must not hold up the start.
const dialTimeout = 5 * time.Second

// maxTries bounds how often UpdateKey decides again because others were quicker.
const maxTries = 100

// Options describes a server.
type Options struct {
	Address  string // host:port, or a redis:// or rediss:// URL
	Username string
	Password string
	Conns    int           // connections at most
	Timeout  time.Duration // of connecting, and of a call
	TLS      *tls.Config   // nil for none
}

// Store is a connection to a server. Its methods are safe for concurrent use.
type Store struct {
	client rueidis.Client
}

var _ kv.Store = (*Store)(nil)

// Open connects to a server. Close closes the connection.
func Open(o Options) (*Store, error) {
	opt := rueidis.ClientOption{InitAddress: []string{o.Address}}
	if strings.Contains(o.Address, "://") {
		var err error
		if opt, err = rueidis.ParseURL(o.Address); err != nil {
			return nil, errors.New("the endpoint must be host:port or redis://host:port/database")
		}
	}
	if o.Password != "" {
		opt.Username, opt.Password = o.Username, o.Password
	}
	if o.TLS != nil {
		opt.TLSConfig = o.TLS
	}
	opt.Dialer = net.Dialer{Timeout: min(o.Timeout, dialTimeout), KeepAlive: time.Second}
	opt.ConnWriteTimeout = o.Timeout
	opt.BlockingPoolSize = o.Conns
	// Calls share 2^n connections; a negative n stands for 0.
	if opt.PipelineMultiplex = bits.Len(uint(max(o.Conns, 1))) - 1; opt.PipelineMultiplex == 0 {
		opt.PipelineMultiplex = -1
	}
	opt.DisableCache, opt.DisableRetry, opt.ForceSingleClient = true, true, true
	client, err := rueidis.NewClient(opt)
	if err != nil {
		return nil, classify(err)
	}
	return &Store{client}, nil
}

// Close closes the connection.
func (s *Store) Close() error { s.client.Close(); return nil }

// Ping checks that the server answers.
func (s *Store) Ping(ctx context.Context) error {
	return classify(s.client.Do(ctx, s.client.B().Ping().Build()).Error())
}

// classify returns fault.Unavailable for whatever the client or the server fails with.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Canceled, err, "the call was given up")
	}
	return fault.Wrap(fault.Unavailable, err, "the key-value server does not answer")
}

// keysOf returns the keys of a space, which are in one slot of a cluster.
func keysOf(s kv.Space) []string {
	base := prefix + "{" + s.Owner() + "}:"
	return []string{base + "v", base + "m", base + "k", base + "x", base + "n"}
}

// markOf returns the key of a mark, which ends by itself.
func markOf(s kv.Space, once kv.Once) string {
	return prefix + "{" + s.Owner() + "}:call:" + once.ID
}

// digits returns a time as scripts compare it.
func digits(ms int64) string { return fmt.Sprintf("%015d", min(max(ms, 0), never)) }

// meta returns what m holds of an entry.
func meta(e *kv.Entry) string {
	return digits(e.UpdatedMS) + digits(e.ExpiresMS) + strconv.FormatInt(e.Size(), 10)
}

// readMeta reads what meta returns.
func readMeta(key, s string) (k kv.Key, err error) {
	if len(s) < 31 {
		return k, fault.New(fault.Internal, "the key-value server holds something else under its names")
	}
	k.Key = key
	for at, to := range map[string]*int64{s[:15]: &k.UpdatedMS, s[30:]: &k.Bytes} {
		if *to, err = strconv.ParseInt(at, 10, 64); err != nil {
			return k, fault.Wrap(fault.Internal, err, "the key-value server holds something else under its names")
		}
	}
	if k.ExpiresMS, err = strconv.ParseInt(s[15:30], 10, 64); err != nil {
		return k, fault.Wrap(fault.Internal, err, "the key-value server holds something else under its names")
	}
	if k.ExpiresMS == never {
		k.ExpiresMS = math.MaxInt64
	}
	return k, nil
}

// PutKeys implements kv.Store.
func (s *Store) PutKeys(ctx context.Context, space kv.Space, entries []kv.Entry, limit kv.Limit, nowMS int64) error {
	_, err := s.put(ctx, space, entries, nil, kv.Once{}, limit, nowMS)
	return err
}

// put stores entries. With was, it reports stale and stores nothing if the first one has changed,
// or if once is marked already.
func (s *Store) put(ctx context.Context, space kv.Space, entries []kv.Entry, was *string, once kv.Once, limit kv.Limit, nowMS int64) (stale bool, err error) {
	compare, old := "0", ""
	if was != nil {
		compare, old = "1", *was
	}
	keys, marked := keysOf(space), ""
	if once.ID != "" {
		m, err := once.Mark(&entries[0], nowMS)
		if err != nil {
			return false, err
		}
		keys, marked = append(keys, markOf(space, once)), rueidis.BinaryString(m.Value)
	}
	args := []string{digits(nowMS), strconv.Itoa(limit.Keys), strconv.FormatInt(limit.Bytes, 10), compare, old, marked, strconv.FormatInt(kv.OnceFor.Milliseconds(), 10)}
	for i := range entries {
		e, ends := &entries[i], "1"
		if e.ExpiresMS == kv.Never {
			ends = "0"
		}
		args = append(args, e.Key, meta(e), rueidis.BinaryString(e.Value), ends)
	}
	// Before, so that no space with keys is missing in the list.
	if err := s.note(ctx, space); err != nil {
		return false, err
	}
	out, err := put.Exec(ctx, s.client, keys, args).AsIntSlice()
	if err != nil {
		return false, classify(err)
	}
	switch out[0] {
	case 1:
		return false, limit.Check(space, out[1], out[2])
	case 2:
		return true, nil
	}
	if out[1] == 1 {
		err = s.note(ctx, space) // a sweep may have seen the space empty meanwhile
	}
	return false, err
}

// note adds a space to the list of spaces.
func (s *Store) note(ctx context.Context, space kv.Space) error {
	return classify(s.client.Do(ctx, s.client.B().Zadd().Key(spaces).ScoreMember().ScoreMember(0, space.Owner()).Build()).Error())
}

// UpdateKey implements kv.Store.
func (s *Store) UpdateKey(ctx context.Context, space kv.Space, key string, once kv.Once, limit kv.Limit, nowMS int64, decide func(*kv.Entry) (kv.Entry, error)) (kv.Entry, error) {
	for range maxTries {
		found, err := s.read(ctx, space, []string{key}, nowMS)
		if err != nil {
			return kv.Entry{}, err
		}
		var old *kv.Entry
		was := ""
		if len(found) > 0 {
			old, was = &found[0], meta(&found[0])
		}
		if once.ID != "" {
			m, err := s.client.Do(ctx, s.client.B().Get().Key(markOf(space, once)).Build()).AsBytes()
			if err == nil {
				return once.Repeat(key, m)
			}
			if !rueidis.IsRedisNil(err) {
				return kv.Entry{}, classify(err)
			}
		}
		e, err := decide(old)
		if err != nil {
			return e, err
		}
		if old != nil && e.UpdatedMS <= old.UpdatedMS {
			e.UpdatedMS = old.UpdatedMS + 1 // so that no two states of an entry look alike
		}
		stale, err := s.put(ctx, space, []kv.Entry{e}, &was, once, limit, nowMS)
		if err != nil || !stale {
			return e, err
		}
	}
	return kv.Entry{}, fault.New(fault.Unavailable, "the key is being changed by too many calls at once; try again")
}

// GetKeys implements kv.Store.
func (s *Store) GetKeys(ctx context.Context, space kv.Space, keys []string, nowMS int64) ([]kv.Entry, error) {
	return s.read(ctx, space, keys, nowMS)
}

func (s *Store) read(ctx context.Context, space kv.Space, keys []string, nowMS int64) (found []kv.Entry, err error) {
	out, err := get.Exec(ctx, s.client, keysOf(space), keys).ToArray()
	if err != nil {
		return nil, classify(err)
	}
	for i, key := range keys {
		if 2*i+1 >= len(out) || out[2*i].IsNil() {
			continue
		}
		m, err := out[2*i].ToString()
		if err != nil {
			return nil, classify(err)
		}
		k, err := readMeta(key, m)
		if err != nil {
			return nil, err
		}
		if k.ExpiresMS <= nowMS {
			continue
		}
		value, err := out[2*i+1].ToString()
		if err != nil {
			return nil, classify(err)
		}
		found = append(found, kv.Entry{Key: key, Value: []byte(value), UpdatedMS: k.UpdatedMS, ExpiresMS: k.ExpiresMS})
	}
	return found, nil
}

// DeleteKey implements kv.Store.
func (s *Store) DeleteKey(ctx context.Context, space kv.Space, key string, nowMS int64) (bool, error) {
	n, err := remove.Exec(ctx, s.client, keysOf(space), []string{digits(nowMS), key}).AsInt64()
	return n == 1, classify(err)
}

// ListKeys implements kv.Store.
func (s *Store) ListKeys(ctx context.Context, space kv.Space, after string, limit int, nowMS int64) (page kv.Page, err error) {
	out, err := list.Exec(ctx, s.client, keysOf(space), []string{digits(nowMS), after, strconv.Itoa(max(limit, 1))}).AsStrSlice()
	if err != nil {
		return page, classify(err)
	}
	if page.Total, err = strconv.Atoi(out[0]); err == nil {
		page.Bytes, err = strconv.ParseInt(out[1], 10, 64)
	}
	for i := 2; i+1 < len(out) && err == nil; i += 2 {
		var k kv.Key
		k, err = readMeta(out[i], out[i+1])
		page.Keys = append(page.Keys, k)
	}
	return page, err
}

// Spaces implements kv.Store.
func (s *Store) Spaces(ctx context.Context, project string) (list []kv.Space, err error) {
	from, to := "-", "+" // as Redis writes that there is no bound
	if project != "" {
		from, to = "["+project+"/", "("+project+"0" // 0 follows the slash
	}
	owners, err := s.client.Do(ctx, s.client.B().Zrangebylex().Key(spaces).Min(from).Max(to).Build()).AsStrSlice()
	if err != nil {
		return nil, classify(err)
	}
	for _, owner := range owners {
		project, name, _ := strings.Cut(owner, "/")
		space := kv.Space{Project: project, Name: name}
		n, err := s.client.Do(ctx, s.client.B().Zcard().Key(keysOf(space)[2]).Build()).AsInt64()
		if err != nil {
			return nil, classify(err)
		}
		if n > 0 {
			list = append(list, space)
		}
	}
	return list, nil
}

// ClearKeys implements kv.Store.
func (s *Store) ClearKeys(ctx context.Context, space kv.Space, nowMS int64) (int, error) {
	n, err := clearAll.Exec(ctx, s.client, keysOf(space), []string{digits(nowMS)}).AsInt64()
	return int(n), classify(err)
}

// SweepKeys implements kv.Store.
func (s *Store) SweepKeys(ctx context.Context, nowMS int64) (swept int, err error) {
	owners, err := s.client.Do(ctx, s.client.B().Zrangebylex().Key(spaces).Min("-").Max("+").Build()).AsStrSlice()
	if err != nil {
		return 0, classify(err)
	}
	for _, owner := range owners {
		project, name, _ := strings.Cut(owner, "/")
		at := kv.Space{Project: project, Name: name}
		for {
			out, err := sweep.Exec(ctx, s.client, keysOf(at), []string{digits(nowMS)}).AsIntSlice()
			if err != nil {
				return swept, classify(err)
			}
			swept += int(out[0])
			if out[0] > 0 {
				continue
			}
			if out[1] == 0 {
				err = classify(s.client.Do(ctx, s.client.B().Zrem().Key(spaces).Member(owner).Build()).Error())
			}
			if err != nil {
				return swept, err
			}
			break
		}
	}
	return swept, nil
}
