package app

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/kv/provider"
	"github.com/heardlog/heardlog/ossa"
	"github.com/heardlog/heardlog/ossa/model"
	"github.com/heardlog/heardlog/webhook"
)

// shortTerm is what a memory model says about the server that keeps keys and values.
type shortTerm struct {
	Enabled    bool   `json:"enabled"`
	Provider   string `json:"provider"`
	Connection struct {
		Endpoint       string `json:"endpoint"`
		CredentialsRef string `json:"credentials_ref"`
		PoolSize       int    `json:"pool_size"`
		TimeoutSeconds int    `json:"timeout_seconds"`
		Retry          struct {
			MaxAttempts    int    `json:"max_attempts"`
			Backoff        string `json:"backoff"`
			InitialDelayMS int    `json:"initial_delay_ms"`
			MaxDelayMS     int    `json:"max_delay_ms"`
		} `json:"retry_policy"`
		SSL struct {
			Enabled       bool   `json:"enabled"`
			Verify        bool   `json:"verify"`
			CACertRef     string `json:"ca_cert_ref"`
			ClientCertRef string `json:"client_cert_ref"`
		} `json:"ssl"`
	} `json:"connection"`
}

// readShortTerm returns what the server's own model says, with the defaults of the schema. It
// reports false if keys and values stay in the server's store.
func readShortTerm(m *model.Model) (s shortTerm, ok bool) {
	if m == nil {
		return s, false
	}
	b, err := json.Marshal(m.Report.Effective["short_term"])
	if err != nil || json.Unmarshal(b, &s) != nil {
		return s, false
	}
	return s, s.Enabled && !provider.Embedded(s.Provider) && s.Connection.Endpoint != ""
}

// externalKV returns the provider that keeps keys and values, "" for the server's own store.
func externalKV(m *model.Model) string {
	s, ok := readShortTerm(m)
	if !ok {
		return ""
	}
	return s.Provider
}

// newKV creates the service of keys and values, on the server that the operator's memory model
// names, or on the store.
func (a *App) newKV(ctx context.Context, reg prometheus.Registerer) error {
	evicted := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "heardlog_kv_evicted_total", Help: "Keys that garbage collection has evicted, by strategy.",
	}, []string{"strategy"})
	a.kv = &kv.Service{
		Store: a.store, Agents: a.store, MaxMB: a.cfg.WorkingMB, Quota: a.quota, Now: a.now, Held: a.holds.CheckAgent,
		Evicted: func(strategy string, keys int) { evicted.WithLabelValues(strategy).Add(float64(keys)) },
	}
	a.onAgentErased(a.kv.ForgetAgent)
	if a.models.Default != nil {
		a.kv.GC = a.models.Default.GC()
	}
	a.hookQueue = make(chan webhook.KVProvider, 64)
	a.runs("hooks", a.sendHooks)
	s, external := readShortTerm(a.models.Default)
	move, err := readMigration(a.models.Default)
	if err != nil {
		return err
	}
	if external {
		if a.provider, err = a.openProvider(ctx, &s, reg); err != nil {
			return err
		}
		a.runs("provider of keys", a.provider.Run)
		a.closes(a.closeProvider)
		a.kv.Store, a.kv.External = a.provider, true
	}
	if move.Enabled {
		return a.migrateKV(ctx, &s, move, reg)
	}
	return a.withoutMigration(ctx, external)
}

// openProvider connects to the server of a memory model.
func (a *App) openProvider(ctx context.Context, s *shortTerm, reg prometheus.Registerer) (p *provider.Provider, err error) {
	if s.Connection.Endpoint, err = ossa.Expand(s.Connection.Endpoint, a.models.Default.Variables); err != nil {
		return nil, fmt.Errorf("HEARDLOG_MEMORY_MODEL: short_term.connection.endpoint: %w", err)
	}
	c, err := a.kvConfig(s)
	if err == nil {
		c.Hooks = a.kvHooks(s.Provider, reg)
		p, err = provider.Open(ctx, c)
	}
	if err != nil {
		return nil, fmt.Errorf("HEARDLOG_MEMORY_MODEL: short_term.%w", err)
	}
	return p, nil
}

// kvConfig returns the connection of a model, with the secrets that it refers to. A URL that begins
// with redis:// is not encrypted unless the model says so.
func (a *App) kvConfig(s *shortTerm) (c provider.Config, err error) {
	in := &s.Connection
	c = provider.Config{
		Provider: s.Provider, Endpoint: in.Endpoint, PoolSize: in.PoolSize, Timeout: time.Duration(in.TimeoutSeconds) * time.Second,
		Retry: provider.Retry{
			MaxAttempts: in.Retry.MaxAttempts, Backoff: in.Retry.Backoff,
			InitialDelay: time.Duration(in.Retry.InitialDelayMS) * time.Millisecond, MaxDelay: time.Duration(in.Retry.MaxDelayMS) * time.Millisecond,
		},
		TLS: provider.TLS{Enabled: in.SSL.Enabled && !strings.HasPrefix(in.Endpoint, "redis://"), SkipVerify: !in.SSL.Verify},
	}
	refs := []struct {
		field, name string
		set         func(string)
	}{
		{"credentials_ref", in.CredentialsRef, func(v string) { c.Credentials = secret.String(v) }},
		{"ssl.ca_cert_ref", in.SSL.CACertRef, func(v string) { c.TLS.CA = []byte(v) }},
		{"ssl.client_cert_ref", in.SSL.ClientCertRef, func(v string) { c.TLS.Cert, c.TLS.Key = []byte(v), []byte(v) }},
	}
	for _, ref := range refs {
		switch value := os.Getenv(ref.name); {
		case ref.name == "":
		case !allows(a.cfg, ref.name):
			return c, fmt.Errorf("connection.%s: %q is not listed in HEARDLOG_CREDENTIAL_REFS", ref.field, ref.name)
		case value == "":
			return c, fmt.Errorf("connection.%s: the environment variable %s is empty", ref.field, ref.name)
		default:
			ref.set(value)
		}
	}
	return c, nil
}

// allows reports whether the operator's memory model may use an environment variable as a secret.
func allows(c config.Config, name string) bool {
	return slices.Contains(strings.Split(c.CredentialRefs, ","), name)
}
