package app

import (
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/heardlog/heardlog/handlers"
	"github.com/heardlog/heardlog/internal/guard"
	"github.com/heardlog/heardlog/internal/oidc"
)

// publicURL returns the address at which others reach this server, "" if it is not known: without
// HEARDLOG_PUBLIC_URL, a loopback address that only this machine reaches.
func (a *App) publicURL() string {
	addr, ok := a.listener.Addr().(*net.TCPAddr)
	if a.cfg.PublicURL == "" && ok && addr.IP.IsLoopback() {
		return "http://" + addr.String()
	}
	return a.cfg.PublicURL
}

// newSignIn adds the identity provider to those that may let callers in, and sets the address of
// the server.
func (a *App) newSignIn(acc *handlers.Access, g *guard.Guard) {
	acc.PublicURL = strings.TrimSuffix(a.publicURL(), "/")
	o := a.cfg.OIDC
	if o.Issuer == "" {
		return
	}
	c := oidc.Config{
		Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: o.ClientSecret.Reveal(), RedirectURL: acc.PublicURL + "/sign-in/callback", Scopes: o.Scopes,
		Audiences: o.Audiences, Claim: o.Claim, Now: a.now,
	}
	if len(c.Audiences) == 0 && acc.PublicURL != "" {
		c.Audiences = []string{acc.PublicURL, acc.PublicURL + "/", acc.PublicURL + "/mcp"}
	}
	for _, r := range o.Roles {
		c.Roles = append(c.Roles, oidc.Role(r))
	}
	transport := &http.Transport{DialContext: g.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: guard.DialTimeout, MaxIdleConnsPerHost: 2}
	a.closes(func(context.Context) error { transport.CloseIdleConnections(); return nil })
	c.Client = &http.Client{Transport: transport}
	acc.OIDC = oidc.New(c)
}
