package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/guard"
	"github.com/heardlog/heardlog/webhook"
)

// settingsEndpoint is the ID of the endpoint of HEARDLOG_WEBHOOK_URL.
const settingsEndpoint = "settings"

// notSet is the reason for disabling that endpoint when the setting is gone.
const notSet = "HEARDLOG_WEBHOOK_URL is not set"

// wantedEvents stores the endpoint of the settings and returns which events endpoints want.
func (a *App) wantedEvents(ctx context.Context) (*events, error) {
	if err := a.putEndpoint(ctx); err != nil {
		return nil, err
	}
	return newEvents(a.store.Published)
}

// putEndpoint stores the endpoint of the settings. If the setting is gone, it disables the
// endpoint, so pending deliveries are neither sent nor lost. An endpoint that was disabled for
// another reason stays disabled until its URL or secret changes or it is enabled through the API. A
// restart alone does not mean that the receiver works again.
func (a *App) putEndpoint(ctx context.Context) error {
	old, err := webhook.FindEndpoint(ctx, a.store, "", settingsEndpoint)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	known := err == nil
	if a.cfg.WebhookURL == "" {
		if known && !old.Disabled {
			old.Disabled, old.DisabledWhy = true, notSet
			return webhook.PutEndpoint(ctx, a.store, old)
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
	if known && reflect.DeepEqual(e, old) {
		return nil // so that a server starts on a full disk
	}
	return webhook.PutEndpoint(ctx, a.store, e)
}

// newWebhooks creates the sender and the worker that delivers.
func (a *App) newWebhooks(reg prometheus.Registerer, g *guard.Guard, thin *webhook.Thin) error {
	c := webhook.SenderConfig{Dial: g.DialContext, CheckURL: g.CheckURL, Thin: thin, Now: a.now, Body: a.archivedBody}
	if proxy := a.cfg.WebhookProxy.Reveal(); proxy != "" {
		u, err := url.Parse(proxy)
		if err != nil {
			// The parser's error may show a password.
			return errors.New("HEARDLOG_WEBHOOK_PROXY: must be a URL")
		}
		// A proxy may have any address; nothing else is dialled then.
		c.Proxy, c.Dial = u, (&net.Dialer{Timeout: webhook.DialTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	sender, err := webhook.NewSender(c)
	if err != nil {
		return err
	}
	a.closes(func(context.Context) error { sender.Close(); return nil })
	worker, err := webhook.NewWorker(webhook.WorkerConfig{
		Queue: a.store, Sender: sender, Now: a.now, Policy: webhook.Policy{ParkAfter: a.cfg.WebhookParkAfter, DisableAfter: a.cfg.WebhookDisableAfter}, Registerer: reg, Log: a.log,
	})
	if err == nil {
		a.runs("webhooks", worker.Run)
	}
	return err
}

// newHooks creates the webhook service of the API, and the workers that send webhooks.
func (a *App) newHooks(ctx context.Context, reg prometheus.Registerer, g *guard.Guard) (*webhook.Service, error) {
	thin, err := a.newThin(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.newWebhooks(reg, g, thin); err != nil {
		return nil, err
	}
	return &webhook.Service{
		Store: a.store, CheckURL: g.CheckURL, Thin: thin, Once: &access.Once{Store: a.store, Now: a.now}, Now: a.now, NewID: a.ids.next, Random: rand.Reader,
	}, nil
}

// newThin creates the signer of fetch URLs. It returns nil if receivers could not reach this
// server: without HEARDLOG_PUBLIC_URL only receivers on this machine can, at a loopback address.
func (a *App) newThin(ctx context.Context) (*webhook.Thin, error) {
	base := a.publicURL()
	if base == "" {
		return nil, nil
	}
	key, err := a.store.ServerKey(ctx, "fetch")
	if err != nil {
		return nil, err
	}
	thin, err := webhook.NewThin(key, base)
	if err != nil {
		return nil, fmt.Errorf("HEARDLOG_PUBLIC_URL: %w", err)
	}
	return thin, nil
}
