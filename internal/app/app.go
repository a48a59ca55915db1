// Package app builds and runs a whole server. New opens the store, wires the packages and binds the
// port; Run serves until its context ends. Only this package starts long-lived goroutines.
package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
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
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/summary"
	"github.com/heardlog/heardlog/internal/tail"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/memory"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/window/tokens"
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
	store     store
	now       func() time.Time // the clock of all deadlines
	ids       *ids
	service   *memory.Service
	contexts  *memctx.Service
	working   *kv.Working
	answers   *turn.Runner
	summaries *summary.Worker
	transport *http.Transport // for calls to LLMs
	sender    *webhook.Sender
	worker    *webhook.Worker
	sweeper   *webhook.Sweeper
	listener  net.Listener
	server    *http.Server
	traces    *sdktrace.TracerProvider // nil without traces
	draining  atomic.Bool
	done      chan struct{} // closed when the server begins to stop
}

// New opens the store, wires the packages and binds the port, so settings that cannot work fail
// here. The caller must call Run, which releases everything.
func New(ctx context.Context, c config.Config, log zerolog.Logger) (_ *App, err error) {
	a := &App{cfg: c, log: log, done: make(chan struct{})}
	var undo []func() error
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				err = errors.Join(err, undo[i]())
			}
		}
	}()
	reg := prometheus.NewRegistry()
	observed := newMetrics(reg)
	if a.store, a.now, err = openStore(ctx, c, observed, log); err != nil {
		return nil, err
	}
	undo = append(undo, a.store.Close)
	a.ids = &ids{now: a.now}
	wanted, err := a.wantedEvents(ctx)
	if err != nil {
		return nil, err
	}
	g := newGuard(c)
	a.newSummaries(reg)
	a.service = memory.NewService(memory.Config{
		Summaries: a.summarizer(), Store: a.store, Now: a.now, NewID: a.ids.next, Events: wanted, Observe: observed,
		Items: a.store, Peers: peersOf(a.store),
		Think: func(ctx context.Context, project, id, text string) error {
			return a.answers.Think(ctx, project, id, memory.Message{Role: memory.User, Source: memory.SourceSilence, Content: text})
		},
		OnError:   func(what string, err error) { log.Error().Err(err).Msg(what) },
		MaxAgents: c.MaxAgents, DropIdle: c.OverMaxAgents == "drop_idle", MaxMessages: c.MessageLimit, MaxItems: c.ItemLimit, Policy: c.Policy, Counter: tokens.New(0).For, IdleTimeout: c.IdleTimeout, Retention: c.Retention,
	})
	a.contexts = memctx.New(a.service)
	a.working = &kv.Working{
		Store: a.store, Agents: a.store, MaxMB: c.WorkingMB, Now: a.now,
		OnError: func(what string, err error) { log.Error().Err(err).Msg(what) },
	}
	observed.watch(reg, a.store)
	if a.traces, err = newTracing(ctx, c.Tracing, log); err != nil {
		return nil, err
	}
	undo = append(undo, func() error { a.closeTracing(ctx); return nil })
	a.newAnswers(reg, g)
	a.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", c.Addr)
	if err != nil {
		return nil, fmt.Errorf("HEARDLOG_ADDR: %w", err)
	}
	undo = append(undo, a.listener.Close)
	hooks, err := a.newHooks(ctx, reg, g)
	if err != nil {
		return nil, err
	}
	platforms, err := newPlatforms(c)
	if err != nil {
		return nil, err
	}
	api := handlers.New(handlers.Config{
		Memory: a.service, Context: a.contexts, Answers: a.answers, Webhooks: hooks, Conversations: kv.Conversations{Store: a.store, Max: c.ConversationLimit}, Working: a.working,
		Access: access(c), Now: a.now, Log: log, Metrics: handlers.NewMetrics(reg), Ready: a.ready,
		MetricsPage: promhttp.HandlerFor(reg, promhttp.HandlerOpts{}), Spec: heardlog.Spec, MaxBody: c.MaxBody,
		PassThrough: c.PassThrough, RateLimit: c.RateLimit, DefaultLLM: c.LLM.URL != "", AutoJoin: a.autoJoin(), Done: a.done,
		Tail:      tail.Limits{Readers: c.TailLimit, AgentReaders: c.AgentTailLimit},
		Platforms: platforms, NoKey: c.NoKey, Ingest: ingestSecrets(c),
	})
	a.server = &http.Server{
		Handler: api, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: serverLog(log),
	}
	return a, nil
}

func access(c config.Config) *handlers.Access {
	acc := &handlers.Access{DefaultProject: c.DefaultProject, ValidProject: config.ValidProject}
	for _, cred := range c.Credentials {
		acc.Add(cred.Project, cred.ID, cred.Secret.Reveal())
	}
	return acc
}

func ingestSecrets(c config.Config) map[string][]secret.String {
	out := map[string][]secret.String{}
	for _, s := range c.Ingest {
		out[s.Project] = append(out[s.Project], s.Secret)
	}
	return out
}

// autoJoin returns the function that starts an agent for an unknown ID or key, or nil if the
// settings do not want it.
func (a *App) autoJoin() func(ctx context.Context, project, id string, call memory.Call) (string, error) {
	if !a.cfg.AutoJoin {
		return nil
	}
	return func(ctx context.Context, project, id string, call memory.Call) (string, error) {
		name := id
		if id == "" {
			name = call.Keys[0]
		}
		agent, err := a.service.Join(ctx, memory.JoinRequest{
			Project: project, ID: id, Name: name, Settings: memory.Settings{IdleTimeoutS: -1, Call: call}, Properties: []byte("{}"),
		})
		if taken, ok := errors.AsType[*memory.NameTakenError](err); ok && taken.AgentID == id {
			return id, nil // another call has started it meanwhile
		}
		return agent.ID, err
	}
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
	run := func(what string, f func() error) {
		group.Go(func() error {
			err := f()
			if err != nil {
				err = fmt.Errorf("%s: %w", what, err)
				fail(err) // without one of its parts, the server would lose data silently
			}
			return err
		})
	}
	run("serve", func() error {
		if err := a.server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	if a.summaries != nil {
		// A restart makes an interrupted summary again.
		run("summaries", func() error { return a.summaries.Run(failed) })
	}
	run("working memories", func() error { return a.working.Run(behind) })
	run("timers", func() error { return a.service.Run(behind) })
	run("webhooks", func() error { return a.worker.Run(behind) })
	run("old webhooks", func() error { return a.sweeper.Run(behind) })
	<-failed.Done()
	a.shutdown(ctx)
	stopBehind()
	err := group.Wait()
	a.sender.Close()
	a.transport.CloseIdleConnections()
	a.closeTracing(ctx)
	return errors.Join(err, a.store.Close())
}

// shutdown refuses new connections, waits for running requests until the timeout, and cuts the
// rest.
func (a *App) shutdown(ctx context.Context) {
	a.draining.Store(true)
	close(a.done)
	a.log.Info().Dur("timeout", a.cfg.ShutdownTimeout).Msg("stopping")
	wait, stop := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.ShutdownTimeout)
	defer stop()
	if err := a.server.Shutdown(wait); err != nil {
		a.log.Warn().Msg("requests were still running at the end of the shutdown timeout and were cut")
		_ = a.server.Close() // the listener is closed already
	}
	if err := a.answers.Close(wait); err != nil {
		a.log.Warn().Err(err).Msg("answers were still being made and were cut")
	}
}

// announce logs the address, the store, and settings that an operator should know of.
func (a *App) announce(ctx context.Context) {
	a.warnUnfinished(ctx)
	a.log.Info().Str("address", "http://"+a.Addr()).Msg("serving")
	a.log.Info().Str("path", storeName(a.cfg)).Bool("secrets_encrypted", a.cfg.SecretKey != "").Msg("data")
	if len(a.cfg.Credentials) == 0 {
		a.log.Info().Msg("no credentials are set: open to everybody on this machine, and to this machine only")
	}
	if a.cfg.SecretKey == "" {
		a.log.Info().Msg("HEARDLOG_SECRET_KEY is not set: LLM keys and webhook secrets are stored in clear")
	}
}
