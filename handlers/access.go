package handlers

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
)

// Access maps credentials to projects. Without credentials the server is open: every caller is let
// in, from this machine only.
type Access struct {
	// DefaultProject is the project of /v1 on an open server.
	DefaultProject string
	byID           map[string]credential
	byToken        map[[sha256.Size]byte]credential
	// ValidProject reports whether a name in a path can be a project.
	ValidProject func(string) bool
}

type credential struct {
	project string
	hash    [sha256.Size]byte
}

// Add lets the holder of id and secret into the project. Only a hash of the secret is kept.
func (c *Access) Add(project, id, secret string) {
	if c.byID == nil {
		c.byID, c.byToken = map[string]credential{}, map[[sha256.Size]byte]credential{}
	}
	cred := credential{project: project, hash: sha256.Sum256([]byte(secret))}
	c.byID[id] = cred
	c.byToken[cred.hash] = cred
}

// open reports whether no credentials are configured.
func (c *Access) open() bool { return len(c.byID) == 0 }

// project returns the project of an Authorization header, "" if it is not valid.
func (c *Access) project(header string) string {
	scheme, rest, _ := strings.Cut(header, " ")
	rest = strings.TrimSpace(rest)
	switch strings.ToLower(scheme) {
	case "basic":
		raw, err := base64.StdEncoding.DecodeString(rest)
		if err != nil {
			return ""
		}
		return c.byPair(string(raw))
	case "bearer":
		return c.byBearer(rest)
	case "agora": // agora token=… and agora token="…"
		token, ok := strings.CutPrefix(rest, "token=")
		if !ok {
			return ""
		}
		return c.byBearer(strings.Trim(token, `"`))
	}
	return ""
}

// byPair takes id:secret. An unknown id costs the same hash and comparison as a known one.
func (c *Access) byPair(pair string) string {
	id, secret, _ := strings.Cut(pair, ":")
	hash := sha256.Sum256([]byte(secret))
	cred, known := c.byID[id]
	if subtle.ConstantTimeCompare(hash[:], cred.hash[:]) != 1 || !known {
		return ""
	}
	return cred.project
}

// byBearer takes a secret alone, as OpenAI's clients send it, or id:secret. The map's keys are
// hashes, so that the time of the lookup reveals nothing of the secret.
func (c *Access) byBearer(token string) string {
	hash := sha256.Sum256([]byte(token))
	if cred, ok := c.byToken[hash]; ok && subtle.ConstantTimeCompare(hash[:], cred.hash[:]) == 1 {
		return cred.project
	}
	if strings.Contains(token, ":") {
		return c.byPair(token)
	}
	return ""
}

// enter finds the project of the request's credentials. It refuses a request without one.
func (c *Access) enter(style errorStyle) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			project, err := c.projectFor(r)
			if err != nil {
				answerError(w, r, style, err)
				return
			}
			infoOf(r).project = project
			next.ServeHTTP(w, r)
		})
	}
}

func (c *Access) projectFor(r *http.Request) (string, error) {
	appid := chi.URLParam(r, "appid")
	if c.open() {
		if appid == "" {
			return c.DefaultProject, nil
		}
		if !c.ValidProject(appid) {
			return "", fault.New(fault.NotFound, "project not found")
		}
		return appid, nil
	}
	header := r.Header.Get("Authorization")
	if header == "" {
		return "", fault.New(fault.Unauthenticated, "Missing authorization header")
	}
	project := c.project(header)
	if project == "" {
		return "", fault.New(fault.Unauthenticated, "the credentials are not valid")
	}
	if appid != "" && subtle.ConstantTimeCompare([]byte(appid), []byte(project)) != 1 {
		return "", fault.New(fault.NotFound, "project not found")
	}
	return project, nil
}

// localOnly protects an open server from web pages in its user's browser: a page could reach this
// machine under a host name of its own, or send a request that needs no permission. Health checks
// are let through.
func localOnly(next http.Handler) http.Handler {
	pages := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		switch {
		case r.URL.Path == "/healthz" || r.URL.Path == "/readyz":
		case !localHost(r.Host):
			err = fault.New(fault.Forbidden, "this server has no credentials configured and answers requests to localhost only, not to host %q", clip(r.Host, 80))
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
	if strings.HasSuffix(r.URL.Path, "/chat/completions") || strings.HasSuffix(r.URL.Path, "/models") || r.URL.Path == "/v1/embeddings" {
		return openAIError
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
