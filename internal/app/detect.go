package app

import (
	"context"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/cache"
	"github.com/heardlog/heardlog/internal/detect"
	"github.com/heardlog/heardlog/internal/guard"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/memories"
)

// newDetector creates what finds names in texts, nil if no project has a detector.
func (a *App) newDetector(reg prometheus.Registerer, g *guard.Guard) agents.Detector {
	some := false
	for _, r := range a.cfg.Redact {
		some = some || r.Detector != nil
	}
	if !some {
		return nil
	}
	transport := &http.Transport{DialContext: g.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: guard.DialTimeout, MaxIdleConnsPerHost: 16}
	a.closes(func(context.Context) error { transport.CloseIdleConnections(); return nil })
	const maxProjects = 4096
	known := cache.New[string, *detect.Settings](maxProjects, nil)
	return detect.New(detect.Config{
		Of: func(project string) *detect.Settings {
			return known.GetOrSet(project, func() *detect.Settings { return settingsOf(a.cfg, project) })
		},
		Transport: transport, Now: a.now, Log: a.log, Metrics: reg,
	})
}

// settingsOf returns the detector of a project, nil for none. Items that belong to no call have a
// project of their own, which takes the one of theirs.
func settingsOf(c config.Config, project string) *detect.Settings {
	of := strings.TrimPrefix(project, memories.OwnProject(""))
	d := c.DetectorOf(of)
	if d == nil {
		return nil
	}
	return &detect.Settings{
		URL: d.URL, Form: d.Form, Language: d.Language, Entities: d.Entities, MinScore: d.MinScore, Token: d.Token, Timeout: d.Timeout(),
		Rules: agents.DetectorRules{Open: d.Open(), Pseudonyms: d.Pseudonyms, Forgets: of != project},
	}
}
