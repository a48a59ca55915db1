package tests

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/heardlog/heardlog/internal/access"
)

// issuer is an identity provider that issues whatever a test wants. Package compat has a real one.
type issuer struct {
	t   *testing.T
	url string

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	signer  jose.Signer
	down    bool
	fetched int            // how often the keys were fetched
	answer  map[string]any // of the token endpoint
	asked   url.Values     // by the token endpoint's last call
	info    map[string]any // of the user info
}

// issuerAt serves a provider at an address; "" is any.
func issuerAt(t *testing.T, address string) *issuer {
	t.Helper()
	i := &issuer{t: t}
	s := httptest.NewUnstartedServer(i)
	if address != "" {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Listener.Close()
		s.Listener = l
	}
	s.Start()
	t.Cleanup(s.Close)
	i.url = s.URL
	i.rotate("k1")
	return i
}

// rotate makes a new key the only one.
func (i *issuer) rotate(id string) *rsa.PrivateKey {
	i.t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		i.t.Fatal(err)
	}
	signer := signerOf(i.t, jose.RS256, key, id)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys, i.signer = []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: id, Use: "sig"}}, signer
	return key
}

func signerOf(t *testing.T, alg jose.SignatureAlgorithm, key any, id string) jose.Signer {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: id}}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ServeHTTP implements http.Handler.
func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out any
	switch {
	case i.down:
		w.WriteHeader(http.StatusBadGateway)
		return
	case r.URL.Path == "/.well-known/openid-configuration":
		out = map[string]any{
			"issuer": i.url, "authorization_endpoint": i.url + "/authorize", "token_endpoint": i.url + "/token", "jwks_uri": i.url + "/keys",
			"userinfo_endpoint": i.url + "/userinfo", "end_session_endpoint": i.url + "/logout",
		}
	case r.URL.Path == "/keys":
		i.fetched++
		out = jose.JSONWebKeySet{Keys: i.keys}
	case r.URL.Path == "/userinfo":
		out = i.info
	case r.URL.Path == "/token" && i.answer != nil && r.ParseForm() == nil:
		i.asked, out = r.PostForm, i.answer
	default:
		w.WriteHeader(http.StatusBadRequest)
		out = map[string]string{"error": "invalid_grant"}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

func (i *issuer) set(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

// claims are those of an access token that is right, with changes; nil removes one.
func (i *issuer) claims(s *server, changes map[string]any) map[string]any {
	now := time.Now().Unix()
	out := map[string]any{"iss": i.url, "sub": "u-1", "aud": []string{"else", s.url}, "exp": now + 300, "iat": now, "groups": []string{"support"}}
	maps.Copy(out, changes)
	maps.DeleteFunc(out, func(_ string, v any) bool { return v == nil })
	return out
}

func sign(t *testing.T, s jose.Signer, claims any) string {
	t.Helper()
	raw, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := s.Sign(raw)
	if err != nil {
		t.Fatal(err)
	}
	out, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// token returns an access token as header of a request.
func (i *issuer) token(s *server, changes map[string]any) []string {
	i.t.Helper()
	i.mu.Lock()
	signer := i.signer
	i.mu.Unlock()
	return []string{"Authorization", "Bearer " + sign(i.t, signer, i.claims(s, changes))}
}

const oidcRoles = "HEARDLOG_OIDC_ROLES=support=shop:read,makers=shop:write,ops=shop:admin,ops=lab:read,CN=x;OU=y=lab:write"

func (i *issuer) server(more ...string) *server {
	i.t.Helper()
	return start(i.t, append([]string{"HEARDLOG_OIDC_ISSUER=" + i.url, oidcRoles, "HEARDLOG_CREDENTIALS=shop=alice:wonder"}, more...)...)
}

// TestTokens: an access token has the rights of its holder's role, and no other token has any.
func TestTokens(t *testing.T) {
	t.Parallel()
	i := issuerAt(t, "")
	s := i.server()
	key := i.rotate("k1")
	forger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s.get(v1+"/agents", i.token(s, nil)...).ok(nil)
	now := time.Now().Unix()
	for name, changes := range map[string]map[string]any{
		"for another server":       {"aud": "https://other.example"},
		"without an audience":      {"aud": nil},
		"of another issuer":        {"iss": "https://evil.example"},
		"expired":                  {"exp": now - 120},
		"that never expires":       {"exp": nil},
		"whose time is to come":    {"nbf": now + 120},
		"issued in the future":     {"iat": now + 120},
		"without a subject":        {"sub": ""},
		"that is an ID token":      {"nonce": "n"},
		"with a hash of another":   {"at_hash": "h"},
		"that is a refresh token":  {"typ": "Refresh"},
		"bound to a key":           {"cnf": map[string]string{"jkt": "x"}},
		"that is too long":         {"x": strings.Repeat("x", 20<<10)},
		"with an odd subject":      {"sub": "a\nb"},
		"whose times are no times": {"exp": "tomorrow"},
	} {
		got := s.get(v1+"/agents", i.token(s, changes)...).refused(http.StatusUnauthorized, "InvalidPermission", "token")
		if c := got.header.Get("WWW-Authenticate"); !strings.Contains(c, `error="invalid_token"`) {
			t.Errorf("a token %s: WWW-Authenticate %q", name, c)
		}
	}
	right := i.claims(s, map[string]any{"groups": "ops"})
	parts := strings.Split(sign(t, i.signer, right), ".")
	none := "eyJhbGciOiJub25lIn0." + parts[1] + "."
	public, err := json.Marshal(jose.JSONWebKey{Key: &key.PublicKey})
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{
		"without a signature":         none,
		"with another's signature":    none + parts[2],
		"signed with the public key":  sign(t, signerOf(t, jose.HS256, public, "k1"), right),
		"of a forger":                 sign(t, signerOf(t, jose.RS256, forger, "k1"), right),
		"of a forger with his own ID": sign(t, signerOf(t, jose.RS256, forger, "k2"), right),
		"of a forger without ID":      sign(t, signerOf(t, jose.RS256, forger, ""), right),
		"that was changed":            parts[0] + "." + parts[1] + "x." + parts[2],
		"that is none":                "eyJ.a.b",
	} {
		got := s.get(v1+"/agents", "Authorization", "Bearer "+token)
		if got.status != http.StatusUnauthorized {
			t.Errorf("a token %s: %d %s", name, got.status, got.body)
		}
	}
	for range 2 * access.GuessesPerAddress { // a wrong token is not a guess
		s.get(v1+"/agents", "Authorization", "Bearer "+none).is(http.StatusUnauthorized, nil)
	}
	s.get(v1+"/agents", i.token(s, map[string]any{"exp": now - 30, "nbf": now + 30})...).ok(nil)

	s.get(v1+"/agents", i.token(s, map[string]any{"groups": []string{"others"}})...).refused(http.StatusForbidden, "InvalidPermission", "no role", "HEARDLOG_OIDC_ROLES")
	s.get(v1+"/agents", i.token(s, map[string]any{"groups": nil})...).refused(http.StatusForbidden, "InvalidPermission", "no role")
	s.get(v1+"/agents", "Authorization", basic("alice", "wonder")).ok(nil)
}

// TestTokenRoles: a role opens the calls of its scopes, in its project.
func TestTokenRoles(t *testing.T) {
	t.Parallel()
	i := issuerAt(t, "")
	s := i.server()
	reader, maker := i.token(s, nil), i.token(s, map[string]any{"groups": []string{"support", "makers"}})
	s.do("POST", v1+"/agents", `{"name":"x"}`, reader...).refused(http.StatusForbidden, "InvalidPermission", "scope write", "oidc:u-1")
	s.do("POST", v1+"/agents", `{"name":"x"}`, maker...).ok(nil)
	s.get(v1+"/webhooks/endpoints", maker...).refused(http.StatusForbidden, "InvalidPermission", "scope webhooks")
	s.get("/api/conversational-ai-agent/v2/projects/shop/agents", reader...).ok(nil)
	s.get("/api/conversational-ai-agent/v2/projects/lab/agents", reader...).refused(http.StatusForbidden, "InvalidPermission", "no role in the project")

	ops := i.token(s, map[string]any{"groups": "ops"})
	s.get(v1+"/session", ops...).refused(http.StatusBadRequest, "InvalidRequestBody", "shop, lab", "X-Heardlog-Project")
	var who struct {
		Project, Person string
		Scopes          []string
	}
	s.get(v1+"/session", append(ops, "X-Heardlog-Project", "lab")...).ok(&who)
	if who.Project != "lab" || strings.Join(who.Scopes, ",") != "read" || who.Person != "u-1" {
		t.Errorf("ops in lab: %+v", who)
	}
	s.get(v1+"/session", append(ops, "X-Heardlog-Project", "default")...).refused(http.StatusForbidden, "InvalidPermission", "no role in the project")
	s.do("POST", v1+"/session", nil, append(ops, "X-Heardlog-Project", "shop")...).refused(http.StatusForbidden, "InvalidPermission", "token cannot sign in")

	s.do("POST", v1+"/keys", `{"name":"k","scopes":["read"]}`, append(ops, "X-Heardlog-Project", "shop")...).is(http.StatusCreated, nil)
	var log struct{ Acts []struct{ By, Act string } }
	s.get(v1+"/audit", "Authorization", basic("alice", "wonder")).ok(&log)
	if len(log.Acts) != 1 || log.Acts[0].By != "oidc:u-1" {
		t.Errorf("the audit log has %+v", log.Acts)
	}

	for claim, claims := range map[string]map[string]any{
		"realm_access.roles":     {"realm_access": map[string]any{"roles": []string{"support"}}},
		"https://h.example/role": {"https://h.example/role": "support"},
		"scope":                  {"scope": "openid support"},
		"email":                  {"email": "support", "email_verified": true},
	} {
		s := i.server("HEARDLOG_OIDC_CLAIM="+claim, "HEARDLOG_OIDC_AUDIENCE=api://heardlog")
		claims["aud"] = "api://heardlog"
		s.get(v1+"/agents", i.token(s, claims)...).ok(nil)
		if claim == "email" {
			claims["email_verified"] = false
			s.get(v1+"/agents", i.token(s, claims)...).is(http.StatusForbidden, nil)
		}
		claims["aud"] = s.url
		s.get(v1+"/agents", i.token(s, claims)...).is(http.StatusUnauthorized, nil)
	}
}

// TestTokenKeys: a new key of the provider is taken at once, and forged ones do not flood it.
func TestTokenKeys(t *testing.T) {
	t.Parallel()
	i := issuerAt(t, "")
	s := i.server()
	s.get(v1+"/agents", i.token(s, nil)...).ok(nil)
	old := i.token(s, nil)
	i.rotate("k2")
	for since := time.Now(); s.get(v1+"/agents", i.token(s, nil)...).status != http.StatusOK; {
		if time.Since(since) > patience {
			t.Fatal("the new key is not taken")
		}
	}
	s.get(v1+"/agents", old...).is(http.StatusUnauthorized, nil)
	forger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	forged := "Bearer " + sign(t, signerOf(t, jose.RS256, forger, "mine"), i.claims(s, nil))
	i.set(func() { i.fetched = 0 })
	since := time.Now()
	for range 300 {
		s.get(v1+"/agents", "Authorization", forged).is(http.StatusUnauthorized, nil)
	}
	i.set(func() {
		if n := i.fetched; n > 2+int(time.Since(since)/time.Second) {
			t.Errorf("300 forged tokens had the keys fetched %d times", n)
		}
	})
}

// TestProviderAway: without the provider the server starts, and keys work. What is known of the
// provider goes on to work.
func TestProviderAway(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	s := start(t, "HEARDLOG_OIDC_ISSUER=http://"+address, oidcRoles, "HEARDLOG_OIDC_CLIENT_ID=heardlog", "HEARDLOG_CREDENTIALS=shop=alice:wonder")
	s.get(v1+"/agents", "Authorization", "Bearer eyJhbGciOiJSUzI1NiJ9.e30.c2ln").refused(http.StatusServiceUnavailable, "ServiceUnavailable", "identity provider", "API keys work")
	if got := s.get("/sign-in"); got.status != http.StatusServiceUnavailable || !strings.Contains(string(got.body), "cannot be reached") {
		t.Errorf("/sign-in: %d %s", got.status, got.body)
	}
	s.get(v1+"/agents", "Authorization", basic("alice", "wonder")).ok(nil)
	s.get("/readyz").ok(nil)

	i := issuerAt(t, address)
	for since := time.Now(); s.get(v1+"/agents", i.token(s, nil)...).status != http.StatusOK; {
		if time.Since(since) > patience {
			t.Fatal("the provider is back, but not for the server")
		}
	}
	i.set(func() { i.down = true })
	s.get(v1+"/agents", i.token(s, nil)...).ok(nil)
	b := newBrowser(t, s)
	state := b.begin("/").Get("state")
	if got := b.get("/sign-in/callback?code=c&state=" + state); got.status != http.StatusServiceUnavailable {
		t.Errorf("/sign-in/callback: %d %s", got.status, got.body)
	}
}

// browser keeps cookies, and follows no redirect.
type browser struct {
	*server
	cookies map[string]string
}

func newBrowser(t *testing.T, s *server) *browser {
	t.Helper()
	client := *s.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	own := *s
	own.client = &client
	return &browser{&own, map[string]string{}}
}

func (b *browser) do(method, path string, headers ...string) answer {
	b.t.Helper()
	var cookies []string
	for name, value := range b.cookies {
		cookies = append(cookies, name+"="+value)
	}
	got := b.server.do(method, path, nil, append(headers, "Cookie", strings.Join(cookies, "; "))...)
	for _, line := range got.header.Values("Set-Cookie") {
		c, err := http.ParseSetCookie(line)
		if err != nil {
			b.t.Fatal(err)
		}
		if b.cookies[c.Name] = c.Value; c.Value == "" {
			delete(b.cookies, c.Name)
		}
	}
	return got
}

func (b *browser) get(path string, headers ...string) answer {
	b.t.Helper()
	return b.do("GET", path, headers...)
}

// begin goes to the provider, and returns the parameters that it is asked with.
func (b *browser) begin(back string) url.Values {
	b.t.Helper()
	got := b.get("/sign-in?return=" + url.QueryEscape(back))
	u, err := url.Parse(got.header.Get("Location"))
	if err != nil || got.status != http.StatusSeeOther {
		b.t.Fatalf("/sign-in: %d %s", got.status, got.body)
	}
	return u.Query()
}

// signIn signs in as the holder of an ID token with the claims, and returns the last answer.
func (b *browser) signIn(i *issuer, back string, changes map[string]any) answer {
	b.t.Helper()
	q := b.begin(back)
	claims := i.claims(b.server, map[string]any{"aud": "heardlog", "nonce": q.Get("nonce"), "email": "anna@shop.example"})
	maps.Copy(claims, changes)
	i.set(func() {
		i.answer = map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": sign(i.t, i.signer, claims)}
	})
	return b.get("/sign-in/callback?code=c&state=" + q.Get("state"))
}

// TestSignIn: a browser signs in with the provider, has the rights of its user's role, and signs
// out here and there.
func TestSignIn(t *testing.T) {
	t.Parallel()
	i := issuerAt(t, "")
	s := i.server("HEARDLOG_OIDC_CLIENT_ID=heardlog", "HEARDLOG_OIDC_CLIENT_SECRET=hush")
	if page := s.get("/").ok(nil); !bytes.Contains(page.body, []byte(`href="/sign-in"`)) {
		t.Error("the pages do not offer to sign in")
	}
	b := newBrowser(t, s)
	q := b.begin("/overview?since=1")
	for name, want := range map[string]string{
		"response_type": "code", "client_id": "heardlog", "redirect_uri": s.url + "/sign-in/callback", "scope": "openid profile email", "code_challenge_method": "S256",
	} {
		if q.Get(name) != want {
			t.Errorf("the provider is asked with %s %q, not %q", name, q.Get(name), want)
		}
	}
	got := b.signIn(i, "/overview?since=1", nil)
	if got.status != http.StatusSeeOther || got.header.Get("Location") != "/overview?since=1" {
		t.Fatalf("signed in: %d %s %s", got.status, got.header.Get("Location"), got.body)
	}
	cookies := strings.Join(got.header.Values("Set-Cookie"), "\n")
	if !strings.Contains(cookies, "HttpOnly; SameSite=Strict") || strings.Contains(cookies, "Secure") || i.asked.Get("code_verifier") == "" {
		t.Errorf("cookies %q, asked with %v", cookies, i.asked)
	}
	var who struct {
		Project, Person string
		Scopes          []string
	}
	b.get(v1 + "/session").ok(&who)
	if who.Project != "shop" || who.Person != "anna@shop.example" || strings.Join(who.Scopes, ",") != "read" {
		t.Errorf("signed in as %+v", who)
	}
	b.do("DELETE", v1+"/session", "Sec-Fetch-Site", "cross-site").refused(http.StatusForbidden, "InvalidPermission", "own pages")
	b.do("DELETE", v1+"/session", "Origin", "https://evil.example").refused(http.StatusForbidden, "InvalidPermission", "own pages")

	stolen := maps.Clone(b.cookies)
	var out struct{ Location string }
	b.do("DELETE", v1+"/session", "Sec-Fetch-Site", "same-origin").ok(&out)
	to, err := url.Parse(out.Location)
	if err != nil || to.Path != "/logout" || to.Query().Get("id_token_hint") == "" || to.Query().Get("post_logout_redirect_uri") != s.url+"/" {
		t.Errorf("signs out at %q", out.Location)
	}
	b.cookies = stolen
	b.get(v1+"/session").refused(http.StatusUnauthorized, "InvalidPermission", "sign in again")

	https := newBrowser(t, s)
	got = https.get("/sign-in", "X-Forwarded-Proto", "https")
	if c := got.header.Get("Set-Cookie"); !strings.HasPrefix(c, "__Host-heardlog_sign_in=") || !strings.Contains(c, "; Secure") || !strings.Contains(c, "SameSite=Lax") {
		t.Errorf("over https, the cookie is %q", c)
	}
	evil := newBrowser(t, s).get("/sign-in", "Host", "evil.example", "X-Forwarded-Host", "evil.example", "Referer", "https://evil.example/callers")
	if to := evil.header.Get("Location"); strings.Contains(to, "evil") || !strings.Contains(to, url.QueryEscape(s.url)) {
		t.Errorf("the host of a request leads to %s", to)
	}
}

// TestSignInRefused: what does not belong to the browser's own sign-in gives it no session.
func TestSignInRefused(t *testing.T) {
	t.Parallel()
	i := issuerAt(t, "")
	s := i.server("HEARDLOG_OIDC_CLIENT_ID=heardlog")
	refused := func(got answer, status int, words string) {
		t.Helper()
		if got.status != status || !strings.Contains(string(got.body), words) || strings.Contains(strings.Join(got.header.Values("Set-Cookie"), ""), "heardlog_session=hl") {
			t.Errorf("%s: %d %s", got.call, got.status, got.body)
		}
	}
	b := newBrowser(t, s)
	refused(b.get("/sign-in/callback?code=c&state=s"), http.StatusBadRequest, "has not begun")
	b.begin("/")
	refused(b.get("/sign-in/callback?code=c&state=other"), http.StatusBadRequest, "not the answer to a sign-in")
	refused(b.get("/sign-in/callback?code=c&state="), http.StatusBadRequest, "has not begun") // once only
	q := b.begin("/")
	refused(b.get("/sign-in/callback?error=access_denied&error_description=%3Cb%3Eno&state="+q.Get("state")), http.StatusForbidden, "access_denied&#34; &#34;&lt;b&gt;no")
	q = b.begin("/")
	refused(b.get("/sign-in/callback?code=c&iss=https://evil.example&state="+q.Get("state")), http.StatusBadRequest, "another identity provider")
	q = b.begin("/")
	refused(b.get("/sign-in/callback?code=used&state="+q.Get("state")), http.StatusForbidden, "did not accept")
	other := newBrowser(t, s).get("/sign-in/callback?code=c&state=" + b.begin("/").Get("state"))
	refused(other, http.StatusBadRequest, "has not begun")

	now := time.Now().Unix()
	for words, changes := range map[string]map[string]any{
		"another client":    {"aud": "other"},
		"for another":       {"aud": []string{"heardlog", "other"}},
		"another sign-in":   {"nonce": "other"},
		"this identity":     {"iss": "https://evil.example"},
		"has expired":       {"exp": now - 120},
		"no role":           {"groups": []string{"others"}},
		"1 to 255":          {"sub": strings.Repeat("x", 256)},
		"longer than 16384": {"x": strings.Repeat("x", 20<<10)},
	} {
		refused(newBrowser(t, s).signIn(i, "/", changes), http.StatusForbidden, words)
	}

	for _, back := range []string{
		"https://evil.example/", "//evil.example", "///evil.example", "/\\evil.example", "\\evil.example", "/%5cevil.example", "/%2f/evil.example", "javascript:alert(1)", "/\t/evil.example",
		"/sign-in", "evil.example", "", "/" + strings.Repeat("x", 3000), "http:evil.example", "/x\r\nSet-Cookie: a=b",
	} {
		if got := newBrowser(t, s).signIn(i, back, nil); got.header.Get("Location") != "/" {
			t.Errorf("from %q a browser comes back to %q: %d", back, got.header.Get("Location"), got.status)
		}
	}
}

// TestSignInRoles: claims may be in the user info, and a session ends when the settings no longer
// give its role.
func TestSignInRoles(t *testing.T) {
	t.Parallel()
	i := issuerAt(t, "")
	s := i.server("HEARDLOG_OIDC_CLIENT_ID=heardlog")
	i.info = map[string]any{"sub": "u-1", "groups": []string{"ops"}}
	b := newBrowser(t, s)
	if got := b.signIn(i, "/callers", map[string]any{"groups": nil}); got.header.Get("Location") != "/callers" {
		t.Fatalf("signed in: %d %s", got.status, got.body)
	}
	b.get(v1 + "/keys").ok(nil)
	before := maps.Clone(b.cookies)
	i.set(func() { i.info["sub"] = "u-2" })
	if got := newBrowser(t, s).signIn(i, "/", map[string]any{"groups": nil}); got.status != http.StatusForbidden || !strings.Contains(string(got.body), "another person") {
		t.Errorf("with another's user info: %d %s", got.status, got.body)
	}
	b.signIn(i, "/", nil) // again, with another role
	b.get(v1+"/keys").is(http.StatusForbidden, nil)
	b.server.do("GET", v1+"/session", nil, "Cookie", "heardlog_session="+before["heardlog_session"]).is(http.StatusUnauthorized, nil)

	for range access.MaxKeys - 1 {
		s.do("POST", v1+"/session", nil, "Authorization", basic("alice", "wonder")).is(http.StatusNoContent, nil)
	}
	if got := newBrowser(t, s).signIn(i, "/", nil); got.status != http.StatusUnprocessableEntity || !strings.Contains(string(got.body), "100 sessions") {
		t.Errorf("the project has all its sessions: %d %s", got.status, got.body)
	}

	same := s.again("HEARDLOG_ADDR=" + strings.TrimPrefix(s.url, "http://"))
	b.server.url, b.server.client = same.url, same.client
	b.get(v1 + "/session").ok(nil)
	other := same.again("HEARDLOG_OIDC_ROLES=support=shop:write")
	b.server.url, b.server.client = other.url, other.client
	b.get(v1+"/session").refused(http.StatusUnauthorized, "InvalidPermission", "sign in again")
}

// TestResourceMetadata: a client of MCP is led to the identity provider, and its token opens the
// tools of the caller in its URL.
func TestResourceMetadata(t *testing.T) {
	t.Parallel()
	i := issuerAt(t, "")
	s := i.server("HEARDLOG_PUBLIC_URL=https://h.example/")
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for _, dest := range []string{"", "empty"} { // browsers may be clients, too
		got := s.do("POST", "/mcp?user=anna", list, "Sec-Fetch-Dest", dest).refused(http.StatusUnauthorized, "InvalidPermission")
		want := `Bearer realm="heardlog", scope="openid profile email", resource_metadata="https://h.example/.well-known/oauth-protected-resource/mcp"`
		if c := got.header.Get("WWW-Authenticate"); c != want {
			t.Errorf("WWW-Authenticate %q, want %q", c, want)
		}
	}
	for _, path := range []string{"", "/mcp", "/mcp?user=anna&project=lab"} {
		var out struct {
			Resource string
			Servers  []string `json:"authorization_servers"`
		}
		s.get("/.well-known/oauth-protected-resource" + path).ok(&out)
		if out.Resource != "https://h.example"+path || strings.Join(out.Servers, " ") != i.url {
			t.Errorf("%q: %+v", path, out)
		}
	}
	s.do("POST", "/mcp?user=anna", list, i.token(s, map[string]any{"aud": "https://h.example/mcp?user=anna"})...).ok(nil)
	aud := map[string]any{"aud": "https://h.example/mcp", "groups": []string{"ops"}}
	s.do("POST", "/mcp?user=anna", list, i.token(s, aud)...).refused(http.StatusBadRequest, "InvalidRequestBody", "shop, lab")
	s.do("POST", "/mcp?user=anna&project=lab", list, i.token(s, aud)...).ok(nil)
	const add = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"remember","arguments":{"content":"She likes tea."}}}`
	if got := s.do("POST", "/mcp?user=anna&project=shop", add, i.token(s, aud)...).ok(nil); bytes.Contains(got.body, []byte(`"isError":true`)) {
		t.Errorf("%s", got.body)
	}
	if got := s.do("POST", "/mcp?user=anna&project=lab", add, i.token(s, aud)...).ok(nil); !bytes.Contains(got.body, []byte(`"isError":true`)) {
		t.Errorf("a reader remembers: %s", got.body)
	}
	none := start(t)
	none.get("/.well-known/oauth-protected-resource").refused(http.StatusNotFound, "TaskNotFound", "HEARDLOG_OIDC_ISSUER")
	none.get("/sign-in").refused(http.StatusNotFound, "TaskNotFound", "HEARDLOG_OIDC_CLIENT_ID")
}
