package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/memory/hosted"
)

// ServerFlags name the server that receives what is imported.
type ServerFlags struct {
	Server string `placeholder:"URL" help:"Base URL of the server, without /v1. Default: the server of the settings; if none is running, one runs while the command does."`
	Key    string `placeholder:"SECRET" help:"Secret of a credential of the project. Default: the first of HEARDLOG_CREDENTIALS."`
}

// client returns a client of the server.
func (f *ServerFlags) client() *client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = atOnce
	return &client{http: &http.Client{Transport: t, Timeout: time.Minute}, base: strings.TrimSuffix(f.Server, "/"), auth: bearer(f.Key)}
}

// Calls is the subcommand import-calls, in the form of package cli.
type Calls struct {
	ServerFlags
	File      string        `placeholder:"PATH" help:"File of calls, or a folder of such files: JSON objects, lists or pages of them, or one object per line."`
	APIKeyEnv string        `name:"api-key-env" placeholder:"NAME" help:"Environment variable that holds the platform's API key; the calls are read from its API. For Twilio: account SID, colon, auth token."`
	APIURL    string        `name:"api-url" placeholder:"URL" help:"Base URL of the platform's API. Default: the platform's own."`
	Since     string        `placeholder:"TIME" help:"Only calls that began since then: 2026-05-28, 2026-05-28T20:00:00Z, 36h or 7d. Needed with --api-key-env."`
	Every     time.Duration `placeholder:"DURATION" help:"Repeat this often, to file calls whose webhook was lost; with --api-key-env. Each time a day more than the interval is read."`
	DryRun    bool          `name:"dry-run" help:"Read the calls, and send nothing."`
	Platforms []string      `arg:"" optional:"" name:"platform" help:"vapi, retell, elevenlabs, livekit, twilio, pipecat or openai."`
}

// Help returns the details.
func (*Calls) Help() string {
	return "Files calls that ran on a hosted platform, in order of time. A call that is known already is not filed twice, so that an interrupted import goes on when it runs again. Calls that ran through this server keep their own record. The exit code is 1 if a call could not be filed."
}

const (
	atOnce    = 16 // requests to the server
	maxErrors = 10 // that are shown
	overlap   = 24 * time.Hour
	showEvery = 2 * time.Second
)

// Env is what a subcommand needs of its surroundings.
type Env struct {
	Getenv func(string) string
	Stderr io.Writer
	// HTTP is for requests to platforms.
	HTTP *http.Client
	Now  func() time.Time
}

// Import runs the subcommand against the server of the flags.
func (c *Calls) Import(ctx context.Context, e Env) error {
	if len(c.Platforms) != 1 || !hosted.Known(c.Platforms[0]) {
		return fmt.Errorf("import-calls: name one platform: %s", strings.Join(hosted.Platforms(), ", "))
	}
	if (c.File == "") == (c.APIKeyEnv == "") {
		return errors.New("import-calls: needs either --file or --api-key-env")
	}
	since, err := parseSince(c.Since, e.Now())
	if err != nil {
		return err
	}
	if c.File != "" {
		if c.Every != 0 {
			return errors.New("--every: a file is read once")
		}
		return c.pass(ctx, e, func(ctx context.Context, _ *client, each func(source) error) error { return c.fromFile(since, each) })
	}
	list := apis[c.Platforms[0]]
	key := e.Getenv(c.APIKeyEnv)
	switch {
	case list.list == nil:
		return fmt.Errorf("--api-key-env: %s has no API that lists calls; use --file", c.Platforms[0])
	case key == "":
		return fmt.Errorf("--api-key-env: the variable %s is empty", c.APIKeyEnv)
	case since.IsZero():
		return errors.New("--since: is needed with --api-key-env: from when on calls are read")
	case c.Every != 0 && c.Every < time.Minute:
		return errors.New("--every: must be at least 1m")
	}
	api := &api{client{http: e.HTTP, base: strings.TrimSuffix(cmp.Or(c.APIURL, list.url), "/"), auth: list.auth(key)}, key}
	for {
		began := e.Now()
		err := c.pass(ctx, e, func(ctx context.Context, to *client, each func(source) error) error {
			return list.list(ctx, api, to, since, began, each)
		})
		if c.Every == 0 || ctx.Err() != nil {
			return err
		}
		if err != nil {
			fmt.Fprintln(e.Stderr, "import-calls:", err)
		} else {
			since = began.Add(-overlap)
		}
		alarm := time.NewTimer(c.Every)
		select {
		case <-alarm.C:
		case <-ctx.Done():
			alarm.Stop()
			return nil
		}
	}
}

// source is a call that is to be sent, as its platform has it.
type source func() ([]byte, error)

// fromFile passes the calls of a file in order of their start.
func (c *Calls) fromFile(since time.Time, each func(source) error) error {
	name := c.Platforms[0]
	lists := []string{"calls", "items", "conversations", "results", "data", "sessions"}
	if name == "openai" || name == "pipecat" {
		lists = []string{"calls", "sessions", "data"} // the others are parts of their entries
	}
	var call hosted.Call
	var of peek.Value // that call was read from
	whole := func(v peek.Value) bool {
		var finished bool
		var err error
		call, finished, err = hosted.Read(name, v)
		of = v
		return err == nil && (!finished || len(call.Messages) > 0 || !strings.HasPrefix(call.ID, "sha256-"))
	}
	var entries []entry
	err := eachObject(c.File, lists, whole, func(e entry, v peek.Value) error {
		if len(of) != len(v) || &of[0] != &v[0] {
			call, _, _ = hosted.Read(name, v) // what cannot be read, the server refuses
		}
		if e.atMS = cmp.Or(call.StartMS, call.EndMS); e.atMS != 0 && !since.IsZero() && e.atMS < since.UnixMilli() {
			return nil
		}
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.atMS, b.atMS) })
	for _, e := range entries {
		if err := each(e.read); err != nil {
			return err
		}
	}
	return nil
}

// counts are how many calls had which outcome.
type counts struct {
	mu     sync.Mutex
	n      map[string]int
	errors []string
	fatal  error
}

func (n *counts) add(outcome string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.n[outcome]++
	if err != nil {
		if len(n.errors) < maxErrors {
			n.errors = append(n.errors, err.Error())
		}
		if fatal(err) {
			n.fatal = err
		}
	}
}

func (n *counts) stopped() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fatal
}

func (n *counts) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var parts []string
	for _, name := range []string{"filed", "known", "ignored", "read", "failed"} {
		if count := n.n[name]; count > 0 || name == "filed" && n.n["read"] == 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count, name))
		}
	}
	return strings.Join(parts, ", ")
}

// pass sends all calls that list passes, and writes what became of them.
func (c *Calls) pass(ctx context.Context, e Env, list func(ctx context.Context, to *client, each func(source) error) error) error {
	to, began := c.client(), time.Now()
	n := &counts{n: map[string]int{}}
	work := make(chan source)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for next := range work {
				outcome, err := c.send(ctx, to, next)
				n.add(outcome, err)
			}
		})
	}
	shown := began
	err := list(ctx, to, func(s source) error {
		if now := time.Now(); now.Sub(shown) >= showEvery {
			shown = now
			fmt.Fprintf(e.Stderr, "import-calls: %s after %s\n", n, now.Sub(began).Round(time.Second))
		}
		if err := n.stopped(); err != nil {
			return err
		}
		select {
		case work <- s:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	close(work)
	workers.Wait()
	for _, text := range n.errors {
		fmt.Fprintln(e.Stderr, "import-calls:", text)
	}
	fmt.Fprintf(e.Stderr, "import-calls: %s in %s\n", n, time.Since(began).Round(10*time.Millisecond))
	if failed := n.n["failed"]; err == nil && failed > 0 {
		err = fmt.Errorf("%d calls could not be filed; run it again to try them once more", failed)
	}
	return err
}

// send sends one call and returns its outcome.
func (c *Calls) send(ctx context.Context, to *client, next source) (string, error) {
	body, err := next()
	if err != nil {
		return "failed", &statusError{0, err.Error()}
	}
	if c.DryRun {
		call, finished, err := hosted.Read(c.Platforms[0], body)
		switch {
		case err != nil:
			return "failed", &statusError{http.StatusBadRequest, err.Error()}
		case !finished:
			return "ignored", nil
		case call.Omitted.N > 0:
			return "read", &statusError{http.StatusOK, call.ID + ": left out: " + call.Omitted.String()}
		}
		return "read", nil
	}
	var out struct {
		Status string `json:"status"`
	}
	if err := to.call(ctx, http.MethodPost, "/v1/ingest/"+c.Platforms[0], body, &out); err != nil {
		return "failed", err
	}
	return out.Status, nil
}

// parseSince reads a time: a date, a time, or how long ago. "" is the zero time.
func parseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n int
		if _, err := fmt.Sscanf(days, "%d", &n); err == nil && n > 0 && n < 10_000 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(form, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("--since: %q is not a time such as 2026-05-28, 2026-05-28T20:00:00Z, 36h or 7d", s)
}
