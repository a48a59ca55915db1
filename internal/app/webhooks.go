package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/guard"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

// settingsEndpoint is the id of the endpoint that the settings describe.
const settingsEndpoint = "settings"

// notSet is why the endpoint is disabled that the settings no longer name.
const notSet = "HEARDLOG_WEBHOOK_URL is not set"

// wantedEvents gives what the domain is told of webhooks, once the endpoint of the settings is stored.
func (a *App) wantedEvents(ctx context.Context) (memory.Events, error) {
	if err := a.putEndpoint(ctx); err != nil {
		return nil, err
	}
	return newEvents(a.store.Published)
}

// putEndpoint stores the endpoint of the settings. One that the settings no longer name is disabled, so that what waits
// for it is neither sent nor lost. One that was disabled for another reason, by its receiver or by hand, stays so until its URL or secret in the settings
// changes or somebody enables it: a restart is no sign that the receiver wants to hear from us again.
func (a *App) putEndpoint(ctx context.Context) error {
	old, err := a.store.Endpoint(ctx, "", settingsEndpoint)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	known := err == nil
	if a.cfg.WebhookURL == "" {
		if known && !old.Disabled {
			old.Disabled, old.DisabledWhy = true, notSet
			return a.store.PutEndpoint(ctx, old)
		}
		return nil
	}
	e := old
	e.ID, e.Project, e.URL, e.Agora, e.Fixed, e.Secrets = settingsEndpoint, a.cfg.DefaultProject, a.cfg.WebhookURL, true, true, nil
	if a.cfg.WebhookSecret != "" {
		secret, err := webhook.ParseSecret(a.cfg.WebhookSecret.Reveal())
		if err != nil {
			return fmt.Errorf("HEARDLOG_WEBHOOK_SECRET: %w", err)
		}
		e.Secrets = []webhook.SigningSecret{{ID: settingsEndpoint, Value: secret}}
	}
	same := e.URL == old.URL && slices.EqualFunc(e.Secrets, old.Secrets, func(a, b webhook.SigningSecret) bool { return a.Value == b.Value })
	now := a.now().UnixMilli()
	if !known {
		e.CreatedMS = now
	}
	if !same {
		e.Rev++
		e.UpdatedMS = now
	}
	if !same || e.DisabledWhy == notSet {
		e.Disabled, e.DisabledWhy, e.DisabledMS, e.KeepUntilMS, e.FirstFailureMS = false, "", 0, 0, 0
	}
	return a.store.PutEndpoint(ctx, e)
}

// newWebhooks makes what sends, and what forgets.
func (a *App) newWebhooks(reg prometheus.Registerer, g *guard.Guard, thin *webhook.Thin) error {
	c := webhook.SenderConfig{Dial: g.DialContext, CheckURL: g.CheckURL, Thin: thin, Now: a.now}
	if proxy := a.cfg.WebhookProxy.Reveal(); proxy != "" {
		u, err := url.Parse(proxy)
		if err != nil {
			return errors.New("HEARDLOG_WEBHOOK_PROXY: is not a URL") // its text would show what may be a password
		}
		// Who names a proxy means it, wherever it stands; nothing but its address is dialled then.
		c.Proxy, c.Dial = u, (&net.Dialer{Timeout: webhook.DialTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	var err error
	if a.sender, err = webhook.NewSender(c); err != nil {
		return err
	}
	a.worker, err = webhook.NewWorker(webhook.WorkerConfig{
		Queue: a.store, Sender: a.sender, Now: a.now, ParkAfter: never(a.cfg.WebhookParkAfter), DisableAfter: never(a.cfg.WebhookDisableAfter), Registerer: reg, Log: a.log,
	})
	a.sweeper = &webhook.Sweeper{Log: a.store, Now: a.now, Keep: a.cfg.WebhookRetention, KeepAgentless: a.cfg.Retention, OnError: func(err error) { a.log.Error().Err(err).Msg("forget old webhooks") }}
	return err
}

// never gives what the worker takes for a setting in which 0 is never.
func never[T int | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}
