package tests

import (
	"net/http"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/access"
)

// TestPages: the pages are there unless the setting removes them, and allow no inline script.
func TestPages(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, path := range []string{"/", "/calls/x", "/overview", "/callers", "/callers/x", "/webhooks", "/demo", "/page/app.js", "/page/page.css"} {
		got := s.get(path).ok(nil)
		if csp := got.header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'; script-src 'self'; style-src 'self';") {
			t.Errorf("%s: Content-Security-Policy %q", path, csp)
		}
	}
	tag := s.get("/page/app.js").ok(nil).header.Get("ETag")
	if got := s.do("GET", "/page/app.js", nil, "If-None-Match", tag); got.status != http.StatusNotModified {
		t.Errorf("asked again, /page/app.js answers %d", got.status)
	}
	s.get("/page/nothing.js").refused(http.StatusNotFound, "TaskNotFound", "no such file")
	off := start(t, "HEARDLOG_UI=off")
	for _, path := range []string{"/", "/calls/x", "/overview", "/callers", "/callers/x", "/webhooks", "/demo", "/page/app.js"} {
		off.get(path).refused(http.StatusNotFound, "TaskNotFound", "this path does not exist")
	}
}

// TestSession: a session has the scopes of its credential, ends with it or by signing out, and is
// of no use to pages of other sites.
func TestSession(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_CREDENTIALS=p1=alice:wonder")
	alice := []string{"Authorization", basic("alice", "wonder")}
	reader := s.newKey("read", alice...)
	signIn := func(headers ...string) []string {
		got := s.do("POST", v1+"/session", nil, headers...)
		if got.status != http.StatusNoContent {
			t.Fatalf("sign in: %d %s", got.status, got.body)
		}
		cookie, attributes, _ := strings.Cut(got.header.Get("Set-Cookie"), ";")
		if !strings.Contains(attributes, "HttpOnly") || !strings.Contains(attributes, "SameSite=Strict") {
			t.Errorf("the cookie has %q", attributes)
		}
		return []string{"Cookie", cookie}
	}
	read := signIn(bearer(reader)...)
	var who struct {
		Project string
		Scopes  []string
		Open    bool
	}
	s.do("GET", v1+"/session", nil, read...).ok(&who)
	if who.Project != "p1" || strings.Join(who.Scopes, ",") != "read" || who.Open {
		t.Errorf("signed in as %+v", who)
	}
	s.do("POST", v1+"/agents", `{"name":"x"}`, read...).refused(http.StatusForbidden, "InvalidPermission", "scope write")
	s.do("POST", v1+"/session", nil, read...).refused(http.StatusUnauthorized, "InvalidPermission", "Authorization header")

	all := signIn(alice...)
	s.do("POST", v1+"/agents", `{"name":"x"}`, append(all, "Sec-Fetch-Site", "cross-site")...).refused(http.StatusForbidden, "InvalidPermission", "own pages")
	s.do("POST", v1+"/agents", `{"name":"x"}`, append(all, "Sec-Fetch-Site", "same-origin")...).ok(nil)

	if got := s.do("DELETE", v1+"/session", nil, all...); got.status != http.StatusNoContent {
		t.Fatalf("sign out: %d %s", got.status, got.body)
	}
	s.do("GET", v1+"/session", nil, all...).refused(http.StatusUnauthorized, "InvalidPermission", "sign in again")
	if got := s.do("DELETE", v1+"/keys/"+reader.ID, nil, alice...); got.status != http.StatusNoContent {
		t.Fatalf("revoke: %d %s", got.status, got.body)
	}
	s.do("GET", v1+"/session", nil, read...).refused(http.StatusUnauthorized, "InvalidPermission", "sign in again")

	s.do("DELETE", v1+"/session", nil).refused(http.StatusUnauthorized, "InvalidPermission")
	for range access.MaxKeys - 1 {
		signIn(alice...)
	}
	s.do("POST", v1+"/session", nil, alice...).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "100 sessions")
	start(t).do("POST", v1+"/session", nil).refused(http.StatusConflict, "TaskConflict", "no credentials")
	limited := start(t, "HEARDLOG_RATE_LIMIT=1")
	for _, method := range []string{"GET", "POST", "DELETE"} {
		for limited.do(method, v1+"/session", nil).status != http.StatusTooManyRequests {
		}
	}
}
