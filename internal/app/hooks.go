package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/guard"
	"github.com/heardlog/heardlog/webhook"
)

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
	base := a.cfg.PublicURL
	if base == "" {
		addr, ok := a.listener.Addr().(*net.TCPAddr)
		if !ok || !addr.IP.IsLoopback() {
			return nil, nil
		}
		base = "http://" + addr.String()
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
