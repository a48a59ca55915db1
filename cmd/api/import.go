package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/app"
	"github.com/heardlog/heardlog/internal/data"
	"github.com/heardlog/heardlog/internal/guard"
	"github.com/heardlog/heardlog/internal/importer"
)

type importCallsCommand struct{ importer.Calls }

// Run imports calls into the server of the settings, unless flags name another.
func (i *importCallsCommand) Run(ctx context.Context, e data.Env) error {
	return withServer(ctx, e, &i.ServerFlags, i.DryRun, func(ctx context.Context, env importer.Env) error { return i.Import(ctx, env) })
}

type importMemoryCommand struct{ importer.Memories }

// Run imports memories into the server of the settings, unless flags name another.
func (i *importMemoryCommand) Run(ctx context.Context, e data.Env) error {
	return withServer(ctx, e, &i.ServerFlags, i.DryRun, func(ctx context.Context, env importer.Env) error { return i.Import(ctx, env) })
}

// withServer runs an import against a server. If none is named and that of the settings does not
// run, it runs one of these settings meanwhile.
func withServer(ctx context.Context, e data.Env, flags *importer.ServerFlags, dry bool, run func(context.Context, importer.Env) error) error {
	c, err := config.Load(e.Getenv)
	if err != nil {
		return fmt.Errorf("the settings have mistakes:\n%w", err)
	}
	if flags.Key == "" && len(c.Credentials) > 0 {
		flags.Key = c.Credentials[0].ID + ":" + c.Credentials[0].Secret.Reveal()
	}
	flags.Key = cmp.Or(flags.Key, e.Getenv("HEARDLOG_KEY"))
	env := importer.Env{Getenv: e.Getenv, Stderr: e.Stderr, Now: time.Now, HTTP: platformClient(c)}
	if flags.Server != "" || dry {
		return run(ctx, env)
	}
	flags.Server = app.LocalURL(c)
	if running(ctx, flags.Server) {
		return run(ctx, env)
	}
	if c.InMemory() {
		return errors.New("no server of these settings is running, and HEARDLOG_STORE is memory: what is imported would be lost")
	}
	if err := app.Check(c); err != nil {
		return fmt.Errorf("the settings have mistakes:\n%w", err)
	}
	a, err := app.New(ctx, c, zerolog.New(e.Stderr).Level(zerolog.ErrorLevel))
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx)) // until the import has ended
	done := make(chan error, 1)
	go func() { done <- a.Run(serving) }()
	err = run(ctx, env)
	stop()
	return errors.Join(err, <-done)
}

// running reports whether a server answers.
func running(ctx context.Context, url string) bool {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/healthz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return !strings.Contains(err.Error(), "refused") // a slow one is running
	}
	_ = resp.Body.Close()
	return true
}

// platformClient returns a client for the APIs of platforms. It dials only what the settings allow,
// and does not follow redirects, because requests have keys.
func platformClient(c config.Config) *http.Client {
	g := guard.New(guard.Options{Allow: c.OutboundAllow, AllowLoopback: c.Loopback})
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext, t.Proxy = g.DialContext, nil
	return &http.Client{Transport: t, Timeout: 2 * time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
