package compat_test

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/op"
	"golang.org/x/oauth2"
)

// provider is a real identity provider with a client heardlog, and a user with the name below, the
// subject id1 and the address test-user@zitadel.ch.
type provider struct {
	*storage.Storage
	client *storage.Client
	back   *string // where browsers come back to after a sign-out
}

const (
	providerUser     = "test-user@127.0.0.1"
	providerPassword = "verysecure"
)

// GetClientByClientID implements op.Storage.
func (p provider) GetClientByClientID(context.Context, string) (op.Client, error) {
	return providerClient{p.client, *p.back}, nil
}

type providerClient struct {
	*storage.Client
	back string
}

// PostLogoutRedirectURIs implements op.Client.
func (c providerClient) PostLogoutRedirectURIs() []string { return []string{c.back} }

// AccessTokenType implements op.Client.
func (providerClient) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }

// newProvider starts a provider whose client may come back to the addresses.
func newProvider(t *testing.T, home string, redirects ...string) string {
	t.Helper()
	var routes http.Handler
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { routes.ServeHTTP(w, r) }))
	t.Cleanup(s.Close)
	client := storage.WebClient("heardlog", "hush", redirects...)
	p := provider{storage.NewStorageWithClients(storage.NewUserStore(s.URL), map[string]*storage.Client{"heardlog": client}), client, &home}
	routes = exampleop.SetupServer(s.URL, p, nil, false, op.WithAllowInsecure())
	return s.URL
}

// TestPageSingleSignOn: a person signs in at the provider, comes back to the page of before, and
// signs out here and there.
func TestPageSingleSignOn(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	home := "http://" + addr
	id := newProvider(t, home+"/", home+"/sign-in/callback")
	s := start(t, "HEARDLOG_ADDR="+addr, "HEARDLOG_OIDC_ISSUER="+id, "HEARDLOG_OIDC_CLIENT_ID=heardlog", "HEARDLOG_OIDC_CLIENT_SECRET=hush",
		"HEARDLOG_OIDC_CLAIM=email", "HEARDLOG_OIDC_ROLES=test-user@zitadel.ch=acme:read")
	b := openTab(t, s.url+"/overview")
	b.shows("h1", "Sign in")
	b.accessible()
	b.clicks("a[href='/sign-in']")
	b.types("[name=username]", providerUser)
	b.types("[name=password]", providerPassword+"\n")
	b.do(chromedp.WaitVisible(chromedp.CSS("#project .name"))) // after pages of the provider
	b.shows("header", "project acme test-user@zitadel.ch")
	b.waits(`location.href === "` + s.url + `/overview"`)
	if cookies := value[string](b, `document.cookie`); cookies != "" {
		t.Errorf("scripts can read the cookie %q", cookies)
	}
	b.accessible()
	b.do(chromedp.Navigate(s.url + "/callers"))
	b.shows("header", "test-user@zitadel.ch")
	b.clicks(".project button")
	b.do(chromedp.WaitVisible(chromedp.CSS("form.sign-in"))) // by way of the provider
	b.waits(`location.href === "` + s.url + `/"`)
}

// TestProviderTokens: an access token of a real provider opens the API, and a code works once.
func TestProviderTokens(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	home := "http://" + addr
	back := home + "/sign-in/callback"
	id := newProvider(t, home+"/", back)
	s := start(t, "HEARDLOG_ADDR="+addr, "HEARDLOG_OIDC_ISSUER="+id, "HEARDLOG_OIDC_CLIENT_ID=heardlog", "HEARDLOG_OIDC_CLIENT_SECRET=hush",
		"HEARDLOG_OIDC_CLAIM=sub", "HEARDLOG_OIDC_ROLES=id1=acme:write", "HEARDLOG_OIDC_AUDIENCE=heardlog")
	login := func(address string, cookies http.CookieJar) *url.URL {
		t.Helper()
		c := &http.Client{Jar: cookies, Timeout: patience}
		resp, err := c.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		request := regexp.MustCompile(`name="id" value="([^"]+)"`).FindSubmatch(page)
		if err != nil || request == nil {
			t.Fatalf("%v: no login: %s", err, page)
		}
		var came *url.URL
		c.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
			if strings.HasPrefix(r.URL.String(), back) {
				came = r.URL
				return http.ErrUseLastResponse
			}
			return nil
		}
		resp, err = c.PostForm(id+"/login/username", url.Values{"id": {string(request[1])}, "username": {providerUser}, "password": {providerPassword}})
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if came == nil {
			t.Fatalf("the provider did not send the browser back: %d", resp.StatusCode)
		}
		return came
	}

	client := oauth2.Config{
		ClientID: "heardlog", ClientSecret: "hush", RedirectURL: back, Scopes: []string{"openid"},
		Endpoint: oauth2.Endpoint{AuthURL: id + "/auth", TokenURL: id + "/oauth/token"},
	}
	verifier := oauth2.GenerateVerifier()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	came := login(client.AuthCodeURL("state", oauth2.S256ChallengeOption(verifier)), jar)
	token, err := client.Exchange(t.Context(), came.Query().Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		t.Fatal(err)
	}
	call := func(bearer string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/agents", strings.NewReader(`{"name":"desk"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+bearer)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := call(token.AccessToken); got != http.StatusOK {
		t.Errorf("the access token: %d", got)
	}
	if got := call(token.Extra("id_token").(string)); got != http.StatusUnauthorized {
		t.Errorf("the ID token in place of an access token: %d", got)
	}

	// A stranger who has seen the address cannot use the code, nor can anyone a second time.
	for _, replay := range []bool{false, true} {
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		came := login(s.url+"/sign-in", jar)
		stranger := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		victim := &http.Client{Jar: jar, CheckRedirect: stranger.CheckRedirect}
		if !replay {
			resp, err := stranger.Get(came.String())
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("a stranger with the code: %d", resp.StatusCode)
			}
			continue
		}
		before := jar.Cookies(came)
		for i, want := range []int{http.StatusSeeOther, http.StatusForbidden} {
			jar.SetCookies(came, before)
			resp, err := victim.Get(came.String())
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("the code is used %d times: %d", i+1, resp.StatusCode)
			}
		}
	}
}
