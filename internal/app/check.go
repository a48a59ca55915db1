package app

import (
	"errors"
	"fmt"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/guard"
	"github.com/heardlog/heardlog/platform"
	"github.com/heardlog/heardlog/webhook"
)

// Check returns the mistakes in settings that package config cannot find. It opens nothing.
func Check(c config.Config) error {
	var errs []error
	if c.WebhookSecret != "" {
		if _, err := webhook.ParseSecret(c.WebhookSecret.Reveal()); err != nil {
			errs = append(errs, fmt.Errorf("HEARDLOG_WEBHOOK_SECRET: %w", err))
		}
	}
	g := newGuard(c)
	for i, u := range c.LLM.Fallbacks {
		if err := g.CheckURL(u.URL); err != nil {
			errs = append(errs, fmt.Errorf("HEARDLOG_LLM_FALLBACKS: entry %d: %w", i+1, err))
		}
	}
	for _, s := range []struct{ name, url string }{{"HEARDLOG_LLM_URL", c.LLM.URL}, {"HEARDLOG_WEBHOOK_URL", c.WebhookURL}} {
		if s.url == "" {
			continue
		}
		if err := g.CheckURL(s.url); err != nil { // every call would be refused
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	if _, err := newPlatforms(c); err != nil {
		errs = append(errs, err)
	}
	if _, err := defaultModel(c); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// newPlatforms creates the table of keys that identify calls.
func newPlatforms(c config.Config) (*platform.Set, error) {
	own := make([]platform.Own, 0, len(c.Profiles))
	for _, p := range c.Profiles {
		own = append(own, platform.Own{Project: p.Project, Name: p.Name, Header: p.Header, Path: p.Path})
	}
	s, err := platform.NewSet(own)
	if err != nil {
		return nil, fmt.Errorf("HEARDLOG_PROFILES: %w", err)
	}
	return s, nil
}

// newGuard creates the guard of all outgoing calls.
func newGuard(c config.Config) *guard.Guard {
	return guard.New(guard.Options{Allow: c.OutboundAllow, AllowLoopback: c.Loopback})
}
