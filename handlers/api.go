// Package handlers is the HTTP face of Heardlog: the whole URL map, wire types, and the mapping of errors to statuses.
// A handler decodes, calls a service, encodes, and returns its error; handle alone answers and logs errors.
package handlers

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-playground/validator/v10"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/tail"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/platform"
	"github.com/heardlog/heardlog/webhook"
)

// Config is what an API is made of.
type Config struct {
	Memory  *memory.Service
	Answers *turn.Runner
	// Conversations are what clients save under names of their own.
	Conversations memory.Conversations
	// Webhooks are endpoints, and what was and is to be sent to them.
	Webhooks *webhook.Service
	Access   *Access
	Log      zerolog.Logger
	Metrics  *Metrics
	// Ready tells whether the server can take work; its error says why not.
	Ready func(ctx context.Context) error
	// MetricsPage serves /metrics.
	MetricsPage http.Handler
	Spec        []byte                 // openapi.yaml
	DocsPage    func() ([]byte, error) // HTML made of it
	MaxBody     int64                  // bytes
	BodyTimeout time.Duration          // how long a client may take to send its body; 0 = DefaultBodyTimeout
	// Now gives the time; nil is time.Now.
	Now       func() time.Time
	RateLimit int // requests a second and project; 0 = no limit
	// DefaultLLM tells that agents without an llm.url have one all the same.
	DefaultLLM bool
	// AutoJoin makes an agent of an unknown id, or, with id "", of an unknown key, and gives its id; nil refuses both.
	AutoJoin func(ctx context.Context, project, id string, call memory.Call) (string, error)
	// Platforms knows how platforms name their calls; nil knows those that are built in.
	Platforms *platform.Set
	// NoKey is what becomes of a chat completion that names neither an agent nor a call: NoKeyRefuse (also for "") or NoKeyWords.
	NoKey string
	// PassThrough lists the paths under /v1 that go through to the upstream: whole paths, such as /v1/embeddings, paths that end in /* for all beneath them,
	// or * for all. Our own paths are ours in any case.
	PassThrough []string
	// Ingest holds the secrets that sign Agora's notifications, by project; none takes no notifications.
	Ingest map[string][]secret.String
	// Tail bounds the live tails.
	Tail tail.Limits
	// Done is closed when the server begins to stop: endless streams end then.
	Done <-chan struct{}
}

// API serves the URL map. Make it with New.
type API struct {
	Config
	validate *validator.Validate
	tails    *tail.Hub
	own      map[string]bool // first names of our own paths under /v1; set by Router
	// unverified is how many bytes of notifications are being read of which nobody knows yet who sent them.
	unverified atomic.Int64
}

// New makes an API.
func New(c Config) *API {
	if c.BodyTimeout == 0 {
		c.BodyTimeout = DefaultBodyTimeout
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Platforms == nil {
		c.Platforms, _ = platform.NewSet(nil) // which has nothing to refuse
	}
	if c.NoKey == "" {
		c.NoKey = NoKeyRefuse
	}
	a := &API{Config: c, validate: newValidator()}
	a.tails = tail.New(tail.Config{
		Memory: c.Memory, Encode: appendLedgerEntry, Limits: c.Tail, Metrics: c.Metrics.tail, Log: c.Log, Now: c.Now, Done: c.Done,
	})
	return a
}
