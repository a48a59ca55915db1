package tests

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/handlers"
	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/app"
)

// accessKey is a key as the API shows it.
type accessKey struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Scopes    []string `json:"scopes"`
	CreatedMS unixMS   `json:"created_at"`
	ExpiresMS unixMS   `json:"expires_at"`
	RevokedMS unixMS   `json:"revoked_at"`
	Secret    string   `json:"secret"`
}

// newKey creates a key with these scopes, separated by commas.
func (s *server) newKey(scopes string, headers ...string) accessKey {
	s.t.Helper()
	var k accessKey
	s.post(v1+"/keys", map[string]any{"name": scopes, "scopes": strings.Split(scopes, ",")}, headers...).is(http.StatusCreated, &k)
	return k
}

func bearer(k accessKey) []string { return []string{"Authorization", "Bearer " + k.Secret} }

// TestKeys: the first key closes an open server for good, keys work in every form of credentials,
// and end when they are revoked.
func TestKeys(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.get(v1 + "/agents").ok(nil)
	s.post(v1+"/keys", `{"name":"first","scopes":["read"]}`).refused(http.StatusBadRequest, "InvalidFieldValue", "admin", "first key")
	admin := s.newKey("admin")
	s.get(v1+"/agents").refused(http.StatusUnauthorized, "InvalidPermission")
	as := bearer(admin)
	backend := s.newKey("read,write", as...)
	for _, header := range []string{
		"Bearer " + backend.Secret, "Bearer " + backend.ID + ":" + backend.Secret, basic(backend.ID, backend.Secret), "agora token=" + backend.Secret,
	} {
		for _, base := range []string{v1, agora, cn} {
			s.get(base+"/agents", "Authorization", header).ok(nil)
		}
	}
	other := strings.Replace(agora, "default", "other", 1)
	s.get(other+"/agents", bearer(backend)...).refused(http.StatusNotFound, "TaskNotFound", "project")
	for _, header := range []string{
		basic(admin.ID, backend.Secret), "Bearer " + backend.Secret + "x", "Bearer " + backend.Secret[:len(backend.Secret)-1], "Bearer hl_", "Bearer hl_x.y.z", "Bearer " + backend.ID,
	} {
		s.get(v1+"/agents", "Authorization", header).refused(http.StatusUnauthorized, "InvalidPermission", "not valid")
	}

	var list struct{ Keys []accessKey }
	if got := s.get(v1+"/keys", as...).ok(&list); strings.Contains(string(got.body), "secret") {
		t.Errorf("the list shows secrets: %s", got.body)
	}
	admin.Secret = ""
	shown := backend
	shown.Secret = ""
	if diff := cmp.Diff([]accessKey{admin, shown}, list.Keys); diff != "" {
		t.Error(diff)
	}

	next := s.newKey("read,write", as...)
	s.get(v1+"/agents", bearer(next)...).ok(nil)
	revoke := func() (k accessKey) {
		s.do("DELETE", v1+"/keys/"+backend.ID, nil, as...).is(http.StatusNoContent, nil)
		var list struct{ Keys []accessKey }
		s.get(v1+"/keys", as...).ok(&list)
		return list.Keys[slices.IndexFunc(list.Keys, func(k accessKey) bool { return k.ID == backend.ID })]
	}
	revoked, again := revoke(), revoke()
	if revoked.RevokedMS == 0 || again.RevokedMS != revoked.RevokedMS {
		t.Errorf("%+v, then %+v", revoked, again)
	}
	s.get(v1+"/agents", bearer(backend)...).refused(http.StatusUnauthorized, "InvalidPermission", "revoked", backend.ID)
	for _, id := range []string{"x", "default.0000", "other.0000"} {
		s.do("DELETE", v1+"/keys/"+id, nil, as...).absent()
	}

	s = s.again()
	s.get(v1+"/agents").refused(http.StatusUnauthorized, "InvalidPermission")
	s.get(v1+"/agents", bearer(backend)...).refused(http.StatusUnauthorized, "InvalidPermission", "revoked")
	s.get(v1+"/agents", bearer(next)...).ok(nil)
	for _, id := range []string{next.ID, admin.ID} {
		s.do("DELETE", v1+"/keys/"+id, nil, as...).is(http.StatusNoContent, nil)
	}
	s.get(v1+"/keys", as...).refused(http.StatusUnauthorized, "InvalidPermission", "revoked")
	s = s.again() // with the last key revoked
	s.get(v1+"/agents").refused(http.StatusUnauthorized, "InvalidPermission")
}

// TestKeyAnswers: what the calls about keys refuse.
func TestKeyAnswers(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_CREDENTIALS=p1=alice:wonder", "HEARDLOG_MAX_BODY=2000")
	alice := []string{"Authorization", basic("alice", "wonder")}
	for _, tt := range []struct{ body, words string }{
		{`{"scopes":["read"]}`, "name"},
		{`{"name":"x"}`, "scopes"},
		{`{"name":"x","scopes":[]}`, "scopes"},
		{`{"name":"x","scopes":["root"]}`, "root"},
		{`{"name":"x","scopes":["read","read"]}`, "twice"},
		{`{"name":"x","scopes":["read"],"expires_at":"2023-11-14T22:13:20Z"}`, "future"},
		{`{"name":"x","scopes":["read"],"end":1}`, "end"},
		{`{"name":"` + strings.Repeat("x", 129) + `","scopes":["read"]}`, "129"},
	} {
		if got := s.post(v1+"/keys", tt.body, alice...); got.status != http.StatusBadRequest || !strings.Contains(string(got.body), tt.words) {
			t.Errorf("%s: %d %s", tt.body, got.status, got.body)
		}
	}
	s.post(v1+"/keys", `{"name":"`+strings.Repeat("x", 3000)+`"}`, alice...).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody")
	s.get(v1+"/keys?x=1", alice...).refused(http.StatusBadRequest, "InvalidFieldValue")
	read := s.newKey("read", alice...)
	limited := start(t, "HEARDLOG_RATE_LIMIT=1")
	for _, c := range [][2]string{{"POST", "/keys"}, {"GET", "/keys"}, {"DELETE", "/keys/x"}} {
		s.do(c[0], v1+c[1], nil).refused(http.StatusUnauthorized, "InvalidPermission")
		s.do(c[0], v1+c[1], nil, bearer(read)...).refused(http.StatusForbidden, "InvalidPermission", "scope admin", read.ID)
		for limited.do(c[0], v1+c[1], nil).status != http.StatusTooManyRequests {
		}
	}
	for range access.MaxKeys - 1 {
		s.newKey("read", alice...)
	}
	s.post(v1+"/keys", `{"name":"x","scopes":["read"]}`, alice...).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "100")
	s.do("DELETE", v1+"/keys/"+read.ID, nil, alice...).is(http.StatusNoContent, nil)
	s.newKey("read", alice...) // in the place of the revoked one
	s.post(v1+"/keys", `{"name":"x","scopes":["read"]}`, alice...).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "100")
}

// act is an administrative act as the API shows it.
type act struct {
	At          unixMS
	By, Address string
	Act, Target string
	Status      int
	RequestID   string `json:"request_id"`
}

// acts returns a page of the audit log.
func (s *server) acts(query string, headers ...string) (acts []act, next string) {
	s.t.Helper()
	var page struct {
		Acts []act
		Next string `json:"next_cursor"`
	}
	s.get(v1+"/audit"+query, headers...).ok(&page)
	return page.Acts, page.Next
}

// TestAudit: every administrative act of a project is recorded with who, when, from where and what,
// in the store and in the log. Refused calls are not.
func TestAudit(t *testing.T) {
	t.Parallel()
	s := start(t, twoTenants)
	alice, bob := []string{"Authorization", basic("alice", "wonder")}, []string{"Authorization", basic("bob", "builder")}
	id := s.join("n", nil, alice...)
	k := s.newKey("admin", alice...)
	read := s.newKey("read", bearer(k)...)
	var e endpoint
	s.post(hooks+"/endpoints", `{"url":"https://hooks.example.com/"}`, bearer(k)...).is(http.StatusCreated, &e)
	at := hooks + "/endpoints/" + e.ID
	s.do("PATCH", at, `{"description":"x"}`, alice...).ok(nil)
	s.post(at+"/disable", nil, alice...).ok(nil)
	s.post(at+"/enable", nil, alice...).ok(nil)
	var rotated struct{ Secret struct{ ID string } }
	s.post(at+"/secrets", `{}`, alice...).is(http.StatusCreated, &rotated)
	s.do("DELETE", at+"/secrets/"+rotated.Secret.ID, nil, alice...).is(http.StatusNoContent, nil)
	s.do("DELETE", at, nil, alice...).is(http.StatusNoContent, nil)
	s.do("DELETE", v1+"/keys/"+read.ID, nil, alice...).is(http.StatusNoContent, nil)
	s.do("DELETE", v1+"/agents/"+id, nil, alice...).is(http.StatusNoContent, nil)
	s.do("DELETE", v1+"/users/anna%2F1", nil, alice...).ok(nil)
	s.do("DELETE", v1+"/projects/none", nil, alice...).is(http.StatusNotFound, nil)
	s.get(v1+"/agents", alice...).ok(nil)
	got := s.do("DELETE", v1+"/projects/p1?confirm=p1", nil, append(alice, "X-Request-Id", "the-last")...).ok(nil)
	want := []string{
		"project.erase p1 alice 200", "user.erase anna/1 alice 200", "agent.erase " + id + " alice 204", "key.revoke " + read.ID + " alice 204",
		"endpoint.delete " + e.ID + " alice 204", "endpoint.secret.revoke " + e.ID + " alice 204", "endpoint.secret.create " + e.ID + " alice 201",
		"endpoint.enable " + e.ID + " alice 200", "endpoint.disable " + e.ID + " alice 200", "endpoint.update " + e.ID + " alice 200",
		"endpoint.create " + e.ID + " " + k.ID + " 201", "key.create " + read.ID + " " + k.ID + " 201", "key.create " + k.ID + " alice 201",
	}
	var lines []string
	for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
		acts, next := s.acts("?limit=3&cursor="+cursor, alice...)
		if len(acts) > 3 || pages > len(want) {
			t.Fatalf("page %d has %d acts", pages, len(acts))
		}
		for _, a := range acts {
			lines = append(lines, strings.Join([]string{a.Act, a.Target, a.By, strconv.Itoa(a.Status)}, " "))
			if a.Address != "127.0.0.1" || a.RequestID == "" || time.Since(time.UnixMilli(int64(a.At))).Abs() > patience {
				t.Errorf("%+v", a)
			}
		}
		cursor = next
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	if acts, _ := s.acts("", alice...); acts[0].RequestID != got.header.Get("X-Request-Id") {
		t.Errorf("%+v", acts[0])
	}
	if acts, _ := s.acts("", bob...); len(acts) != 0 {
		t.Errorf("another project sees %+v", acts)
	}
	if !strings.Contains(s.log.String(), `"act":"endpoint.delete"`) {
		t.Error("the log has no line")
	}
	s = s.again()
	if acts, _ := s.acts("?limit=100", alice...); len(acts) != len(want) {
		t.Errorf("after a restart: %d acts", len(acts))
	}
	s.get(v1+"/audit?limit=101", alice...).refused(http.StatusBadRequest, "InvalidFieldValue", "limit")
	s.get(v1+"/audit?cursor=%00", alice...).refused(http.StatusBadRequest, "InvalidFieldValue", "cursor")
	s.get(v1+"/audit?cursor=zz", alice...).refused(http.StatusBadRequest, "InvalidFieldValue", "cursor: is not a cursor of this list")
	s.get(v1+"/audit?page=2", alice...).refused(http.StatusBadRequest, "InvalidFieldValue", "page")
	s.get(v1+"/audit").refused(http.StatusUnauthorized, "InvalidPermission")
	limited := start(t, "HEARDLOG_RATE_LIMIT=1")
	for limited.get(v1+"/audit").status != http.StatusTooManyRequests {
	}
}

// TestKeyEnds: a key ends at its time.
func TestKeyEnds(t *testing.T) {
	t.Parallel()
	s := start(t)
	admin := s.newKey("admin")
	var k accessKey
	end := time.Now().Add(3 * time.Second).Truncate(time.Millisecond)
	s.post(v1+"/keys", map[string]any{"name": "short", "scopes": []string{"read"}, "expires_at": end.Format(time.RFC3339Nano)}, bearer(admin)...).is(http.StatusCreated, &k)
	if int64(k.ExpiresMS) != end.UnixMilli() {
		t.Errorf("%+v", k)
	}
	for s.get(v1+"/agents", bearer(k)...).status == http.StatusOK && time.Now().Before(end.Add(patience)) {
	}
	if time.Now().Before(end) {
		t.Error("it ended too early")
	}
	s.get(v1+"/agents", bearer(k)...).refused(http.StatusUnauthorized, "InvalidPermission", "expired")
}

// TestKeySecretsAreNotStored searches the file of the store and the log for a secret.
func TestKeySecretsAreNotStored(t *testing.T) {
	t.Parallel()
	needsFile(t)
	s := start(t)
	k := s.newKey("admin")
	s.get(v1+"/agents", bearer(k)...).ok(nil)
	s.stop()
	random := k.Secret[strings.LastIndexByte(k.Secret, '.')+1:]
	file := strings.TrimPrefix(s.env[1], "HEARDLOG_STORE=sqlite:")
	files, err := filepath.Glob(file + "*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		b, err := os.ReadFile(filepath.Clean(name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), random) {
			t.Errorf("%s holds the secret", name)
		}
	}
	if strings.Contains(s.log.String(), random) {
		t.Error("the log holds the secret")
	}
}

// TestKeysElsewhere: another server on the store knows new keys, and refuses revoked ones within a
// second.
func TestKeysElsewhere(t *testing.T) {
	t.Parallel()
	two := replicas(t, 2)
	two[1].get(v1 + "/agents").ok(nil)
	admin := two[0].newKey("admin")
	made := time.Now()
	for two[1].get(v1+"/agents").status != http.StatusUnauthorized {
		if time.Since(made) > time.Second+patience {
			t.Fatal("the other server stays open")
		}
	}
	k := two[0].newKey("read", bearer(admin)...)
	two[1].get(v1+"/agents", bearer(k)...).ok(nil)
	two[0].do("DELETE", v1+"/keys/"+k.ID, nil, bearer(admin)...).is(http.StatusNoContent, nil)
	revoked := time.Now()
	asked := revoked
	for two[1].get(v1+"/agents", bearer(k)...).status == http.StatusOK {
		if late := asked.Sub(revoked); late > time.Second {
			t.Errorf("a revoked key worked after %v", late)
		}
		asked = time.Now()
	}
}

// TestKeyOfLiveTail: a live tail ends with its key, on every server.
func TestKeyOfLiveTail(t *testing.T) {
	t.Parallel()
	two := replicas(t, 2)
	admin := two[0].newKey("admin")
	id := two[0].join("n", nil, bearer(admin)...)
	read, other := two[0].newKey("read", bearer(admin)...), two[0].newKey("read", bearer(admin)...)
	for two[1].get(v1+"/agents").status != http.StatusUnauthorized { // it is open for a moment
	}
	ends := make(chan struct{}, len(two))
	var stay []*tail
	for _, s := range two {
		ended := s.tail(id, bearer(read)...)
		stay = append(stay, s.tail(id, bearer(other)...))
		go func() {
			_, _ = io.Copy(io.Discard, ended.lines) // until the server or patience ends it
			ends <- struct{}{}
		}()
	}
	two[0].do("DELETE", v1+"/keys/"+read.ID, nil, bearer(admin)...).is(http.StatusNoContent, nil)
	revoked := time.Now()
	for range two {
		<-ends
	}
	if late := time.Since(revoked); late > patience/2 {
		t.Errorf("a live tail went on for %v", late)
	}
	var said message
	two[0].post(agent(id, "/messages"), `{"role":"user","content":"still here"}`, bearer(admin)...).ok(&said)
	for _, r := range stay {
		r.message("what was said", func(m message) bool { return m.Content == "still here" })
	}
}

// TestScopes calls every route with a key of each scope. Every route has one, but for those that
// need no credentials.
func TestScopes(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_CREDENTIALS=p1=alice:wonder")
	alice := []string{"Authorization", basic("alice", "wonder")}
	keys := map[access.Scope]accessKey{}
	for _, scope := range access.Scopes() {
		keys[scope] = s.newKey(string(scope), alice...)
	}
	public := map[string]bool{
		"GET /healthz": true, "GET /readyz": true, "GET /metrics": true, "GET /openapi.yaml": true, "GET /docs": true, "GET /docs/openapi.yaml": true, "GET /docs/viewer.js": true,
		"GET /docs/guide": true, "GET /docs/guide/{file}": true, "GET /docs/guide/{folder}/{file}": true,
		"GET /": true, "GET /calls/{id}": true, "GET /overview": true, "GET /callers": true, "GET /callers/{user}": true, "GET /webhooks": true,
		"GET /demo": true, "GET /page/{file}": true,
		"GET /sign-in": true, "GET /sign-in/callback": true, "GET /.well-known/oauth-protected-resource": true, "GET /.well-known/oauth-protected-resource/mcp": true,
		"POST /v1/ingest/agora": true, "GET /v1/webhooks/fetch/{token}": true,
	}
	api := handlers.New(handlers.Config{
		Access: &handlers.Access{}, Metrics: handlers.NewMetrics(prometheus.NewRegistry()), MetricsPage: http.NotFoundHandler(), UI: true,
	})
	fill := strings.NewReplacer("{appid}", "p1", "{id}", "x", "{platform}", "vapi", "{key}", "k", "{user}", "nobody", "{project}", "not-this-one", "{secret_id}", "y", "{token}", "z", "{file}", "page.css", "{folder}", "start")
	err := chi.Walk(api, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		path := fill.Replace(route)
		if method == http.MethodPost && route == "/v1/replays" {
			return nil // it needs two scopes; see TestReplayLimits
		}
		if method == http.MethodHead { // without a body, its answers do not name the scope
			if got := s.do(method, path, nil, bearer(keys[access.Webhooks])...); got.status != http.StatusForbidden {
				t.Errorf("%s %s with %s: %d", method, route, access.Webhooks, got.status)
			}
			return nil
		}
		var needed string
		for scope, k := range keys {
			got := s.do(method, path, nil, bearer(k)...)
			if got.status == http.StatusUnauthorized && !public[method+" "+route] {
				t.Errorf("%s %s: %d %s", method, route, got.status, got.body)
			}
			if got.status != http.StatusForbidden {
				continue
			}
			if scope == access.Admin {
				t.Errorf("%s %s is closed to admin: %s", method, route, got.body)
			}
			if method == http.MethodHead { // its answers have no body
				got = s.do(http.MethodGet, path, nil, bearer(k)...)
			}
			_, words, _ := strings.Cut(string(got.body), "with the scope ")
			words, _, _ = strings.Cut(words, ";")
			if needed != "" && needed != words {
				t.Errorf("%s %s needs %s and %s", method, route, needed, words)
			}
			needed = words
		}
		if (needed == "") != public[method+" "+route] {
			t.Errorf("%s %s: needs the scope %q; public: %v", method, route, needed, public[method+" "+route])
		}
		for scope, k := range keys {
			if got := s.do(method, path, nil, bearer(k)...); needed != "" && (got.status == http.StatusForbidden) != (string(scope) != needed && scope != access.Admin) {
				t.Errorf("%s %s with %s: %d, it needs %s", method, route, scope, got.status, needed)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestGuesses: an address with many wrong secrets must wait, with Retry-After. A caller elsewhere
// and a credential that was right before are not locked out.
func TestGuesses(t *testing.T) {
	t.Parallel()
	s := start(t, twoTenants)
	s.get(v1+"/agents", "Authorization", basic("alice", "wonder")).ok(nil)
	for range access.GuessesPerID {
		s.get(v1+"/agents", "Authorization", basic("alice", "guess")).refused(http.StatusUnauthorized, "InvalidPermission")
		s.get(v1+"/agents", "Authorization", basic("anna", "guess")).refused(http.StatusUnauthorized, "InvalidPermission")
	}
	got := s.get(v1+"/agents", "Authorization", basic("alice", "guess")).refused(http.StatusTooManyRequests, "ConcurrencyLimitExceeded", "wrong credentials")
	if n, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || n < 1 || n > 60 {
		t.Errorf("Retry-After %q", got.header.Get("Retry-After"))
	}
	s.post(v1+"/chat/completions", `{}`, "Authorization", basic("alice", "guess")).is(http.StatusTooManyRequests, nil)
	s.get(v1+"/agents", "Authorization", basic("alice", "wonder")).ok(nil)
	s.get(v1+"/agents", "Authorization", basic("bob", "builder")).ok(nil)
	anna := []string{"Authorization", basic("anna", "secret:with:colons")}
	s.get(v1+"/agents", anna...).refused(http.StatusTooManyRequests, "ConcurrencyLimitExceeded")
	s.from("127.0.0.9").get(v1+"/agents", anna...).ok(nil)
}

// TestGuessesOfOneAddress: many IDs are one attacker, too.
func TestGuessesOfOneAddress(t *testing.T) {
	t.Parallel()
	s := start(t, twoTenants)
	s.get(v1+"/agents", "Authorization", basic("alice", "wonder")).ok(nil)
	k := s.newKey("read", "Authorization", basic("alice", "wonder"))
	guesses := 0
	for ; guesses < 10*access.GuessesPerAddress; guesses++ { // more are allowed as time passes
		if s.get(v1+"/agents", "Authorization", basic("id"+strconv.Itoa(guesses), "guess")).status == http.StatusTooManyRequests {
			break
		}
	}
	if guesses < access.GuessesPerAddress || guesses == 10*access.GuessesPerAddress {
		t.Errorf("%d wrong secrets were answered", guesses)
	}
	s.get(v1+"/agents", bearer(k)...).ok(nil) // a right secret of a stored key, on its first use
	s.get(v1+"/agents", "Authorization", basic("alice", "wonder")).ok(nil)
	s.from("127.0.0.9").get(v1+"/agents", "Authorization", basic("bob", "builder")).ok(nil)
}

// TestClosedAddress: only a server with credentials serves more than this machine.
func TestClosedAddress(t *testing.T) {
	t.Parallel()
	store := freshStore(t)
	open := func() error {
		c, err := config.Load(func(name string) string {
			return map[string]string{"HEARDLOG_ADDR": "0.0.0.0:0", "HEARDLOG_STORE": store}[name]
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		a, err := app.New(ctx, c, zerolog.Nop())
		cancel()
		if err != nil {
			return err
		}
		return a.Run(ctx)
	}
	if err := open(); err == nil || !strings.Contains(err.Error(), "HEARDLOG_CREDENTIALS: is required") {
		t.Fatalf("without credentials: %v", err)
	}
	s := start(t, "HEARDLOG_STORE="+store)
	s.newKey("admin")
	s.stop()
	if err := open(); err != nil {
		t.Errorf("with a key: %v", err)
	}
}

// exposesAll checks that a page may read every header that openapi.yaml describes, the rate limits
// of an upstream, and what else an upstream sends.
func exposesAll(t *testing.T, h http.Header) {
	t.Helper()
	sp, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	exposed := strings.Split(h.Get("Access-Control-Expose-Headers"), ", ")
	for _, name := range append(sp.Headers(), "Allow", "Retry-After-Ms", "X-Ratelimit-Remaining-Requests", "*") {
		if !slices.Contains(exposed, name) {
			t.Errorf("a page may not read %s, only %q", name, exposed)
		}
	}
}

// TestCrossOrigin: pages of the origins in the settings may call the API and read its answers, with
// errors, and no others may. No credentials of the browser are ever allowed.
func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	alice := basic("alice", "wonder")
	preflight := func(s *server, path, origin string) http.Header {
		t.Helper()
		return s.plain().do("OPTIONS", path, nil, "Origin", origin, "Access-Control-Request-Method", "DELETE", "Access-Control-Request-Headers", "authorization,x-call-id").is(http.StatusNoContent, nil).header
	}
	const page, other = "https://app.example", "https://evil.example"
	s := start(t, twoTenants, "HEARDLOG_CORS_ORIGINS="+page+", http://localhost:3000")
	for _, path := range []string{"/v1/agents", "/v1/chat/completions", "/v1/keys/x", "/api/conversational-ai-agent/v2/projects/p1/agents"} {
		got := preflight(s, path, page)
		if got.Get("Access-Control-Allow-Origin") != page || got.Get("Access-Control-Allow-Methods") != "DELETE" ||
			got.Get("Access-Control-Allow-Headers") != "authorization,x-call-id" || got.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: %v", path, got)
		}
		if got := preflight(s, path, other); got.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", path, got)
		}
	}
	for origin, want := range map[string]string{page: page, other: "", "http://localhost:3000": "http://localhost:3000", "http://localhost:3001": ""} {
		got := s.get("/v1/agents", "Authorization", alice, "Origin", origin).ok(nil)
		refused := s.get("/v1/agents", "Origin", origin).refused(http.StatusUnauthorized, "InvalidPermission")
		for _, h := range []http.Header{got.header, refused.header} {
			if h.Get("Access-Control-Allow-Origin") != want || h.Get("Vary") != "Origin" || h.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s: %v", origin, h)
			}
		}
		if want != "" {
			exposesAll(t, got.header)
			exposesAll(t, refused.header)
		}
	}
	if got := s.get("/metrics", "Origin", page); got.header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("a page may read the metrics")
	}
	wide := start(t, twoTenants, "HEARDLOG_CORS_ORIGINS=*")
	if got := wide.get("/v1/agents", "Authorization", alice, "Origin", other).ok(nil); got.header.Get("Access-Control-Allow-Origin") != "*" || got.header.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("%v", got.header)
	}
	without := start(t, twoTenants)
	if got := without.get("/v1/agents", "Authorization", alice, "Origin", page).ok(nil); got.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%v", got.header)
	}
	open := start(t, "HEARDLOG_CORS_ORIGINS="+page)
	of := []string{"Origin", page, "Sec-Fetch-Site", "cross-site"}
	open.post(v1+"/agents", `{"name":"n"}`, of...).ok(nil)
	open.post(v1+"/agents", `{"name":"m"}`, "Origin", other, "Sec-Fetch-Site", "cross-site").refused(http.StatusForbidden, "InvalidPermission", "web pages")
	c, err := config.Load(func(name string) string {
		return map[string]string{"HEARDLOG_CORS_ORIGINS": "*", "HEARDLOG_ADDR": "127.0.0.1:0", "HEARDLOG_STORE": freshStore(t)}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := app.New(t.Context(), c, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), "HEARDLOG_CORS_ORIGINS: must not be *") {
		t.Errorf("any page on an open server: %v", err)
	}
}
