package tests

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHookSecretsStayIn: an endpoint's secrets are in no answer after the first, in no log line,
// and in no attempt of a receiver that repeats the request. If a key is set, they are not readable
// in the store.
func TestHookSecretsStayIn(t *testing.T) {
	t.Parallel()
	needsFile(t)
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Debug", r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, strings.Repeat(" ", 100)+"you sent: ")
		_ = r.Header.Write(w)
		_, _ = io.WriteString(w, "and I know hook-QWERTY1001")
	}))
	t.Cleanup(echo.Close)
	s := start(t, "HEARDLOG_SECRET_KEY=store-key-QWERTY0008", "HEARDLOG_LOG_LEVEL=debug")
	var e endpoint
	s.post(hooks+"/endpoints", map[string]any{
		"url": echo.URL + "/h?key=query-QWERTY1005", "secrets": []any{map[string]any{"secret": "hook-QWERTY1001"}},
		"headers": map[string]string{"X-Key": "header-QWERTY1002"}, "auth": map[string]string{"bearer": "bearer-QWERTY1003"},
	}).is(http.StatusCreated, &e)
	ear := &eavesdropper{base: s.client.Transport}
	s.client.Transport = ear
	path := hooks + "/endpoints/" + e.ID
	var d delivery
	s.post(path+"/test", nil).is(http.StatusAccepted, &d)
	got := s.until(d.ID, func(d delivery) bool { return len(d.Attempts) > 0 })
	if !strings.Contains(got.Attempts[0].Response, "and I know [secret]") {
		t.Errorf("%+v", got)
	}
	s.post(path+"/secrets", `{"secret":"hook-QWERTY1004"}`).is(http.StatusCreated, nil)
	s.do("PATCH", path, `{"auth":{"username":"u","password":"pass-QWERTY1006"}}`).ok(nil)
	s.do("PATCH", path, `{"headers":{"X-Key":"header-QWERTY1007\n"}}`).refused(http.StatusBadRequest, "InvalidFieldValue", "headers.X-Key")
	s.do("PATCH", path, `{"auth":{"bearer":"bearer-QWERTY1008\n"}}`).refused(http.StatusBadRequest, "InvalidFieldValue", "auth.bearer")
	s.post(path+"/secrets", `{"secret":"whsec_QWERTY1009"}`).refused(http.StatusBadRequest, "InvalidFieldValue", "secret")
	s.get(path).ok(nil)
	s.get(hooks + "/endpoints").ok(nil)
	s.get(hooks + "/messages/" + d.MessageID).ok(nil)
	s.get(hooks + "/deliveries").ok(nil)
	s.get("/metrics").ok(nil)
	s.stop()
	store := ""
	files, err := filepath.Glob(strings.TrimPrefix(s.env[1], "HEARDLOG_STORE=sqlite:") + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		store += string(b)
	}
	ear.mu.Lock()
	defer ear.mu.Unlock()
	for where, text := range map[string]string{"an answer": ear.all.String(), "the log": s.log.String(), "the store": store} {
		for _, n := range []string{"1001", "1002", "1003", "1004", "1005", "1006", "1007", "1008", "1009"} {
			if i := strings.Index(text, "QWERTY"+n); i >= 0 {
				t.Errorf("%s shows QWERTY%s: …%s", where, n, text[max(0, i-80):i+10])
			}
		}
	}
}

// TestEndpointSecret: secret is the same as a list with one secret.
func TestEndpointSecret(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwAAAAAAAAAAA="
	for _, more := range []map[string]any{{"secret": secret}, {"secrets": []any{map[string]any{"secret": secret}}}} {
		if e := s.hookTo(h, more); len(e.Secrets) != 1 || e.Secrets[0].Secret != "" {
			t.Errorf("%v: %+v", more, e.Secrets)
		}
	}
	for body, want := range map[string]string{
		`"secret":"x","secrets":[{}]`: "cannot be combined with secrets", `"secret":""`: "must not be empty", `"secret":1`: "a string",
	} {
		s.post(hooks+"/endpoints", `{"url":"`+h.url+`",`+body+`}`).refused(http.StatusBadRequest, "InvalidFieldValue", "secret: ", want)
	}
	e := s.hookTo(h, map[string]any{"secret": nil})
	if len(e.Secrets) != 1 || e.Secrets[0].Secret == "" {
		t.Errorf("null makes no secret: %+v", e.Secrets)
	}
	s.do(http.MethodPatch, hooks+"/endpoints/"+e.ID, `{"secret":"x"}`).refused(http.StatusBadRequest, "InvalidFieldValue", "secret", "POST")
}
