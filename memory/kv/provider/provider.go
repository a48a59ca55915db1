// Package provider opens the servers that may keep keys and values in place of the server's own
// store: Redis, Valkey and memcached. A Provider is a kv.Store that retries, watches the
// connection, and calls Hooks.
package provider

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/kv/memcachedkv"
	"github.com/heardlog/heardlog/memory/kv/rediskv"
)

// Names are the providers that Open takes, as OSSA documents name them.
const (
	Redis     = "redis" // Valkey too
	Memcached = "memcached"
)

// Embedded reports whether a provider is the server's own store, which Open does not take.
func Embedded(name string) bool {
	return slices.Contains([]string{"", "in_memory", "local_cache", "sqlite", "postgres"}, name)
}

// Config is a provider with its connection.
type Config struct {
	Provider    string        // Redis or Memcached
	Endpoint    string        // host:port, or the URL of a Redis server
	Credentials secret.String // user:password or password; "" for none
	PoolSize    int           // connections at most; 0 = 10
	Timeout     time.Duration // of one try of a call; 0 = 30 s
	Retry       Retry
	TLS         TLS
	Hooks       Hooks
}

// Retry is when a call that failed is tried again. Updates of a value without a kv.Once are tried
// once: whether a lost one was stored is not known.
type Retry struct {
	MaxAttempts  int           // 0 = 3
	Backoff      string        // exponential, which is the default, linear or constant
	InitialDelay time.Duration // 0 = 100 ms
	MaxDelay     time.Duration // 0 = 10 s
}

// wait returns how long to wait after a number of tries.
func (r *Retry) wait(tries int) time.Duration {
	d := r.InitialDelay
	switch r.Backoff {
	case "constant":
	case "linear":
		d *= time.Duration(tries)
	default:
		d <<= min(tries-1, 20)
	}
	return min(d, r.MaxDelay)
}

// TLS is how a connection is encrypted.
type TLS struct {
	Enabled    bool
	SkipVerify bool   // accept any certificate
	CA         []byte // PEM of the authorities to trust; nil = those of the system
	Cert, Key  []byte // PEM of the client's certificate; nil for none
}

func (t *TLS) config() (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.SkipVerify}
	if len(t.CA) > 0 {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(t.CA) {
			return nil, errors.New("ssl.ca_cert_ref: holds no certificate in PEM")
		}
	}
	if len(t.Cert) > 0 {
		pair, err := tls.X509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, errors.New("ssl.client_cert_ref: holds no certificate and key in PEM")
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Hooks are called when something happens to a provider, one at a time; nil ones are left out. They
// must be quick. A lost connection is reported once, until it is restored.
type Hooks struct {
	OnInit               func()
	OnShutdown           func()
	OnError              func(error) // a try of a call failed
	OnConnectionLost     func(error)
	OnConnectionRestored func()
}

func (h Hooks) withDefaults() Hooks {
	for _, f := range []*func(){&h.OnInit, &h.OnShutdown, &h.OnConnectionRestored} {
		if *f == nil {
			*f = func() {}
		}
	}
	for _, f := range []*func(error){&h.OnError, &h.OnConnectionLost} {
		if *f == nil {
			*f = func(error) {}
		}
	}
	return h
}

// store is what Provider needs of a driver.
type store interface {
	kv.Store
	Ping(ctx context.Context) error
	Close() error
}

// Provider is an open provider. Create it with Open, and run Run while it is used. Its methods are
// safe for concurrent use.
type Provider struct {
	cfg     Config
	connect func() (store, error)
	secrets secret.Set    // of the connection
	broke   chan struct{} // wakes Run

	store atomic.Pointer[store] // nil until the server is reached

	mu   sync.Mutex // guards lost, and the order of hooks
	lost bool
}

var _ kv.Store = (*Provider)(nil)

// Open connects to a provider. One that cannot be reached is lost, not refused: calls fail until
// Run finds it. Errors name the field of the document that is wrong, or say that the server refuses
// the connection. No error of a provider holds a secret of the connection, even if the server
// repeats it.
func Open(ctx context.Context, c Config) (*Provider, error) {
	if c.PoolSize == 0 {
		c.PoolSize = 10
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.Retry.MaxAttempts == 0 {
		c.Retry.MaxAttempts = 3
	}
	if c.Retry.InitialDelay == 0 {
		c.Retry.InitialDelay = 100 * time.Millisecond
	}
	if c.Retry.MaxDelay == 0 {
		c.Retry.MaxDelay = 10 * time.Second
	}
	c.Hooks = c.Hooks.withDefaults()
	if c.Endpoint == "" {
		return nil, errors.New("connection.endpoint: is required for the provider " + c.Provider)
	}
	encryption, err := c.TLS.config()
	if err != nil {
		return nil, err
	}
	user, password, both := strings.Cut(c.Credentials.Reveal(), ":")
	if !both {
		user, password = "", user
	}
	p := &Provider{
		cfg: c, broke: make(chan struct{}, 1),
		secrets: secret.NewSet(append(secret.InURL(c.Endpoint), c.Credentials.Reveal(), password)...),
	}
	switch c.Provider {
	case Redis:
		options := rediskv.Options{Address: c.Endpoint, Username: user, Password: password, Conns: c.PoolSize, Timeout: c.Timeout, TLS: encryption}
		p.connect = func() (store, error) { return opened(rediskv.Open(options)) }
	case Memcached:
		if password != "" {
			return nil, errors.New("connection.credentials_ref: the provider memcached takes no credentials")
		}
		options := memcachedkv.Options{Address: c.Endpoint, Conns: c.PoolSize, Timeout: c.Timeout, TLS: encryption}
		p.connect = func() (store, error) { return opened(memcachedkv.Open(options)) }
	default:
		return nil, errors.New("provider: must be redis or memcached, not " + c.Provider)
	}
	within, stop := context.WithTimeout(ctx, min(c.Timeout, startTimeout))
	defer stop()
	err = p.ping(within)
	switch {
	case err == nil:
	case away(err):
		p.failed(p.withoutSecrets(err))
		return p, nil
	case fault.Is(err, fault.Unavailable):
		return nil, fault.Wrap(fault.Unavailable, p.withoutSecrets(err), "connection: the provider "+c.Provider+" refuses it")
	default:
		return nil, fault.Wrap(fault.Invalid, p.withoutSecrets(err), "connection.endpoint: cannot be used")
	}
	c.Hooks.OnInit()
	return p, nil
}

// startTimeout is how long Open waits for an answer at most.
const startTimeout = 5 * time.Second

// opened drops the type of a driver, also of one that is nil.
func opened[S store](s S, err error) (store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// away reports whether a server could not be reached, as opposed to one that refuses.
func away(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || fault.Is(err, fault.Canceled)
}

// ping checks that the server answers, and makes the driver if there is none yet. Only Open and Run
// call it.
func (p *Provider) ping(ctx context.Context) error {
	if p.store.Load() == nil {
		s, err := p.connect()
		if err != nil {
			return err
		}
		p.store.Store(&s)
	}
	return (*p.store.Load()).Ping(ctx)
}

// errNever is the error of calls while the server has never been reached.
var errNever = fault.New(fault.Unavailable, "the key-value server has not been reached since the start")

// Close closes the connection.
func (p *Provider) Close() error {
	p.cfg.Hooks.OnShutdown()
	if s := p.store.Load(); s != nil {
		return (*s).Close()
	}
	return nil
}

// Run asks a lost server whether it is back, until ctx is done, and returns nil.
func (p *Provider) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.broke:
		}
		for tries := 1; p.isLost(); tries++ {
			wait := time.NewTimer(p.cfg.Retry.wait(tries))
			select {
			case <-ctx.Done():
				wait.Stop()
				return nil
			case <-wait.C:
			}
			_ = p.noted(ctx, p.ping)
		}
	}
}

func (p *Provider) isLost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// try makes one try of a call and notes whether the server answered.
func (p *Provider) try(ctx context.Context, call func(context.Context, store) error) error {
	s := p.store.Load()
	if s == nil {
		return errNever
	}
	return p.noted(ctx, func(ctx context.Context) error { return call(ctx, *s) })
}

// noted calls a function, and notes whether the server answered.
func (p *Provider) noted(ctx context.Context, call func(context.Context) error) error {
	within, stop := context.WithTimeout(ctx, p.cfg.Timeout)
	defer stop()
	err := p.withoutSecrets(call(within))
	if fault.Is(err, fault.Canceled) && ctx.Err() == nil {
		err = fault.Wrap(fault.Unavailable, err, "the key-value server did not answer in time")
	}
	switch {
	case fault.Is(err, fault.Unavailable):
		p.failed(err)
	case !fault.Is(err, fault.Canceled):
		p.answered()
	}
	return err
}

// withoutSecrets returns an error with the secrets of the connection removed from its text.
func (p *Provider) withoutSecrets(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	clean := string(p.secrets.Remove([]byte(text)))
	if clean == text {
		return err
	}
	return fault.Wrap(fault.CodeOf(err), errors.New(clean), "the key-value server refused the call")
}

func (p *Provider) failed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cfg.Hooks.OnError(err)
	if p.lost {
		return
	}
	p.lost = true
	p.cfg.Hooks.OnConnectionLost(err)
	select {
	case p.broke <- struct{}{}:
	default:
	}
}

func (p *Provider) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost {
		p.lost = false
		p.cfg.Hooks.OnConnectionRestored()
	}
}

// again makes tries of a call that may be repeated.
func (p *Provider) again(ctx context.Context, call func(context.Context, store) error) error {
	for tries := 1; ; tries++ {
		err := p.try(ctx, call)
		if !fault.Is(err, fault.Unavailable) || tries >= p.cfg.Retry.MaxAttempts {
			return err
		}
		wait := time.NewTimer(p.cfg.Retry.wait(tries))
		select {
		case <-ctx.Done():
			wait.Stop()
			return err
		case <-wait.C:
		}
	}
}

// PutKeys implements kv.Store.
func (p *Provider) PutKeys(ctx context.Context, s kv.Space, entries []kv.Entry, limit kv.Limit, nowMS int64) error {
	return p.again(ctx, func(ctx context.Context, in store) error { return in.PutKeys(ctx, s, entries, limit, nowMS) })
}

// UpdateKey implements kv.Store.
func (p *Provider) UpdateKey(ctx context.Context, s kv.Space, key string, once kv.Once, limit kv.Limit, nowMS int64, decide func(*kv.Entry) (kv.Entry, error)) (e kv.Entry, err error) {
	tries := p.try
	if once.ID != "" {
		tries = p.again
	}
	err = tries(ctx, func(ctx context.Context, in store) (err error) {
		e, err = in.UpdateKey(ctx, s, key, once, limit, nowMS, decide)
		return err
	})
	return e, err
}

// GetKeys implements kv.Store.
func (p *Provider) GetKeys(ctx context.Context, s kv.Space, keys []string, nowMS int64) (found []kv.Entry, err error) {
	err = p.again(ctx, func(ctx context.Context, in store) (err error) {
		found, err = in.GetKeys(ctx, s, keys, nowMS)
		return err
	})
	return found, err
}

// DeleteKey implements kv.Store.
func (p *Provider) DeleteKey(ctx context.Context, s kv.Space, key string, nowMS int64) (found bool, err error) {
	err = p.again(ctx, func(ctx context.Context, in store) (err error) {
		found, err = in.DeleteKey(ctx, s, key, nowMS)
		return err
	})
	return found, err
}

// ListKeys implements kv.Store.
func (p *Provider) ListKeys(ctx context.Context, s kv.Space, after string, limit int, nowMS int64) (page kv.Page, err error) {
	err = p.again(ctx, func(ctx context.Context, in store) (err error) {
		page, err = in.ListKeys(ctx, s, after, limit, nowMS)
		return err
	})
	return page, err
}

// Spaces implements kv.Store.
func (p *Provider) Spaces(ctx context.Context, project string) (spaces []kv.Space, err error) {
	err = p.again(ctx, func(ctx context.Context, in store) (err error) {
		spaces, err = in.Spaces(ctx, project)
		return err
	})
	return spaces, err
}

// ClearKeys implements kv.Store.
func (p *Provider) ClearKeys(ctx context.Context, s kv.Space, nowMS int64) (n int, err error) {
	err = p.again(ctx, func(ctx context.Context, in store) (err error) {
		n, err = in.ClearKeys(ctx, s, nowMS)
		return err
	})
	return n, err
}

// SweepKeys implements kv.Store.
func (p *Provider) SweepKeys(ctx context.Context, nowMS int64) (n int, err error) {
	err = p.try(ctx, func(ctx context.Context, in store) (err error) {
		n, err = in.SweepKeys(ctx, nowMS)
		return err
	})
	return n, err
}
