package importer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/text"
)

// Limits of the requests, to the server and to platforms.
const (
	maxAnswer  = 64 << 20 // bytes of an answer
	maxTries   = 10
	firstPause = 250 * time.Millisecond
	maxPause   = 30 * time.Second
	maxShown   = 300 // bytes of a text in an error
)

// client makes requests and repeats those that failed for a time.
type client struct {
	http *http.Client
	base string
	auth func(*http.Request)
}

// statusError is an answer that is not a success.
type statusError struct {
	status int
	text   string
}

// Error implements error.
func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.text) }

// fatal reports whether the next request will fail, too: the credentials or the address are wrong.
func fatal(err error) bool {
	e, ok := errors.AsType[*statusError](err)
	return !ok || e.status == http.StatusUnauthorized || e.status == http.StatusForbidden || e.status == http.StatusNotFound
}

// call makes a request until it succeeds, at most maxTries times. It waits as long as the answer
// says, or longer each time. into receives the JSON of the answer.
func (c *client) call(ctx context.Context, method, path string, body []byte, into any) error {
	pause := firstPause
	for try := 1; ; try++ {
		wait, err := c.once(ctx, method, path, body, into)
		if err == nil || wait < 0 || try == maxTries || ctx.Err() != nil {
			return err
		}
		alarm := time.NewTimer(max(wait, pause))
		select {
		case <-alarm.C:
		case <-ctx.Done():
			alarm.Stop()
			return ctx.Err()
		}
		pause = min(2*pause, maxPause)
	}
}

// once makes a request. wait is how long to wait before it is repeated, negative for never.
func (c *client) once(ctx context.Context, method, path string, body []byte, into any) (wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.auth != nil {
		c.auth(req)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return 0, err
	case len(raw) > maxAnswer:
		return -1, fmt.Errorf("the answer of %s is longer than %d bytes", req.URL.Host, maxAnswer)
	case resp.StatusCode/100 != 2:
		wait = -1
		if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
			seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
			wait = min(max(0, time.Duration(seconds)*time.Second), 10*time.Minute)
		}
		return wait, &statusError{resp.StatusCode, text.Clip(strings.TrimSpace(string(raw)), maxShown)}
	case into == nil || len(raw) == 0:
		return 0, nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return -1, fmt.Errorf("the answer of %s is not what was expected: %w", req.URL.Host, err)
	}
	return 0, nil
}

// bearer returns what signs requests with a token, if there is one.
func bearer(token string) func(*http.Request) {
	return func(r *http.Request) {
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
	}
}
