// Package handlers serves Heardlog's HTTP API: the URL map, the wire types and the HTTP status of
// each error. New returns the whole map, which routes.go shows on one page.
//
// Each noun has a group of handlers, a small struct with what it needs, in a file of the noun's
// name. A handler decodes the request, calls one service, encodes the answer and returns its error;
// handle alone turns errors into answers. Each answer is checked against openapi.yaml by the tests.
package handlers

import (
	"context"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/tail"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/archive"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/platform"
	"github.com/heardlog/heardlog/webhook"
)

// Config holds what the handlers call and their settings.
type Config struct {
	Memory        *memory.Service
	Context       *memctx.Service // of Memory; nil makes one
	Answers       *turn.Runner
	Conversations kv.Conversations
	Working       *kv.Working
	Webhooks      *webhook.Service
	Access        *Access
	Log           zerolog.Logger
	Metrics       *Metrics
	// Ready returns why the server cannot take work, nil if it can.
	Ready       func(ctx context.Context) error
	MetricsPage http.Handler     // serves /metrics
	Spec        []byte           // openapi.yaml
	MaxBody     int64            // bytes
	BodyTimeout time.Duration    // time for a client to send a body; 0 = DefaultBodyTimeout
	Now         func() time.Time // nil = time.Now
	RateLimit   int              // requests a second of one project; 0 = no limit
	// DefaultLLM is set if the server has an LLM for agents without an llm.url.
	DefaultLLM bool
	// AutoJoin creates an agent for an unknown id or, if id is "", for an unknown key, and returns
	// its ID. nil refuses such calls.
	AutoJoin func(ctx context.Context, project, id string, call memory.Call) (string, error)
	// Platforms finds the agent of a call by the keys that platforms send; nil = the built-in ones.
	Platforms *platform.Set
	// NoKey says what happens to a chat completion that names neither an agent nor a call:
	// NoKeyRefuse, the default, or NoKeyWords.
	NoKey string
	// PassThrough lists the paths under /v1 that are sent on to the upstream: a path such as
	// /v1/files, a path and all below it (/v1/files/*), or * for all. Our own paths never are.
	PassThrough []string
	// Ingest holds the secrets that sign Agora's notifications, by project. Without any, no
	// notifications are taken.
	Ingest map[string][]secret.String
	Tail   tail.Limits
	// Done is closed when the server begins to stop; live tails end then.
	Done <-chan struct{}
}

func (c Config) withDefaults() Config {
	if c.BodyTimeout == 0 {
		c.BodyTimeout = DefaultBodyTimeout
	}
	if c.Context == nil && c.Memory != nil {
		c.Context = memctx.New(c.Memory)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Platforms == nil {
		c.Platforms, _ = platform.NewSet(nil) // fails only for profiles of the caller's
	}
	if c.NoKey == "" {
		c.NoKey = NoKeyRefuse
	}
	return c
}

// api holds the groups of handlers.
type api struct {
	agents        agentAPI
	speech        speechAPI
	messages      messageAPI
	context       contextAPI
	models        modelAPI
	items         itemAPI
	working       workingAPI
	conversations conversationAPI
	evidence      evidenceAPI
	tails         tailAPI
	webhooks      webhookAPI
	notices       *noticeAPI
	proxy         *proxyAPI
	erase         eraseAPI
	ops           opsAPI
}

// New returns the whole URL map.
func New(c Config) *chi.Mux {
	c = c.withDefaults()
	b := bodies{limit: c.MaxBody, validate: newValidator()}
	hub := tail.New(tail.Config{
		Memory: c.Memory, Encode: encodeLedgerEntry, Limits: c.Tail, Metrics: c.Metrics.tail, Log: c.Log, Now: c.Now, Done: c.Done,
	})
	a := &api{
		agents:        agentAPI{bodies: b, memory: c.Memory, now: c.Now, defaultLLM: c.DefaultLLM},
		speech:        speechAPI{bodies: b, memory: c.Memory, turns: c.Answers},
		messages:      messageAPI{bodies: b, memory: c.Memory, now: c.Now, historyBytes: c.Metrics.history},
		context:       contextAPI{bodies: b, memory: c.Context, now: c.Now},
		models:        modelAPI{bodies: b},
		items:         itemAPI{bodies: b, memory: c.Memory, now: c.Now},
		working:       workingAPI{bodies: b, working: c.Working},
		conversations: conversationAPI{bodies: b, conversations: c.Conversations},
		evidence:      evidenceAPI{bodies: b, memory: c.Memory, platforms: c.Platforms, events: c.Metrics.evidence},
		tails:         tailAPI{hub: hub},
		webhooks:      webhookAPI{bodies: b, webhooks: c.Webhooks, now: c.Now},
		notices: &noticeAPI{
			bodies: b, archive: archive.Service{Memory: c.Memory}, secrets: c.Ingest, defaultProject: c.Access.DefaultProject, log: c.Log,
			events: c.Metrics.ingest, leftOut: c.Metrics.ingestLeft,
		},
		proxy: &proxyAPI{
			bodies: b, memory: c.Memory, turns: c.Answers, platforms: c.Platforms, noKey: c.NoKey, autoJoin: c.AutoJoin, allowed: c.PassThrough,
		},
		erase: eraseAPI{memory: c.Memory, conversations: c.Conversations, webhooks: c.Webhooks, now: c.Now},
		ops:   opsAPI{ready: c.Ready, openapi: c.Spec, metricsPage: c.MetricsPage},
	}
	return a.routes(c)
}
