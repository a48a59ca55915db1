// Package app builds and runs a whole server. New opens the store, wires the packages and binds the
// port; Run serves until its context ends. It also runs the background work: beside it, only the
// stores and the live tail have long-lived goroutines.
package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/sync/errgroup"

	"github.com/heardlog/heardlog"
	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/handlers"
	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/backup"
	"github.com/heardlog/heardlog/internal/budget"
	"github.com/heardlog/heardlog/internal/erased"
	"github.com/heardlog/heardlog/internal/quota"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/sockets"
	"github.com/heardlog/heardlog/internal/summary"
	"github.com/heardlog/heardlog/internal/tail"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/longterm/caller"
	"github.com/heardlog/heardlog/longterm/facts"
	"github.com/heardlog/heardlog/longterm/knowledge"
	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/longterm/remember"
	"github.com/heardlog/heardlog/longterm/report"
	"github.com/heardlog/heardlog/longterm/vector"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/away"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/hold"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/kv/provider"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/memory/redact"
	"github.com/heardlog/heardlog/memory/retention"
	"github.com/heardlog/heardlog/memory/window/tokens"
	"github.com/heardlog/heardlog/ossa/checkpoint"
	"github.com/heardlog/heardlog/ossa/model"
	"github.com/heardlog/heardlog/ossa/pattern"
	"github.com/heardlog/heardlog/store/archive"
	"github.com/heardlog/heardlog/webhook"
)

// Limits of the HTTP server against slow clients.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
)

// App is a whole server. Create it with New and run it once with Run.
type App struct {
	cfg       config.Config
	log       zerolog.Logger
	store     backend
	now       func() time.Time // the clock of all deadlines
	ids       *ids
	quota     *quota.Keeper
	jobs      *job.Runner
	away      *away.Keeper // nil refuses turns while the store is away
	service   *agents.Service
	contexts  *memctx.Service
	kv        *kv.Service
	provider  *provider.Provider // of keys and values; nil for the store
	recall    *recall.Service
	vectors   *vector.Service
	models    *model.Service
	knowledge *knowledge.Service
	patterns  *pattern.Service
	saves     *checkpoint.Service
	retention *retention.Keeper
	backups   *backup.Schedule // nil makes none
	archive   *archive.Archive
	facts     *facts.Service
	remember  *remember.Service
	callers   *caller.Service
	holds     *hold.Service
	calls     *summary.Calls
	callsDone *job.AfterCall // has calls summarized
	hookQueue chan webhook.KVProvider
	wanted    *events
	answers   *turn.Runner
	sockets   *sockets.Account
	summaries *summary.Worker
	transport *http.Transport // for calls to LLMs
	listener  net.Listener
	server    *http.Server
	traces    *sdktrace.TracerProvider // nil without traces
	open      bool                     // there were no credentials at the start
	draining  atomic.Bool
	done      chan struct{} // closed when the server begins to stop

	parts            []part
	closers          []func(context.Context) error
	whenAgentEnded   []func(project, id string)
	whenAgentErased  []func(ctx context.Context, project, id string) error
	whenCallerErased []func(project, user string)
}

// New opens the store, wires the packages and binds the port, so settings that cannot work fail
// here. The caller must call Run, which releases everything.
func New(ctx context.Context, c config.Config, log zerolog.Logger) (_ *App, err error) {
	a := &App{cfg: c, log: log, done: make(chan struct{}), sockets: sockets.New(c.SocketLimit, c.ProjectSockets)}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close(ctx))
		}
	}()
	reg := prometheus.NewRegistry()
	observed := newMetrics(reg)
	if err := c.FetchDataKey(ctx); err != nil {
		return nil, err
	}
	a.cfg = c
	if a.archive, err = OpenArchive(c); err != nil {
		return nil, err
	}
	if a.store, a.now, err = openStore(ctx, c, a.archive, observed, log); err != nil {
		return nil, err
	}
	a.closes(func(context.Context) error { return a.store.Close() })
	acc, err := a.newAccess(ctx)
	if err != nil {
		return nil, err
	}
	if a.models, err = newModels(c, a.store, a.now); err != nil {
		return nil, err
	}
	a.logUnsupported()
	a.ids = &ids{now: a.now}
	a.holds = &hold.Service{Records: a.store, Now: a.now, NewID: a.ids.next, Names: func(ctx context.Context, project, name string) ([]string, error) {
		return a.callers.Names(ctx, project, name)
	}}
	if a.wanted, err = a.wantedEvents(ctx); err != nil {
		return nil, err
	}
	g := newGuard(c)
	a.quota = quota.New(quota.Config{
		Rate: quota.Rate(c.RateLimit), Limit: memory.Usage{Messages: c.MessageQuota, Bytes: c.MBQuota << 20}, Count: a.store.Usage, Now: a.now,
		OnError: func(err error) { a.problem("failed to count project usage", err) },
	})
	a.runs("quotas", a.quota.Run)
	observed.watchUsage(reg, a.quota)
	a.countUsage(ctx)
	a.jobs = job.New(job.Config{Store: a.store, Now: a.now, Log: log, Metrics: reg, Alone: c.StoreURL == ""})
	a.runs("jobs", a.jobs.Run)
	a.newSummaries(reg)
	if err = a.newAway(reg); err != nil {
		return nil, err
	}
	if a.away != nil {
		acc.Keys.Away = a.away.Failed
	}
	a.service = agents.NewService(agents.Config{
		Summaries: a.summarizer(), Ledger: a.store, Now: a.now, NewID: a.ids.next, Events: a.wanted, Observe: observed,
		Peers:   peersOf(a.store),
		Away:    a.awayOf(),
		Ended:   a.agentEnded,
		Changed: func(project, id string, seconds int) { a.saves.Changed(project, id, seconds) },
		Held:    func(ctx context.Context, h *memory.Head) error { return a.holds.CheckAgent(ctx, h) },
		Forget:  a.agentErased,
		Think: func(ctx context.Context, project, id, text string) error {
			return a.answers.Think(ctx, project, id, memory.Message{Role: memory.User, Source: memory.SourceSilence, Content: text})
		},
		Reworded: func(ctx context.Context, project, id string, was, is []memory.Message) ([]memory.Event, error) {
			return erased.Reworded(ctx, a.store, project, id, was, is)
		},
		OnError: a.problem,
		Reads:   budget.New(c.ReadMemory),
		Quota:   a.quota, MaxAgents: c.MaxAgents, DropIdle: c.OverMaxAgents == "drop_idle", MaxMessages: c.MessageLimit, Policy: c.Policy, Counter: tokens.New(0).For, IdleTimeout: c.IdleTimeout, Retention: c.Retention,
		Redact: func(project string) redact.Rules {
			return c.RedactOf(strings.TrimPrefix(project, memories.OwnProject("")))
		},
		Detector: a.newDetector(reg, g),
	})
	a.runs("timers", a.service.Agents.Run)
	a.contexts = memctx.New(a.service)
	if err = a.newSaves(); err != nil {
		return nil, err
	}
	if err := a.newKV(ctx, reg); err != nil {
		return nil, err
	}
	a.newArchive(reg)
	if err = a.newBackups(reg); err != nil {
		return nil, err
	}
	things := memories.Service{
		Memory: a.service, Ledger: a.store, Store: a.store, Records: a.store, Holds: a.holds, NewID: a.ids.next, Max: c.ItemLimit,
		Events: func(ctx context.Context, project, id string, ledger []memory.Message) ([]memory.Event, error) {
			return erased.Events(ctx, a.store, project, id, ledger)
		},
	}
	key, err := a.store.ServerKey(ctx, caller.KeyName)
	if err != nil {
		return nil, err
	}
	a.callers = &caller.Service{
		Records: a.store, Ledger: a.store, Items: things, Now: a.now, Key: key, Erased: erasedEvent,
		Forget: a.callerErased,
	}
	if file, ok := a.store.(interface{ Purge(context.Context) error }); ok {
		a.callers.Purge = file.Purge
	}
	a.newTransport(g)
	a.newVectors()
	a.newRecall()
	a.newKnowledge()
	if err = a.newRemember(ctx, reg); err != nil {
		return nil, err
	}
	a.newCallSummaries(reg)
	a.facts = facts.NewService(facts.Config{
		Store: quota.Records{Store: a.store, Keeper: a.quota}, Upkeep: a.store, Ledger: a.store, Items: a.store, Callers: a.callers,
		Now: a.now, NewID: a.ids.next, Events: a.wanted, Count: observed.fact, HalfLife: c.FactsHalfLife,
		Redact: a.service.Messages.Redact,
	})
	a.onCallerErased(a.facts.Forget)
	observed.watch(reg, a.store)
	if a.traces, err = newTracing(ctx, c.Tracing, log); err != nil {
		return nil, err
	}
	a.closes(func(ctx context.Context) error { a.closeTracing(ctx); return nil })
	a.newAnswers(reg)
	reports := &report.Service{Records: a.store, Calls: a.store, Ledger: a.store, SetChecks: a.service.Agents.SetChecks, Now: a.now}
	reports.Handle(a.jobs)
	replays, err := a.newReplays(ctx)
	if err != nil {
		return nil, err
	}
	a.onAgentErased(ForgetAgent(a.store, a.now))
	a.newUpkeep()
	a.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", c.Addr)
	if err != nil {
		return nil, fmt.Errorf("HEARDLOG_ADDR: %w", err)
	}
	a.closes(func(context.Context) error { _ = a.listener.Close(); return nil }) // the server may have closed it
	a.newSignIn(acc, g)
	hooks, err := a.newHooks(ctx, reg, g)
	if err != nil {
		return nil, err
	}
	erasures, err := a.newErasures(things, hooks)
	if err != nil {
		return nil, err
	}
	if err := a.startErasures(ctx, erasures); err != nil {
		return nil, err
	}
	platforms, err := newPlatforms(c)
	if err != nil {
		return nil, err
	}
	relay, err := a.newRealtime(ctx, reg, g)
	if err != nil {
		return nil, err
	}
	api := handlers.New(handlers.Config{
		Realtime: relay,
		Memory:   a.service, Items: things, Callers: a.callers, Context: a.contexts, Answers: a.answers, Webhooks: hooks, Conversations: kv.Conversations{Store: a.store, Max: c.ConversationLimit, Now: a.now}, KV: a.kv, Erasures: erasures,
		Access: acc, Origins: c.CORSOrigins, UI: c.UI == "on", Audit: &access.Audit{Store: a.store, Now: a.now}, Now: a.now, Log: log, Metrics: handlers.NewMetrics(reg), Ready: a.ready, Durable: durable(a.store),
		Recall:      a.recall,
		Facts:       a.facts,
		Holds:       a.holds,
		Vectors:     a.vectors,
		Models:      a.models,
		Knowledge:   a.knowledge,
		Patterns:    a.patterns,
		Reports:     reports,
		Replays:     replays,
		Jobs:        a.jobs.List,
		Checkpoints: a.saves, Joined: a.joined, CallSummary: a.callSummary,
		Remember: a.remember, RememberDefault: c.Remember,
		MetricsPage: promhttp.HandlerFor(reg, promhttp.HandlerOpts{}), Spec: heardlog.Spec, MaxBody: c.MaxBody,
		PassThrough: c.PassThrough, Quota: a.quota, MaxAgents: c.MaxAgents, DefaultLLM: c.LLM.URL != "", AutoJoin: a.autoJoin(), Expect: a.expect(), Done: a.done, Sockets: a.sockets,
		Tail:      tail.Limits{Readers: c.TailLimit, ProjectReaders: c.ProjectTails},
		Platforms: platforms, NoKey: a.noKey(), Ingest: ingestSecrets(c), PublicURL: c.PublicURL,
	})
	a.server = &http.Server{
		Handler: api, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ConnContext: handlers.ConnContext, ErrorLog: serverLog(log),
	}
	return a, nil
}

// countUsage counts what projects use before the first request, so that a restart leaves no more
// room than there was. If that takes long or fails, the server starts all the same and counts
// again.
func (a *App) countUsage(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, 3*time.Second)
	defer stop()
	if _, err := a.quota.Usage(ctx, ""); err != nil {
		a.log.Warn().Err(err).Msg("failed to count project usage")
	}
}

// newAccess creates the check of credentials. It fails if there are none and the server would serve
// more than this machine.
func (a *App) newAccess(ctx context.Context) (*handlers.Access, error) {
	acc := &handlers.Access{
		DefaultProject: a.cfg.DefaultProject, ValidProject: config.ValidProject, Keys: access.NewKeys(a.store, a.now),
		Sessions: access.NewSessions(a.store, a.now, handlers.SessionIdle),
	}
	for _, cred := range a.cfg.Credentials {
		acc.Add(cred.Project, cred.ID, cred.Secret.Reveal())
	}
	for _, cert := range a.cfg.Certificates {
		acc.AddCertificate(cert.Project, cert.Key)
	}
	if a.cfg.Closed() {
		return acc, nil
	}
	keys, err := acc.Keys.Exist(ctx)
	a.open = !keys
	if err == nil && a.open && !a.cfg.Loopback {
		err = fmt.Errorf("HEARDLOG_CREDENTIALS: is required to serve %s, or a key in the store, see heardlog keys create: without credentials the server serves only a loopback address such as 127.0.0.1:8080", a.cfg.Addr)
	}
	if err == nil && a.open && a.cfg.CORSOrigins.Any() {
		err = errors.New("HEARDLOG_CORS_ORIGINS: must not be * on a server without credentials, since any web page could then read and change what it holds")
	}
	return acc, err
}

func ingestSecrets(c config.Config) map[string][]secret.String {
	out := map[string][]secret.String{}
	for _, s := range c.Ingest {
		name := s.Project
		if s.Platform != "" {
			name += "/" + s.Platform
		}
		out[name] = append(out[name], s.Secret)
	}
	return out
}

// autoJoin returns the function that starts an agent for an unknown ID or key, or nil if the
// settings do not want it. Without a setting, an open server that has an upstream wants it.
func (a *App) autoJoin() func(ctx context.Context, project, id string, call memory.Call, labels map[string]string) (string, error) {
	on := a.open && (a.cfg.LLM.URL != "" || a.cfg.Realtime.URL != "")
	if a.cfg.AutoJoin != nil {
		on = *a.cfg.AutoJoin
	}
	if !on {
		return nil
	}
	return func(ctx context.Context, project, id string, call memory.Call, labels map[string]string) (string, error) {
		settings := memory.Settings{IdleTimeoutS: -1, Call: call, Labels: labels}
		settings.Memory.Remember = a.cfg.Remember
		name := id
		if id == "" {
			name = call.Keys[0]
		}
		if err := a.callers.CheckCall(ctx, project, id, call); err != nil {
			return "", err
		}
		inherit := memory.Inherit("")
		m, err := a.models.ForJoin(ctx, project, "", "")
		if err != nil {
			return "", err
		}
		if m != nil {
			inherit = m.Apply(&settings, inherit)
		}
		agent, err := a.service.Agents.Join(ctx, agents.JoinRequest{
			Project: project, ID: id, Name: name, Settings: settings, Properties: []byte("{}"), Inherit: inherit,
		})
		if taken, ok := errors.AsType[*memory.NameTakenError](err); ok && taken.AgentID == id {
			return id, nil // another call has started it meanwhile
		}
		if err == nil {
			err = a.remember.Joined(ctx, &agent)
		}
		if err == nil {
			err = a.joined(ctx, &agent)
		}
		return agent.ID, err
	}
}

// noKey returns what to do with a request that names no call.
func (a *App) noKey() string {
	if a.cfg.NoKey == "" && a.open && a.autoJoin() != nil {
		return handlers.NoKeyStart
	}
	return a.cfg.NoKey
}

// Addr returns the address that is served.
func (a *App) Addr() string { return a.listener.Addr().String() }

func (a *App) ready(ctx context.Context) error {
	if a.draining.Load() {
		return errors.New("the server is stopping")
	}
	return a.store.Ping(ctx)
}

// Run serves until ctx is done. It then accepts no new work, lets running requests and streams end
// within the shutdown timeout, waits for the timers and the webhook workers, and closes the store.
// It returns nil after such an end.
func (a *App) Run(ctx context.Context) error {
	a.announce(ctx)
	behind, stopBehind := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBehind()
	var group errgroup.Group
	failed, fail := context.WithCancelCause(ctx)
	part{"serve", func(context.Context) error {
		if err := a.server.Serve(handlers.Listener(a.listener)); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}}.start(ctx, &group, fail)
	for _, p := range a.parts {
		p.start(behind, &group, fail)
	}
	<-failed.Done()
	a.shutdown(ctx)
	stopBehind()
	return errors.Join(group.Wait(), a.close(ctx))
}

// shutdown accepts requests for the drain delay, during which the server is no longer ready. It
// then refuses new connections, waits for running requests until the timeout, and cuts the rest.
func (a *App) shutdown(ctx context.Context) {
	a.draining.Store(true)
	if ctx.Err() != nil && a.cfg.DrainDelay > 0 { // it was asked to stop; no part of it has failed
		a.log.Info().Dur("delay", a.cfg.DrainDelay).Msg("not ready; still accepting requests")
		time.Sleep(a.cfg.DrainDelay)
	}
	close(a.done)
	a.log.Info().Dur("timeout", a.cfg.ShutdownTimeout).Msg("stopping")
	wait, stop := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.ShutdownTimeout)
	defer stop()
	closed := make(chan error, 1)
	go func() { closed <- a.sockets.Close(wait) }()
	if err := a.server.Shutdown(wait); err != nil {
		a.log.Warn().Msg("requests were still running at the end of the shutdown timeout and were cut")
		_ = a.server.Close() // the listener is closed already
	}
	if err := <-closed; err != nil {
		a.log.Warn().Msg("WebSockets were still open at the end of the shutdown timeout and were cut")
	}
	if err := a.answers.Close(wait); err != nil {
		a.log.Warn().Err(err).Msg("answers were still being made and were cut")
	}
}

// announce logs the address, the store, and settings that an operator should know of.
func (a *App) announce(ctx context.Context) {
	a.warnUnfinished(ctx)
	a.log.Info().Str("address", "http://"+a.Addr()).Msg("serving")
	a.log.Info().Str("path", storeName(a.cfg)).Bool("secrets_encrypted", a.cfg.Sealed()).Bool("texts_encrypted", a.cfg.TextKey != "" && !a.cfg.InMemory()).Msg("data")
	if a.open {
		a.log.Info().Msg("HEARDLOG_CREDENTIALS is not set, and there are no keys: any request from this machine is accepted, and no other")
	}
	if a.cfg.SecretKey == "" {
		a.log.Info().Msg("HEARDLOG_SECRET_KEY is not set: LLM keys and webhook secrets are stored in clear")
	}
}
