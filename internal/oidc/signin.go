package oidc

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"net/url"
	"slices"

	"golang.org/x/oauth2"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/fault"
)

// Attempt is a sign-in that a browser has begun. The browser keeps it until it comes back from the
// provider.
type Attempt struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"` // of PKCE
	Project  string `json:"project,omitempty"`
	Return   string `json:"return"` // path of the page to go back to
}

// SignedIn is who has signed in with a browser.
type SignedIn struct {
	access.Client
	access.SignIn
}

// Begin returns where to send a browser that signs in, and what it must bring back. It fails with
// fault.Unavailable if the provider is away.
func (p *Provider) Begin(ctx context.Context, project, back string) (address string, a Attempt, err error) {
	d, err := p.discover(ctx)
	if err != nil {
		return "", a, err
	}
	a = Attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Project: project, Return: back}
	return p.oauth(d).AuthCodeURL(a.State, oauth2.S256ChallengeOption(a.Verifier), oauth2.SetAuthURLParam("nonce", a.Nonce)), a, nil
}

func (p *Provider) oauth(d *discovered) *oauth2.Config {
	return &oauth2.Config{ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: d.Endpoint(), RedirectURL: p.RedirectURL, Scopes: p.Scopes}
}

// Finish returns who has signed in, from the parameters that the provider sent the browser back
// with. It fails with fault.BadRequest if they do not belong to the attempt, with
// fault.Unauthenticated if the provider does not confirm them, with fault.Forbidden for people
// without a role, and with fault.Unavailable if the provider is away.
func (p *Provider) Finish(ctx context.Context, a Attempt, q url.Values) (s SignedIn, err error) {
	switch {
	case a.State == "" || subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(a.State)) != 1:
		return s, fault.New(fault.BadRequest, "this is not the answer to a sign-in that this browser began: sign in again")
	case q.Has("iss") && q.Get("iss") != p.Issuer:
		return s, fault.New(fault.BadRequest, "the answer comes from another identity provider: sign in again")
	case q.Has("error"):
		return s, fault.New(fault.Unauthenticated, "the identity provider refused the sign-in: %.200q %.300q", q.Get("error"), q.Get("error_description"))
	}
	d, err := p.discover(ctx)
	if err != nil {
		return s, err
	}
	ctx, cancel := context.WithTimeout(p.context(ctx), 2*timeout)
	defer cancel()
	token, err := p.oauth(d).Exchange(ctx, q.Get("code"), oauth2.VerifierOption(a.Verifier))
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.Response.StatusCode < 500 {
		return s, fault.Wrap(fault.Unauthenticated, errors.New(refused.ErrorCode), "the identity provider did not accept the sign-in: begin it again; if that does not help, compare HEARDLOG_OIDC_CLIENT_ID and HEARDLOG_OIDC_CLIENT_SECRET with its settings")
	}
	if err != nil {
		return s, p.away(err)
	}
	raw, _ := token.Extra("id_token").(string)
	c, err := p.verify(ctx, raw)
	if err != nil {
		return s, err
	}
	switch {
	case !slices.Contains(c.token.Audience, p.ClientID), len(c.token.Audience) > 1 && c.Party != p.ClientID:
		return s, wrong("it is for another client of the identity provider")
	case subtle.ConstantTimeCompare([]byte(c.Nonce), []byte(a.Nonce)) != 1:
		return s, wrong("it belongs to another sign-in")
	}
	if claimAt(c.all, p.Claim) == nil { // some providers keep tokens small
		if err := p.addUserInfo(ctx, d, token, c); err != nil {
			return s, err
		}
	}
	project := a.Project
	if projects, _ := p.rolesOf(c.all); project == "" && len(projects) > 0 {
		project = projects[0]
	}
	client, err := p.client(c.token.Subject, c.all, project)
	if err != nil {
		return s, err
	}
	s = SignedIn{client, access.SignIn{Subject: c.token.Subject, Person: client.Person, Settings: p.settings}}
	if len(raw) <= maxHint {
		s.Hint = raw
	}
	return s, nil
}

// maxHint is the longest ID token that is kept for the sign-out, in bytes. It is part of an address
// then.
const maxHint = 4 << 10

// addUserInfo adds the claims of the provider's user info to those of the ID token.
func (p *Provider) addUserInfo(ctx context.Context, d *discovered, token *oauth2.Token, c *claims) error {
	if d.UserInfoEndpoint() == "" {
		return nil
	}
	info, err := d.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return p.away(err)
	}
	var more map[string]any
	if info.Subject != c.token.Subject || info.Claims(&more) != nil {
		return wrong("the user info is of another person")
	}
	for name, v := range more {
		if c.all[name] == nil {
			c.all[name] = v
		}
	}
	return nil
}

// Holds reports whether a session that began with a sign-in may go on: the settings still give the
// roles that it has.
func (p *Provider) Holds(s access.SignIn) bool {
	return p != nil && p.ClientID != "" && p.settings == s.Settings
}

// SignOut returns where to send a browser that has signed out here, so that it signs out at the
// provider, too; "" if the provider has no such address.
func (p *Provider) SignOut(ctx context.Context, s access.SignIn, back string) string {
	d, err := p.discover(ctx)
	if err != nil {
		return ""
	}
	u, err := url.Parse(d.EndSession)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return ""
	}
	q := u.Query()
	q.Set("client_id", p.ClientID)
	q.Set("post_logout_redirect_uri", back)
	if s.Hint != "" {
		q.Set("id_token_hint", s.Hint)
	}
	u.RawQuery = q.Encode()
	return u.String()
}
