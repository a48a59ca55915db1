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

	"github.com/heardlog/heardlog/job"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/erasure"
	"github.com/heardlog/heardlog/internal/quota"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/sockets"
	"github.com/heardlog/heardlog/internal/tail"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/longterm/caller"
	"github.com/heardlog/heardlog/longterm/facts"
	"github.com/heardlog/heardlog/longterm/knowledge"
	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/longterm/remember"
	"github.com/heardlog/heardlog/longterm/replay"
	"github.com/heardlog/heardlog/longterm/report"
	"github.com/heardlog/heardlog/longterm/vector"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/hold"
	"github.com/heardlog/heardlog/memory/ingest"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/ossa/checkpoint"
	"github.com/heardlog/heardlog/ossa/model"
	"github.com/heardlog/heardlog/ossa/pattern"
	"github.com/heardlog/heardlog/platform"
	"github.com/heardlog/heardlog/webhook"
)

// Config holds what the handlers call and their settings.
type Config struct {
	Memory  *agents.Service
	Context *memctx.Service // of Memory; nil makes one
	Items   memories.Service
	Recall  *recall.Service
	Facts   *facts.Service
	Holds   *hold.Service
	Callers *caller.Service
	// Remember shows what calls are given; nil shows nothing. RememberDefault are the settings of
	// joins that have none.
	Remember        *remember.Service
	RememberDefault memory.Remember
	Answers         *turn.Runner
	Conversations   kv.Conversations
	Erasures        *erasure.Service
	KV              *kv.Service
	Vectors         *vector.Service
	Checkpoints     *checkpoint.Service
	Models          *model.Service // nil: there are none, and none can be stored
	Knowledge       *knowledge.Service
	Patterns        *pattern.Service
	Reports         *report.Service
	Replays         *replay.Service
	// Jobs returns the jobs of a project in a state; see job.Runner.List.
	Jobs     func(project string, state job.State) []job.Info
	Webhooks *webhook.Service
	Access   *Access
	UI       bool          // serve the pages of package page
	Origins  []string      // of web pages that may call, or "*" alone for any; package config checks them
	Audit    *access.Audit // records administrative acts; nil = none
	Log      zerolog.Logger
	Metrics  *Metrics
	// Joined is called after each join, and fails it; nil does nothing.
	Joined func(ctx context.Context, a *memory.Agent) error
	// CallSummary returns the summary of a call that has ended, "" for none, and when it was made
	// (Unix ms); nil: there are none.
	CallSummary func(ctx context.Context, project, id string) (text string, createdMS int64, err error)
	// Durable begins a call that may acknowledge what it only reads; prove then tells whether that
	// is as safe as what was written. nil: it always is.
	Durable func(ctx context.Context) (prove func() error)
	// Ready returns why the server cannot take work, nil if it can.
	Ready       func(ctx context.Context) error
	MetricsPage http.Handler     // serves /metrics
	Spec        []byte           // openapi.yaml
	MaxBody     int64            // bytes
	BodyTimeout time.Duration    // time for a client to send a body; 0 = DefaultBodyTimeout
	Now         func() time.Time // nil = time.Now
	Quota       *quota.Keeper    // what projects use; nil = no limits
	MaxAgents   int              // live agents of one project; 0 = no limit
	Realtime    Realtime
	// DefaultLLM is set if the server has an LLM for agents without an llm.url.
	DefaultLLM bool
	// AutoJoin creates an agent for an unknown id or, if id is "", for an unknown key, and returns
	// its ID. nil refuses such calls.
	AutoJoin func(ctx context.Context, project, id string, call memory.Call, labels map[string]string) (string, error)
	// Expect has turns of an agent that is not known go on as if AutoJoin had created it, if the
	// store is away, as err shows. It is created when the store is back. nil never does.
	Expect func(project, id string, labels map[string]string, err error) bool
	// Platforms finds the agent of a call by the keys that platforms send; nil = the built-in ones.
	Platforms *platform.Set
	// NoKey says what happens to a chat completion that names neither an agent nor a call:
	// NoKeyRefuse, the default, NoKeyWords or, with AutoJoin, NoKeyStart.
	NoKey string
	// PassThrough lists the paths under /v1 that are sent on to the upstream: a path such as
	// /v1/files, a path and all below it (/v1/files/*), or * for all. Our own paths never are.
	PassThrough []string
	// Ingest holds the secrets that sign Agora's notifications, by project, and those that sign the
	// webhooks of other platforms, by project/platform. Without any, none are taken.
	Ingest map[string][]secret.String
	// PublicURL is the address at which others call this server; "" = not known.
	PublicURL string
	Tail      tail.Limits
	// Sockets keeps account of WebSockets; nil = one without limits that is never closed.
	Sockets *sockets.Account
	// Done is closed when the server begins to stop; live tails end then.
	Done <-chan struct{}
}

func (c Config) withDefaults() Config {
	if c.BodyTimeout == 0 {
		c.BodyTimeout = DefaultBodyTimeout
	}
	if c.Memory == nil { // some tests need none
		c.Memory = &agents.Service{}
	} else if c.Context == nil {
		c.Context = memctx.New(c.Memory)
	}
	if c.Recall == nil {
		c.Recall = recall.NewService(recall.Config{MaxMB: 1})
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Joined == nil {
		c.Joined = func(context.Context, *memory.Agent) error { return nil }
	}
	if c.Models == nil {
		c.Models = &model.Service{}
	}
	if c.Quota == nil {
		none := func(context.Context) ([]memory.Usage, error) { return nil, nil }
		c.Quota = quota.New(quota.Config{Count: none, Now: c.Now})
	}
	if c.Platforms == nil {
		c.Platforms, _ = platform.NewSet(nil) // fails only for profiles of the caller's
	}
	if c.Sockets == nil {
		c.Sockets = sockets.New(0, 0)
	}
	if c.NoKey == "" {
		c.NoKey = NoKeyRefuse
	}
	return c
}

// api holds the groups of handlers.
type api struct {
	bodies
	jobs          func(project string, state job.State) []job.Info
	agents        agentAPI
	speech        speechAPI
	messages      messageAPI
	context       contextAPI
	models        modelAPI
	items         itemAPI
	recall        recallAPI
	facts         factAPI
	callers       callerAPI
	mcp           *mcpAPI
	kv            kvAPI
	checkpoints   checkpointAPI
	vectors       vectorAPI
	knowledge     knowledgeAPI
	patterns      patternAPI
	conversations openAIConversationAPI
	saved         conversationAPI
	evidence      evidenceAPI
	tails         tailAPI
	webhooks      webhookAPI
	notices       *noticeAPI
	proxy         *proxyAPI
	socket        *socketAPI
	erase         eraseAPI
	holds         holdAPI
	keys          keyAPI
	signIn        signInAPI
	audit         auditAPI
	usage         usageAPI
	overview      overviewAPI
	reports       reportAPI
	replays       replayAPI
	realtime      *realtimeAPI
	ops           opsAPI
}

// New returns the whole URL map.
func New(c Config) *chi.Mux {
	c = c.withDefaults()
	b := bodies{limit: c.MaxBody, large: &largeTurns{byProject: map[string]*projectTurns{}}, validate: newValidator()}
	hub := tail.New(tail.Config{
		Memory: c.Memory, Encode: encodeLedgerEntry, Limits: c.Tail, Metrics: c.Metrics.tail, Log: c.Log, Now: c.Now, Done: c.Done,
	})
	proxy := &proxyAPI{
		bodies: b, memory: c.Memory, items: c.Items, turns: c.Answers, platforms: c.Platforms, noKey: c.NoKey, calls: newUnnamedCalls(), autoJoin: c.AutoJoin, expect: c.Expect, allowed: c.PassThrough, now: c.Now,
	}
	a := &api{
		bodies:      b,
		jobs:        c.Jobs,
		agents:      agentAPI{bodies: b, erasures: c.Erasures, memory: c.Memory, callers: c.Callers, recall: c.Recall, remember: c.Remember, models: c.Models, joined: c.Joined, remembers: c.RememberDefault, now: c.Now, defaultLLM: c.DefaultLLM, platforms: c.Platforms},
		speech:      speechAPI{bodies: b, memory: c.Memory, turns: c.Answers},
		messages:    messageAPI{bodies: b, memory: c.Memory, now: c.Now, historyBytes: c.Metrics.history},
		context:     contextAPI{bodies: b, remember: c.Remember, contexts: c.Context, levels: c.Memory.Policies, callSummary: c.CallSummary, now: c.Now},
		models:      modelAPI{bodies: b, models: c.Models},
		items:       itemAPI{bodies: b, items: c.Items, now: c.Now},
		recall:      recallAPI{bodies: b, recall: c.Recall, callers: c.Callers, facts: c.Facts, agents: c.Memory.Agents, now: c.Now},
		facts:       factAPI{bodies: b, facts: c.Facts, callers: c.Callers, now: c.Now},
		callers:     callerAPI{bodies: b, callers: c.Callers, now: c.Now},
		mcp:         newMCP(b, c.Origins),
		kv:          newKVAPI(b, c.KV, c.Memory),
		checkpoints: checkpointAPI{bodies: b, checkpoints: c.Checkpoints},
		vectors:     vectorAPI{bodies: b, vectors: c.Vectors, messages: c.Memory.Messages, now: c.Now},
		patterns:    patternAPI{bodies: b, patterns: c.Patterns, now: c.Now},
		knowledge:   knowledgeAPI{bodies: b, knowledge: c.Knowledge, now: c.Now},
		saved:       conversationAPI{bodies: b, messages: c.Memory.Messages, conversations: c.Conversations},
		tails:       tailAPI{hub: hub},
		webhooks:    webhookAPI{bodies: b, webhooks: c.Webhooks, now: c.Now},
		notices: &noticeAPI{
			bodies: b, archive: ingest.Service{Memory: c.Memory}, callers: c.Callers, secrets: c.Ingest, defaultProject: c.Access.DefaultProject, log: c.Log,
			publicURL: c.PublicURL, now: c.Now,
			events: c.Metrics.ingest, leftOut: c.Metrics.ingestLeft,
		},
		proxy:    proxy,
		socket:   &socketAPI{sockets: c.Sockets, origins: c.Origins, limit: c.MaxBody, now: c.Now},
		evidence: evidenceAPI{bodies: b, memory: c.Memory, platforms: c.Platforms, events: c.Metrics.evidence, byKey: proxy.agentByKey},
		erase:    eraseAPI{c.Erasures},
		holds:    holdAPI{bodies: b, holds: c.Holds, agents: c.Memory.Agents},
		usage:    usageAPI{quota: c.Quota, tails: hub, webhooks: c.Webhooks, maxAgents: c.MaxAgents},
		reports:  reportAPI{reports: c.Reports, now: c.Now},
		overview: overviewAPI{agents: c.Memory.Agents, webhooks: c.Webhooks, now: c.Now},
		audit:    auditAPI{audit: c.Audit, log: c.Log},
		keys:     keyAPI{bodies: b, access: c.Access},
		signIn:   signInAPI{access: c.Access, log: c.Log},
		ops:      opsAPI{ready: c.Ready, checking: make(chan struct{}, 1), openapi: c.Spec, metricsPage: c.MetricsPage},
	}
	a.realtime = &realtimeAPI{bodies: b, Realtime: c.Realtime, proxy: proxy, access: c.Access, origins: c.Origins, now: c.Now}
	a.conversations = openAIConversationAPI{proxy, a.agents}
	a.replays = replayAPI{bodies: b, replays: c.Replays, agents: a.agents}
	return a.routes(c)
}
