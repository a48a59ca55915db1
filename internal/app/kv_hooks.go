package app

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv/provider"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/webhook"
)

// kvHooks returns hooks that log, count, and queue a webhook of the default project: the provider
// is the operator's, not a tenant's. Of failed calls only one a minute makes a webhook.
func (a *App) kvHooks(name string, reg prometheus.Registerer) provider.Hooks {
	events := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "heardlog_kv_provider_events_total", Help: "What happened to the server that keeps keys and values, by event: init, shutdown, error, connection_lost, connection_restored.",
	}, []string{"event"})
	var lastError time.Time
	hook := func(level zerolog.Level, event, text string) func(error) {
		return func(err error) {
			events.WithLabelValues(event).Inc()
			e := webhook.KVProvider{Provider: name, Hook: "on_" + event, AtMS: a.now().UnixMilli()}
			if err != nil {
				e.Error = err.Error()
			}
			a.log.WithLevel(level).AnErr("error", err).Str("provider", name).Str("event", e.Hook).Msg(text)
			if event == "error" {
				if a.now().Sub(lastError) < time.Minute {
					return
				}
				lastError = a.now()
			}
			select {
			case a.hookQueue <- e:
			default:
				a.log.Error().Str("event", e.Hook).Msg("key-value provider: event queue full, one event dropped")
			}
		}
	}
	plain := func(f func(error)) func() { return func() { f(nil) } }
	return provider.Hooks{
		OnInit:               plain(hook(zerolog.InfoLevel, "init", "keys and values: connected")),
		OnShutdown:           plain(hook(zerolog.InfoLevel, "shutdown", "keys and values: closing the connection")),
		OnError:              hook(zerolog.WarnLevel, "error", "keys and values: a call failed"),
		OnConnectionLost:     hook(zerolog.ErrorLevel, "connection_lost", "keys and values: the connection is lost"),
		OnConnectionRestored: plain(hook(zerolog.InfoLevel, "connection_restored", "keys and values: the connection is back")),
	}
}

// hookTime bounds storing a webhook, also while the server stops.
const hookTime = 5 * time.Second

// sendHooks stores the webhooks that hooks have queued, until ctx ends. The one in hand is stored.
func (a *App) sendHooks(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-a.hookQueue:
			storing, stop := context.WithTimeout(context.WithoutCancel(ctx), hookTime)
			a.sendHook(storing, e)
			stop()
		}
	}
}

func (a *App) sendHook(ctx context.Context, p webhook.KVProvider) {
	if !a.wanted.Wants(a.cfg.DefaultProject, event.KVProvider) {
		return
	}
	id := a.ids.next() + ":" + strconv.Itoa(event.KVProvider)
	body, err := webhook.Encode(webhook.Notice{ID: id, SID: p.Provider, AtMS: p.AtMS, Payload: p})
	if err == nil {
		events := []memory.Event{{ID: id, Type: event.KVProvider, CreatedMS: p.AtMS, Body: body}}
		_, err = a.store.ChangeRecords(ctx, record.Space{Project: a.cfg.DefaultProject, Name: "hooks"}, nil, record.Limit{}, events, p.AtMS)
	}
	if err != nil {
		a.problem("keys and values: the webhook of hook "+p.Hook+" could not be stored", err)
	}
}

// closeProvider closes the provider and stores the webhooks that are left.
func (a *App) closeProvider(ctx context.Context) error {
	err := a.provider.Close()
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), hookTime)
	defer stop()
	for len(a.hookQueue) > 0 {
		a.sendHook(ctx, <-a.hookQueue)
	}
	return err
}
