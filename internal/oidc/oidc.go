// Package oidc lets in people and programs that have signed in with an OpenID Connect identity
// provider. A Provider verifies its access tokens, and signs browsers in by its authorization code
// flow.
//
// A claim of the token decides what its holder may do; see Role. Without a role there is no access.
// The provider is asked for its addresses and keys when they are needed first, so that a server
// starts without it.
package oidc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/fault"
)

const (
	timeout    = 5 * time.Second
	retryAfter = time.Second // until a provider that was away is asked again
	maxAnswer  = 1 << 20     // bytes of an answer of the provider
	maxToken   = 16 << 10    // bytes
	maxSubject = 255         // characters, as OpenID Connect has it
	skew       = time.Minute // between the clocks of the provider and this server
)

// Prefix begins the client IDs of those who have signed in with the provider.
const Prefix = "oidc:"

// Role is the role in a project of those whose claim has a value.
type Role struct{ Value, Project, Role string }

// Roles lists the roles, each with the scopes that it has.
func Roles() []struct {
	Name   string
	Scopes []access.Scope
} {
	return []struct {
		Name   string
		Scopes []access.Scope
	}{
		{"read", []access.Scope{access.Read}},
		{"write", []access.Scope{access.Read, access.Write, access.Proxy}},
		{"admin", []access.Scope{access.Admin}},
	}
}

// Config is the provider and what is taken from its tokens.
type Config struct {
	Issuer       string
	ClientID     string // "" = browsers cannot sign in
	ClientSecret string // "" = a public client
	RedirectURL  string
	Scopes       []string // that sign-ins ask for
	// Audiences are those of access tokens; a token must be for one of them. Empty = no tokens.
	Audiences []string
	Claim     string // its name, or a path with dots; see values
	Roles     []Role
	Client    *http.Client // its transport guards the addresses
	Now       func() time.Time
}

// Provider is the identity provider. Create it with New. It is safe for concurrent use.
type Provider struct {
	Config
	settings string // a hash of what decides over roles
	keys     *keySet
	loads    singleflight.Group

	mu     sync.Mutex
	found  *discovered
	failed error
	tried  time.Time
}

// discovered is what the provider says about itself.
type discovered struct {
	*oidc.Provider
	Keys       string `json:"jwks_uri"`
	EndSession string `json:"end_session_endpoint"`
}

// New returns the provider. It does not call it.
func New(c Config) *Provider {
	client := *c.Client
	client.Timeout = timeout
	client.Transport = limited{client.Transport}
	client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return errors.New("the identity provider redirects; its addresses must be the final ones")
	}
	c.Client = &client
	p := &Provider{Config: c}
	hash := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", c.Issuer, c.ClientID, c.Claim, c.Roles))
	p.settings = hex.EncodeToString(hash[:8])
	p.keys = &keySet{now: c.Now, fetch: p.fetchKeys}
	return p
}

// limited limits what is read of an answer.
type limited struct{ http.RoundTripper }

// RoundTrip sends a request.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}

// away is the error of a provider that does not answer, or not as one.
func (p *Provider) away(err error) error {
	return fault.Wrap(fault.Unavailable, err, "the identity provider "+p.Issuer+" cannot be reached, so nobody can sign in with it now; API keys work")
}

// discover returns what the provider says about itself. It fails with fault.Unavailable.
func (p *Provider) discover(ctx context.Context) (*discovered, error) {
	p.mu.Lock()
	found, failed, wait := p.found, p.failed, p.Now().Sub(p.tried) < retryAfter
	p.mu.Unlock()
	if found != nil {
		return found, nil
	}
	if failed != nil && wait {
		return nil, failed
	}
	out, err, _ := p.loads.Do("", func() (any, error) {
		ctx, cancel := context.WithTimeout(p.context(context.WithoutCancel(ctx)), timeout)
		defer cancel()
		var d discovered
		provider, err := oidc.NewProvider(ctx, p.Issuer)
		if err == nil {
			d.Provider, err = provider, provider.Claims(&d)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tried = p.Now()
		if mismatch, ok := errors.AsType[*oidc.IssuerMismatchError](err); ok {
			p.failed = fault.Wrap(fault.Unavailable, mismatch, "the identity provider at HEARDLOG_OIDC_ISSUER names another issuer, so nobody can sign in with it; API keys work")
		} else if err != nil {
			p.failed = p.away(err)
		} else {
			p.found, p.failed = &d, nil
		}
		return p.found, p.failed
	})
	if err != nil {
		return nil, err
	}
	return out.(*discovered), nil
}

// context returns a context for the calls of the libraries.
func (p *Provider) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient, p.Client)
}

func (p *Provider) fetchKeys(ctx context.Context) ([]jose.JSONWebKey, error) {
	d, err := p.discover(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := fetchKeys(ctx, p.Client, d.Keys)
	if err != nil {
		return nil, p.away(err)
	}
	return keys, nil
}

// IsToken reports whether a bearer token has the form of a signed JWT. No API key has it: a key
// begins with hl_, and id:secret has a colon.
func IsToken(s string) bool {
	return strings.HasPrefix(s, "ey") && strings.Count(s, ".") == 2 && !strings.ContainsAny(s, ": ")
}

// claims are those of a token that are checked, and all as they came.
type claims struct {
	Expires   *float64 `json:"exp"`
	NotBefore float64  `json:"nbf"`
	IssuedAt  float64  `json:"iat"`
	Type      string   `json:"typ"` // of Keycloak
	Nonce     string   `json:"nonce"`
	AccessSum string   `json:"at_hash"`
	CodeSum   string   `json:"c_hash"`
	Party     string   `json:"azp"`
	Bound     any      `json:"cnf"` // to a key of its holder

	token *oidc.IDToken
	kind  string // typ of the header
	all   map[string]any
}

// verified is a payload whose signature was checked.
type verified []byte

// VerifySignature implements oidc.KeySet.
func (v verified) VerifySignature(context.Context, string) ([]byte, error) { return v, nil }

func wrong(format string, args ...any) error {
	return fault.New(fault.Unauthenticated, "the token is not valid: "+format, args...)
}

// verify checks the signature, the issuer and the times of a token. It fails with
// fault.Unauthenticated, or with fault.Unavailable if the provider is away.
func (p *Provider) verify(ctx context.Context, raw string) (*claims, error) {
	if len(raw) > maxToken {
		return nil, wrong("it is longer than %d bytes", maxToken)
	}
	signed, err := jose.ParseSignedCompact(raw, algorithms())
	if err != nil {
		return nil, fault.Wrap(fault.Unauthenticated, err, "the token is not valid: it is not a JWT with a signature that is accepted")
	}
	payload, err := p.keys.verify(ctx, signed)
	if err != nil {
		return nil, err
	}
	var algs []string
	for _, a := range algorithms() {
		algs = append(algs, string(a))
	}
	check := oidc.NewVerifier(p.Issuer, verified(payload), &oidc.Config{SkipClientIDCheck: true, SkipExpiryCheck: true, SupportedSigningAlgs: algs})
	c := &claims{}
	if c.token, err = check.Verify(ctx, raw); err != nil {
		return nil, fault.Wrap(fault.Unauthenticated, err, "the token is not valid: it is not of this identity provider")
	}
	c.kind, _ = signed.Signatures[0].Header.ExtraHeaders[jose.HeaderType].(string)
	if json.Unmarshal(payload, c) != nil || json.Unmarshal(payload, &c.all) != nil {
		return nil, wrong("its claims cannot be read")
	}
	now := float64(p.Now().Unix())
	switch {
	case c.Expires == nil || *c.Expires < 1:
		return nil, wrong("it never expires")
	case *c.Expires+skew.Seconds() <= now:
		return nil, wrong("it has expired")
	case max(c.NotBefore, c.IssuedAt) > now+skew.Seconds():
		return nil, wrong("its time has not come yet; compare the clocks of this server and of the identity provider")
	case c.token.Subject == "" || len(c.token.Subject) > maxSubject || strings.ContainsFunc(c.token.Subject, func(r rune) bool { return !unicode.IsPrint(r) }):
		return nil, wrong("it has no subject of 1 to %d printable characters", maxSubject)
	}
	return c, nil
}

// Bearer returns the holder of an access token in a project; "" is the only one that the token has
// a role in. It fails with fault.Unauthenticated for a token that is not valid or not for this
// server, with fault.Forbidden for one without a role, and with fault.Unavailable if the provider
// is away and its keys are not known.
func (p *Provider) Bearer(ctx context.Context, raw, project string) (access.Client, error) {
	c, err := p.verify(ctx, raw)
	if err != nil {
		return access.Client{}, err
	}
	kind := strings.TrimPrefix(strings.ToLower(c.kind), "application/")
	switch {
	case kind != "" && kind != "jwt" && kind != "at+jwt", c.Nonce != "", c.AccessSum != "", c.CodeSum != "", c.Type != "" && !strings.EqualFold(c.Type, "bearer"):
		return access.Client{}, wrong("it is not an access token")
	case c.Bound != nil:
		return access.Client{}, wrong("it is bound to a key of its holder (cnf), which cannot be checked here")
	case !slices.ContainsFunc(c.token.Audience, p.accepts):
		return access.Client{}, wrong("it is not for this server; HEARDLOG_OIDC_AUDIENCE lists the audiences that are accepted")
	}
	client, err := p.client(c.token.Subject, c.all, project)
	client.Until = time.Unix(int64(*c.Expires), 0).Add(skew)
	return client, err
}

// accepts reports whether an audience is this server. The address of MCP may have parameters.
func (p *Provider) accepts(audience string) bool {
	address, _, _ := strings.Cut(audience, "?")
	return slices.Contains(p.Audiences, audience) || slices.Contains(p.Audiences, address)
}

// client returns what claims allow in a project.
func (p *Provider) client(subject string, all map[string]any, project string) (access.Client, error) {
	projects, roles := p.rolesOf(all)
	switch {
	case len(projects) == 0:
		return access.Client{}, fault.New(fault.Forbidden, "you have signed in, but have no role here: HEARDLOG_OIDC_ROLES names no value of your claim %s", p.Claim)
	case project == "" && len(projects) > 1:
		return access.Client{}, fault.New(fault.BadRequest, "you have roles in the projects %s: name one in the header X-Heardlog-Project", strings.Join(projects, ", "))
	case project == "":
		project = projects[0]
	}
	scopes, ok := roles[project]
	if !ok {
		return access.Client{}, fault.New(fault.Forbidden, "you have signed in, but have no role in the project %.130q", project)
	}
	return access.Client{Project: project, ID: Prefix + subject, Person: personOf(all), Scopes: scopes}, nil
}

// rolesOf returns the projects in which claims give a role, in the order of the settings, and the
// scopes of the highest in each.
func (p *Provider) rolesOf(all map[string]any) (projects []string, scopes map[string][]access.Scope) {
	values := p.values(all)
	scopes = map[string][]access.Scope{}
	for _, r := range p.Roles {
		if slices.Contains(values, r.Value) && !slices.Contains(projects, r.Project) {
			projects = append(projects, r.Project)
		}
	}
	for _, role := range Roles() { // the highest is the last
		for _, r := range p.Roles {
			if r.Role == role.Name && slices.Contains(values, r.Value) {
				scopes[r.Project] = role.Scopes
			}
		}
	}
	return projects, scopes
}

// values returns the texts of the claim that decides over roles. An address counts only if the
// provider has verified it: at some, people write it themselves.
func (p *Provider) values(all map[string]any) []string {
	switch v := claimAt(all, p.Claim).(type) {
	case string:
		switch p.Claim {
		case "email":
			if ok := all["email_verified"]; ok != true && ok != "true" {
				return nil
			}
		case "scope", "scp":
			return strings.Fields(v)
		}
		return []string{v}
	case []any:
		var out []string
		for _, one := range v {
			if s, ok := one.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}

// claimAt returns a claim by its name, which may be a URL, or by a path such as realm_access.roles.
func claimAt(all map[string]any, path string) any {
	if v, ok := all[path]; ok {
		return v
	}
	first, rest, ok := strings.Cut(path, ".")
	inner, isObject := all[first].(map[string]any)
	if !ok || !isObject {
		return nil
	}
	return claimAt(inner, rest)
}

// personOf returns a name for a person to read.
func personOf(all map[string]any) string {
	for _, name := range []string{"email", "preferred_username", "name", "sub"} {
		if s, ok := all[name].(string); ok && s != "" {
			return strings.ToValidUTF8(s[:min(len(s), 200)], "")
		}
	}
	return ""
}
