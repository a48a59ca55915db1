package handlers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/oidc"
	"github.com/heardlog/heardlog/internal/page"
)

// projectHeader names the project of a call whose token has roles in several.
const projectHeader = "X-Heardlog-Project"

// ofToken returns the holder of an access token of the identity provider. ok is false for any other
// credential.
func (c *Access) ofToken(r *http.Request, p presented, project string) (_ access.Client, ok bool, _ error) {
	if c.OIDC == nil || !oidc.IsToken(p.token) {
		return access.Client{}, false, nil
	}
	if project == "" {
		project = r.Header.Get(projectHeader)
	}
	if project == "" && r.URL.Path == mcpPath { // its clients may not be able to send headers
		project = r.URL.Query().Get("project")
	}
	client, err := c.OIDC.Bearer(r.Context(), p.token, project)
	return client, true, err
}

// challenge returns the WWW-Authenticate header of a call without valid credentials, which leads
// clients of MCP to the identity provider; "" without one. Some clients read the first challenge
// only.
func (c *Access) challenge(r *http.Request) string {
	if c.OIDC == nil {
		return ""
	}
	var b strings.Builder
	b.WriteString(`Bearer realm="heardlog"`)
	if r.Header.Get("Authorization") != "" {
		b.WriteString(`, error="invalid_token"`)
	}
	metadata, basic := metadataPath, `, Basic realm="heardlog"`
	if r.URL.Path == mcpPath {
		metadata, basic = metadataPath+mcpPath, ""
	}
	b.WriteString(`, scope="` + strings.Join(c.OIDC.Scopes, " ") + `", resource_metadata="` + c.PublicURL + metadata + `"` + basic)
	return b.String()
}

const (
	mcpPath      = "/mcp"
	metadataPath = "/.well-known/oauth-protected-resource"
	signInPath   = "/sign-in"
)

// signInAPI signs browsers in with the identity provider, and describes the server to clients of
// OAuth.
type signInAPI struct {
	access *Access
	log    zerolog.Logger
}

// resourceJSON is the metadata of a protected resource (RFC 9728).
type resourceJSON struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported"`
	Methods  []string `json:"bearer_methods_supported"`
	Name     string   `json:"resource_name"`
}

// metadata returns a handler that describes the resource at a path. Asked with a query, it
// describes the resource with that query, as clients that compare addresses exactly want it.
func (a signInAPI) metadata(path string) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		p := a.access.OIDC
		if p == nil {
			return fault.New(fault.NotFound, "this server takes no tokens of an identity provider: HEARDLOG_OIDC_ISSUER is not set")
		}
		resource := a.access.PublicURL + path
		if r.URL.RawQuery != "" {
			resource += "?" + r.URL.RawQuery
		}
		w.Header().Set("Access-Control-Allow-Origin", "*") // nothing in it is secret
		return encode(w, http.StatusOK, resourceJSON{
			Resource: resource, Servers: []string{p.Issuer}, Scopes: p.Scopes, Methods: []string{"header"}, Name: "Heardlog",
		})
	}
}

// attemptLife is how long a browser may stay at the provider.
const attemptLife = 10 * time.Minute

// attemptCookie names the cookie that holds the sign-in that a browser has begun.
func (a signInAPI) attemptCookie(r *http.Request) string {
	return a.access.cookieName(r, "heardlog_sign_in")
}

// begin sends a browser to the identity provider.
func (a signInAPI) begin(w http.ResponseWriter, r *http.Request) error {
	p := a.access.OIDC
	if p == nil || p.ClientID == "" {
		return errNoSignIn()
	}
	q := r.URL.Query()
	back := q.Get("return")
	if from, err := url.Parse(r.Header.Get("Referer")); err == nil && back == "" {
		back = from.RequestURI()
	}
	address, attempt, err := p.Begin(r.Context(), q.Get("project"), localPath(back))
	if err != nil {
		return a.failed(w, r, err)
	}
	value, err := json.Marshal(attempt)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "failed to encode a sign-in")
	}
	a.access.setCookie(w, r, a.attemptCookie(r), base64.RawURLEncoding.EncodeToString(value), time.Now().Add(attemptLife), http.SameSiteLaxMode)
	redirect(w, address)
	return nil
}

func errNoSignIn() error {
	return fault.New(fault.NotFound, "this server has no sign-in with an identity provider: HEARDLOG_OIDC_CLIENT_ID is not set")
}

// finish makes a session for a browser that comes back from the identity provider.
func (a signInAPI) finish(w http.ResponseWriter, r *http.Request) error {
	p := a.access.OIDC
	if p == nil || p.ClientID == "" {
		return errNoSignIn()
	}
	var attempt oidc.Attempt
	cookie, err := r.Cookie(a.attemptCookie(r))
	if err == nil {
		var raw []byte
		if raw, err = base64.RawURLEncoding.DecodeString(cookie.Value); err == nil {
			err = json.Unmarshal(raw, &attempt)
		}
	}
	if err != nil {
		return a.failed(w, r, fault.New(fault.BadRequest, "this browser has not begun to sign in at %s, or more than %d minutes ago: sign in again", a.access.PublicURL, int(attemptLife.Minutes())))
	}
	a.access.setCookie(w, r, a.attemptCookie(r), "", time.Unix(1, 0), http.SameSiteLaxMode)
	who, err := p.Finish(r.Context(), attempt, r.URL.Query())
	if err != nil {
		return a.failed(w, r, err)
	}
	if err := a.access.endSession(r); err != nil { // the browser's session of before
		return a.failed(w, r, err)
	}
	if err := a.access.begin(w, r, who.Project, access.Key{Name: "oidc", Scopes: who.Scopes, SignIn: &who.SignIn}); err != nil {
		return a.failed(w, r, err)
	}
	a.log.Info().Str("request_id", infoOf(r).id).Str("project", who.Project).Str("by", who.ID).Msg("signed in")
	redirect(w, localPath(attempt.Return))
	return nil
}

// failed shows a person why the sign-in failed.
func (a signInAPI) failed(w http.ResponseWriter, r *http.Request, err error) error {
	infoOf(r).err = err
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Code == fault.Internal {
		return err
	}
	if r.Context().Err() != nil {
		return context.Cause(r.Context())
	}
	status := Status(e.Code)
	if status == http.StatusUnauthorized { // no header of a request would help
		status = http.StatusForbidden
	}
	page.SignInFailed(w, status, e.Msg)
	return nil
}

// redirect sends a browser on. No cache keeps the answer.
func redirect(w http.ResponseWriter, address string) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Location", address)
	w.WriteHeader(http.StatusSeeOther)
}

// localPath returns the path and query of a page of this server, "/" for everything else.
func localPath(s string) string {
	u, err := url.Parse(s)
	if err != nil || len(s) > 2000 || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(s, "/") ||
		strings.HasPrefix(u.Path, "//") || strings.ContainsAny(u.Path, "\\\t\r\n") || strings.HasPrefix(u.Path, signInPath) {
		return "/"
	}
	return u.RequestURI()
}
