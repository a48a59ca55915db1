package handlers

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/agoratoken"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/oidc"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/text"
)

// Access checks credentials: those of the settings (see Add), stored keys, and Agora's tokens (see
// AddCertificate). While there are no credentials, keys or certificates, the server is open: every
// caller is let in, from this machine only.
type Access struct {
	// DefaultProject is the project of /v1 on an open server.
	DefaultProject string
	// ValidProject reports whether a name in a path can be a project.
	ValidProject func(string) bool
	// Keys are the stored keys, and Sessions those of browsers that signed in; nil = none.
	Keys, Sessions *access.Keys
	// OIDC is the identity provider whose users and tokens are let in; nil = none.
	OIDC *oidc.Provider
	// PublicURL is the address at which browsers and clients of OAuth reach the server.
	PublicURL string

	guesses *access.Guesses
	byID    map[string]credential
	byToken map[[sha256.Size]byte]credential
	// certificates verify Agora's tokens, by app ID.
	certificates map[string][]secret.String
	now          func() time.Time
}

// credential is one of the settings. It has every scope.
type credential struct {
	project, id string
	hash        [sha256.Size]byte
}

func (c credential) caller() access.Client { return access.Client{Project: c.project, ID: c.id} }

// Add lets the holder of id and secret into the project. Only a hash of the secret is kept.
func (c *Access) Add(project, id, secret string) {
	if c.byID == nil {
		c.byID, c.byToken = map[string]credential{}, map[[sha256.Size]byte]credential{}
	}
	cred := credential{project: project, id: id, hash: sha256.Sum256([]byte(secret))}
	c.byID[id] = cred
	c.byToken[cred.hash] = cred
}

// AddCertificate lets the holders of Agora's tokens that were made with the certificate into the
// project whose name is the app ID.
func (c *Access) AddCertificate(appID string, certificate secret.String) {
	if c.certificates == nil {
		c.certificates = map[string][]secret.String{}
	}
	c.certificates[appID] = append(c.certificates[appID], certificate)
}

// open reports whether there are no credentials.
func (c *Access) open(ctx context.Context) (bool, error) {
	if configured := len(c.byID)+len(c.certificates) > 0 || c.OIDC != nil; configured || c.Keys == nil {
		return !configured, nil
	}
	exist, err := c.Keys.Exist(ctx)
	return !exist, err
}

// presented is what an Authorization header holds: a pair, or a token, which is a secret alone, as
// OpenAI's clients send it, or id:secret.
type presented struct {
	id, secret, token string
	agora             bool // the token is one that Agora's clients make with an app certificate
}

// present reads an Authorization header.
func present(header string) (p presented, ok bool) {
	scheme, rest, _ := strings.Cut(header, " ")
	rest = strings.TrimSpace(rest)
	switch strings.ToLower(scheme) {
	case "basic":
		raw, err := base64.StdEncoding.DecodeString(rest)
		p.id, p.secret, _ = strings.Cut(string(raw), ":")
		return p, err == nil
	case "bearer":
		p.token = rest
	case "agora": // agora token=… and agora token="…"
		token, ok := strings.CutPrefix(rest, "token=")
		if !ok {
			return p, false
		}
		p.token = strings.Trim(token, `"`)
		p.agora = agoratoken.Is(p.token)
	default:
		return p, false
	}
	if p.id, p.secret, ok = strings.Cut(p.token, ":"); !ok {
		p.id, p.secret = access.KeyID(p.token), p.token
	}
	return p, true
}

// check returns the holder of a credential.
func (c *Access) check(ctx context.Context, p presented) (access.Client, error) {
	if p.token != "" {
		// The map's keys are hashes, so that the time of the lookup reveals nothing of the secret.
		hash := sha256.Sum256([]byte(p.token))
		if cred, ok := c.byToken[hash]; ok && subtle.ConstantTimeCompare(hash[:], cred.hash[:]) == 1 {
			return cred.caller(), nil
		}
	}
	if p.agora {
		return c.checkUnguessable(ctx, p)
	}
	// An unknown ID costs the same hash and comparison as a known one.
	hash := sha256.Sum256([]byte(p.secret))
	cred, known := c.byID[p.id]
	if subtle.ConstantTimeCompare(hash[:], cred.hash[:]) == 1 && known {
		return cred.caller(), nil
	}
	return c.checkUnguessable(ctx, p)
}

// checkUnguessable is check for credentials that cannot be guessed: stored keys and Agora's tokens.
func (c *Access) checkUnguessable(ctx context.Context, p presented) (access.Client, error) {
	switch {
	case p.agora:
		return c.checkAgora(p.token)
	case c.Keys == nil:
		return access.Client{}, access.ErrWrong()
	}
	return c.Keys.Check(ctx, p.id, p.secret)
}

// checkAgora returns the holder of a token of Agora's. Apps of end users may hold such tokens, so
// that they open only the calls that Agora's own API has.
func (c *Access) checkAgora(token string) (access.Client, error) {
	t, err := agoratoken.Parse(token)
	if err != nil && len(c.certificates) > 0 {
		return access.Client{}, fault.New(fault.Unauthenticated, "the Agora token cannot be used: %v", err)
	}
	certificates := c.certificates[t.AppID]
	if len(certificates) == 0 {
		return access.Client{}, fault.New(fault.Unauthenticated,
			"this server has no app certificate for the app ID of this Agora token: set HEARDLOG_AGORA_CERTIFICATES, or sign in with a customer ID and secret that are credentials of this server")
	}
	for _, certificate := range certificates {
		if err = t.Verify(certificate.Reveal(), c.now()); !errors.Is(err, agoratoken.ErrSignature) {
			break
		}
	}
	if err != nil {
		return access.Client{}, fault.New(fault.Unauthenticated, "the Agora token is not valid: %v", err)
	}
	return access.Client{Project: t.AppID, ID: "agora-token", Scopes: []access.Scope{access.Read, access.Write}, Until: t.Expires}, nil
}

// needs refuses callers whose credential does not have the scope.
func needs(scope access.Scope, next handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := infoOf(r).caller.May(scope); err != nil {
			return err
		}
		return next(w, r)
	}
}

// validEvery is how often a live tail checks that its key has not ended.
const validEvery = 250 * time.Millisecond

// whileValid ends the context of a long request once the caller's key, token or session has
// ended.
func (c *Access) whileValid(next handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		caller := infoOf(r).caller
		if !caller.Until.IsZero() {
			ctx, end := context.WithDeadlineCause(r.Context(), caller.Until, fault.New(fault.Unauthenticated, "the token has expired"))
			defer end()
			return next(w, r.WithContext(ctx))
		}
		if !caller.Stored && caller.Session == "" {
			return next(w, r)
		}
		ctx, end := context.WithCancelCause(r.Context())
		defer end(nil)
		var check func()
		check = func() {
			var err error
			if caller.Session != "" {
				err = c.Sessions.Valid(ctx, caller.Session)
			}
			if caller.Stored && err == nil {
				err = c.Keys.Valid(ctx, caller.ID)
			}
			if fault.Is(err, fault.Unauthenticated) {
				end(err)
			}
			if ctx.Err() == nil {
				time.AfterFunc(validEvery, check)
			}
		}
		time.AfterFunc(validEvery, check)
		return next(w, r.WithContext(ctx))
	}
}

// enter finds the project of the request's credentials. It refuses a request without one.
func (c *Access) enter(style errorStyle) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			caller, wait, err := c.clientOf(r)
			if err != nil {
				infoOf(r).challenge = c.challenge(r)
				if wait > 0 {
					w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
				}
				answerError(w, r, style, err)
				return
			}
			info := infoOf(r)
			info.project, info.caller = caller.Project, caller
			next.ServeHTTP(w, r)
		})
	}
}

// clientOf returns who makes a request, or how long it must wait before its secret is checked. The
// secret of a stored key is checked at once.
func (c *Access) clientOf(r *http.Request) (_ access.Client, wait time.Duration, _ error) {
	appid := chi.URLParam(r, "appid")
	switch open, err := c.open(r.Context()); {
	case err != nil:
		return access.Client{}, 0, err
	case open && appid == "":
		return access.Client{Project: c.DefaultProject}, 0, nil
	case open && !c.ValidProject(appid):
		return access.Client{}, 0, fault.New(fault.NotFound, "project not found")
	case open:
		return access.Client{Project: appid}, 0, nil
	}
	header := r.Header.Get("Authorization")
	if header == "" {
		if caller, ok, err := c.ofCookie(r); ok {
			return inProject(appid, caller, err)
		}
		return access.Client{}, 0, fault.New(fault.Unauthenticated, "Missing authorization header")
	}
	p, ok := present(header)
	if _, known := c.byToken[sha256.Sum256([]byte(p.token))]; !known {
		if caller, ok, err := c.ofToken(r, p, appid); ok { // a signature cannot be guessed
			return inProject(appid, caller, err)
		}
	}
	attempt := c.guesses.Attempt(r.RemoteAddr, header, p.id)
	wait = attempt.Wait()
	caller, err := access.Client{}, access.ErrWrong()
	switch {
	case ok && wait == 0:
		caller, err = c.check(r.Context(), p)
	case ok: // a right one that cannot be guessed need not wait
		caller, err = c.checkUnguessable(r.Context(), p)
	}
	switch {
	case wait > 0 && fault.Is(err, fault.Unauthenticated):
		return access.Client{}, wait, fault.New(fault.RateLimited, "too many wrong credentials came from this address; wait before the next attempt")
	case fault.Is(err, fault.Unauthenticated):
		attempt.Wrong()
		return access.Client{}, 0, err
	case err != nil:
		return access.Client{}, 0, err
	}
	attempt.Right()
	return inProject(appid, caller, nil)
}

// inProject lets a caller into the project that a path names.
func inProject(appid string, caller access.Client, err error) (access.Client, time.Duration, error) {
	if err == nil && appid != "" && subtle.ConstantTimeCompare([]byte(appid), []byte(caller.Project)) != 1 {
		err = fault.New(fault.NotFound, "project not found")
	}
	return caller, 0, err
}

// localOnly protects an open server from web pages in its user's browser: a page could reach this
// machine under a host name of its own, or send a request that needs no permission. Health checks
// are let through, and so are pages of the origins.
func (c *Access) localOnly(origins []string) func(http.Handler) http.Handler {
	pages := http.NewCrossOriginProtection()
	for _, o := range origins {
		_ = pages.AddTrustedOrigin(o) // package config has checked them
	}
	return func(next http.Handler) http.Handler { return c.local(pages, next) }
}

func (c *Access) local(pages *http.CrossOriginProtection, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" || r.URL.Path == "/readyz" { // without a look into the store
			next.ServeHTTP(w, r)
			return
		}
		// While it is not known, the server counts as open here, and is closed for callers.
		open, unknown := c.open(r.Context())
		var err error
		switch {
		case !open && unknown == nil:
		case !localHost(r.Host):
			err = fault.New(fault.Forbidden, "this server has no credentials configured and answers requests to localhost only, not to host %q", text.Clip(r.Host, 80))
		case pages.Check(r) != nil:
			err = fault.New(fault.Forbidden, "this server has no credentials configured and takes no requests from web pages of other sites")
		}
		if err != nil {
			answerError(w, r, styleOf(r), err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// styleOf returns the form of errors for a path that was not routed.
func styleOf(r *http.Request) errorStyle {
	if openAIPath(r.URL.Path) || r.URL.Path == "/v1/embeddings" {
		return openAIError
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, "/v1/conversations"); ok {
		return conversationStyle(r.Method, rest)
	}
	return agoraError
}

// localHost reports whether a Host header names this machine.
func localHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(strings.TrimSuffix(host, "."), "[]")
	if strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
