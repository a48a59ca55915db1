package app

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/handlers"
	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/guard"
	"github.com/heardlog/heardlog/realtime"
)

// newRealtime creates the relay to speech-to-speech models.
func (a *App) newRealtime(ctx context.Context, reg prometheus.Registerer, g *guard.Guard) (handlers.Realtime, error) {
	key, err := a.store.ServerKey(ctx, "realtime client secrets")
	if err != nil {
		return handlers.Realtime{}, err
	}
	c := a.cfg.Realtime
	// A WebSocket begins with HTTP/1.1, and takes its connection out of the transport.
	transport := &http.Transport{DialContext: g.DialContext, DisableKeepAlives: true}
	relay := realtime.New(realtime.Config{
		Memory: a.service, Context: a.contexts, Remember: a.remember, Prices: a.cfg.LLM.Prices, Client: &http.Client{Transport: transport},
		Now: a.now, Log: a.log, Sockets: a.sockets, Metrics: realtime.NewMetrics(reg),
	})
	return handlers.Realtime{
		URL: c.URL, APIKey: c.APIKey, Relay: relay, Secrets: access.ClientSecrets{Key: key, Now: a.now},
	}, nil
}
