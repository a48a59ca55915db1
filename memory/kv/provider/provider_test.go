package provider_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/kv/kvtest"
	"github.com/heardlog/heardlog/memory/kv/provider"
)

var at = kv.Space{Project: "p", Name: "n"}

// log notes hooks in their order, each once in a row.
type log struct {
	mu    sync.Mutex
	names []string
	back  chan struct{}
}

func (l *log) note(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.names); n == 0 || l.names[n-1] != name {
		l.names = append(l.names, name)
	}
	if name == "restored" {
		close(l.back)
	}
}

func (l *log) hooks() provider.Hooks {
	return provider.Hooks{
		OnInit: func() { l.note("init") }, OnShutdown: func() { l.note("shutdown") }, OnError: func(error) { l.note("error") },
		OnConnectionLost: func(error) { l.note("lost") }, OnConnectionRestored: func() { l.note("restored") },
	}
}

// returns starts the server and waits until the provider has found it.
func (l *log) returns(t *testing.T, server *kvtest.Server) {
	t.Helper()
	server.Start(t)
	select {
	case <-l.back:
	case <-time.After(20 * time.Second):
		t.Fatal("the server is not found")
	}
}

// TestHooks: when the server is killed and started again, each hook is called, in order, and what
// was acknowledged is still there.
func TestHooks(t *testing.T) {
	t.Parallel()
	server := kvtest.StartRedis(t)
	l := &log{back: make(chan struct{})}
	p, err := provider.Open(t.Context(), provider.Config{
		Provider: "redis", Endpoint: "redis://" + server.Addr + "/0", PoolSize: 1, Timeout: 5 * time.Second, Hooks: l.hooks(),
		Retry: provider.Retry{MaxAttempts: 2, Backoff: "constant", InitialDelay: 10 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	e := kv.Entry{Key: "k", Value: []byte("1"), UpdatedMS: 1, ExpiresMS: kv.Never}
	if err := kv.Put(t.Context(), p, at, e, kv.Limit{}, 1); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if err := kv.Put(t.Context(), p, at, e, kv.Limit{}, 1); !fault.Is(err, fault.Unavailable) {
		t.Errorf("without the server: %v", err)
	}
	l.returns(t, server)
	got, err := kv.Get(t.Context(), p, at, "k", 1)
	if err != nil || string(got.Value) != "1" {
		t.Errorf("%+v, %v", got, err)
	}
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	// Errors may follow the loss, until the server is back.
	names := strings.ReplaceAll(strings.Join(l.names, " "), "lost error ", "lost ")
	if d := cmp.Diff("init error lost restored shutdown", names); d != "" {
		t.Error(d)
	}
}

// TestOpenRefuses: a connection that cannot work is refused with the field at fault, and no secret.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		c    provider.Config
		want string
	}{
		"no endpoint":      {provider.Config{Provider: "redis"}, "connection.endpoint"},
		"no URL":           {provider.Config{Provider: "redis", Endpoint: "redis://%"}, "connection.endpoint"},
		"no address":       {provider.Config{Provider: "memcached", Endpoint: "there"}, "connection.endpoint"},
		"another provider": {provider.Config{Provider: "dynamodb", Endpoint: "127.0.0.1:1"}, "provider: must be"},
		"no certificate":   {provider.Config{Provider: "redis", Endpoint: "127.0.0.1:1", TLS: provider.TLS{Enabled: true, CA: []byte("x")}}, "ssl.ca_cert_ref"},
		"a password":       {provider.Config{Provider: "memcached", Endpoint: "127.0.0.1:1", Credentials: "hunter2"}, "credentials_ref"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := provider.Open(t.Context(), tt.c)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v, %v; want %q", p, err, tt.want)
			}
		})
	}
}

// TestAwayAtStart: a server that cannot be reached is opened all the same, and used once it is
// there.
func TestAwayAtStart(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]*kvtest.Server{"redis": kvtest.StartRedis(t), "memcached": kvtest.StartMemcached(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server.Kill()
			l := &log{back: make(chan struct{})}
			p, err := provider.Open(t.Context(), provider.Config{
				Provider: name, Endpoint: server.Addr, Timeout: 5 * time.Second, Hooks: l.hooks(),
				Retry: provider.Retry{Backoff: "constant", InitialDelay: 10 * time.Millisecond},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Close() })
			go func() { _ = p.Run(t.Context()) }()
			e := kv.Entry{Key: "k", Value: []byte("1"), UpdatedMS: 1, ExpiresMS: kv.Never}
			if err := kv.Put(t.Context(), p, at, e, kv.Limit{}, 1); !fault.Is(err, fault.Unavailable) {
				t.Errorf("without the server: %v", err)
			}
			l.returns(t, server)
			if err := kv.Put(t.Context(), p, at, e, kv.Limit{}, 1); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSecretInError: a server that repeats the password in its refusal does not bring it into an
// error or a hook.
func TestSecretInError(t *testing.T) {
	t.Parallel()
	const password = "correct-horse"
	server := kvtest.StartRedis(t, "--rename-command", "HELLO", "HELLO2", "--rename-command", "AUTH", "AUTH2")
	for name, c := range map[string]provider.Config{
		"credentials": {Endpoint: server.Addr, Credentials: password},
		"with a user": {Endpoint: server.Addr, Credentials: "ann:" + password},
		"in the URL":  {Endpoint: "redis://ann:" + password + "@" + server.Addr},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.Provider = provider.Redis
			_, err := provider.Open(t.Context(), c)
			if err == nil || strings.Contains(err.Error(), password) || !strings.Contains(err.Error(), secret.Mask) {
				t.Errorf("%v; want a refusal with %s in it", err, secret.Mask)
			}
		})
	}
}
