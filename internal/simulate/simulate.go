// Package simulate plays scripted calls of voice platforms against a running server, and compares
// what the server recorded with what was heard.
//
// It is platform and LLM at once. It joins an agent whose llm.url is an upstream of its own, and
// sends what the platform would send: its list of messages, its headers and extra members, its
// speculations, retries and barge-ins. When the call is over it reads the ledger.
package simulate

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Config holds the server that transcripts are played against, and how. Server is required.
type Config struct {
	Server string       // base URL of the server, without /v1
	Key    string       // secret of a credential, or id:secret; "" for an open server
	Client *http.Client // nil means a new one
	// Listen is the host:port of the simulated LLM, which the server must be allowed to call. ""
	// means any port of 127.0.0.1.
	Listen string
	Pace   float64          // 1 plays in real time, 2 twice as fast; 0 never waits
	Now    func() time.Time // nil means time.Now
}

// Report is the result of a call.
type Report struct {
	Name     string     `json:"name"`
	Platform string     `json:"platform"`
	About    string     `json:"about,omitempty"`
	AgentID  string     `json:"agent_id"`
	Requests int        `json:"requests"` // chat completions that the platform sent
	Rows     []Compared `json:"rows"`
	Problems []string   `json:"problems,omitempty"` // other differences than those of the rows
	Match    bool       `json:"match"`
}

// Play plays a transcript and compares. It returns an error if the call could not be played to its
// end; a record that differs is not an error.
func Play(ctx context.Context, c Config, t Transcript) (_ Report, err error) {
	r := Report{Name: t.Name, Platform: t.Call.Platform, About: t.Call.About}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.Client == nil {
		transport := &http.Transport{ResponseHeaderTimeout: patience}
		defer transport.CloseIdleConnections()
		c.Client = &http.Client{Transport: transport}
	}
	run, err := newRun(t.Call.Platform)
	if err != nil {
		return r, err
	}
	p := &player{cfg: c, call: t.Call, platform: platforms()[t.Call.Platform], run: run}
	if p.upstream, err = newUpstream(ctx, c.Listen); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.upstream.close()) }()
	if err := p.join(ctx); err != nil {
		return r, reachable(c.Server, err)
	}
	r.AgentID = p.agent
	err = p.play(ctx, t.Steps)
	r.Requests = p.requests
	if err != nil {
		return r, err
	}
	ledger, err := p.ledger(ctx)
	if err != nil {
		return r, err
	}
	r.Rows = compare(p.want, rows(ledger))
	r.Problems = append(p.problems, p.upstream.problems(p.platform)...)
	r.Match = len(r.Problems) == 0 && !slices.ContainsFunc(r.Rows, func(c Compared) bool { return len(c.Differs) > 0 })
	return r, nil
}

// play plays the steps and hangs up.
func (p *player) play(ctx context.Context, steps []Step) (err error) {
	defer func() {
		path := "/v1/agents/" + url.PathEscape(p.agent) + "/leave"
		// After a failure too: no agent is left running.
		err = errors.Join(err, p.do(context.WithoutCancel(ctx), http.MethodPost, path, nil, nil))
	}()
	for i := range steps {
		if err := p.step(ctx, &steps[i]); err != nil {
			return err
		}
	}
	if p.open == nil {
		return nil
	}
	return p.hangUp(ctx, p.open)
}

// newRun returns a unique name, because a server accepts each name once.
func newRun(platform string) (string, error) {
	b := make([]byte, 6)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	return "simulate-" + platform + "-" + hex.EncodeToString(b), nil
}

// reachable adds what to do to the error of a server that does not answer.
func reachable(server string, err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return fmt.Errorf("no server answers at %s: start one, or name it with --server URL: %w", server, err)
	}
	return err
}

// problems returns what the upstream received and should not have received.
func (u *upstream) problems(pl platform) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var out []string
	if u.odd > 0 {
		out = append(out, fmt.Sprintf("%d requests reached the LLM that the platform had not made", u.odd))
	}
	for _, s := range u.seen {
		for _, name := range pl.private {
			if _, ok := s.members[name]; ok {
				out = append(out, fmt.Sprintf("request %s: the LLM was shown %q, which belongs to the platform", s.id[strings.LastIndexByte(s.id, '-')+1:], name))
			}
		}
	}
	return out
}
