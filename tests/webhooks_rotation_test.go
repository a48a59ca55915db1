package tests

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/webhook"
)

// TestRotationAgain: a repeated rotation returns the secret that the first created.
func TestRotationAgain(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	e := s.hookTo(h, nil)
	rotate := func(status int) (out struct{ Secret signer }) {
		s.post(hooks+"/endpoints/"+e.ID+"/secrets", `{"kind":"ed25519"}`, "Idempotency-Key", "k1").is(status, &out)
		return out
	}
	first, again := rotate(http.StatusCreated), rotate(http.StatusOK)
	for _, other := range []string{`{"kind":"hmac"}`, `{"secret":"mine"}`} {
		s.post(hooks+"/endpoints/"+e.ID+"/secrets", other, "Idempotency-Key", "k1").refused(http.StatusConflict, "TaskConflict", "Idempotency-Key", "another secret")
	}
	if first.Secret.Secret == "" || again.Secret.Secret != "" || again.Secret.ID != first.Secret.ID || again.Secret.Public != first.Secret.Public || again.Secret.Created != first.Secret.Created {
		t.Errorf("first %+v, again %+v", first.Secret, again.Secret)
	}
}

// TestRotation: during the overlap both secrets sign, after a revoke only the new one does.
func TestRotation(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	e := s.hookTo(h, nil)
	path := hooks + "/endpoints/" + e.ID
	test := func() call { s.post(path+"/test", nil).is(http.StatusAccepted, nil); return h.next(t) }
	rotate := func(body any) (out struct {
		Secret   signer
		Endpoint endpoint
	}) {
		s.post(path+"/secrets", body).is(http.StatusCreated, &out)
		return out
	}
	s.do("DELETE", path+"/secrets/"+e.Secrets[0].ID, nil).refused(http.StatusConflict, "TaskConflict", "last")
	before := time.Now()
	second := rotate(nil)
	old := second.Endpoint.Secrets[1]
	if old.ID != e.Secrets[0].ID || int64(old.NotAfter) < before.Add(webhook.DefaultOverlap).UnixMilli()-1000 || !old.Live {
		t.Errorf("the old secret: %+v", old)
	}
	if got := verified(test(), e.Secrets[0].Secret, second.Secret.Secret); got != "01" {
		t.Errorf("during the overlap the secrets %q sign", got)
	}
	s.do("DELETE", path+"/secrets/"+e.Secrets[0].ID, nil).is(http.StatusNoContent, nil)
	s.do("DELETE", path+"/secrets/"+e.Secrets[0].ID, nil).is(http.StatusNoContent, nil) // also when it is gone
	if got := verified(test(), e.Secrets[0].Secret, second.Secret.Secret); got != "1" {
		t.Errorf("after the revoke the secrets %q sign", got)
	}
	third := rotate(`{"secret":"whsec_` + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))) + `","overlap":0}`)
	if third.Secret.Secret != "" {
		t.Error("the caller's own secret is shown")
	}
	if got := verified(test(), second.Secret.Secret, hookOwn); got != "1" {
		t.Errorf("without overlap the secrets %q sign", got)
	}
	key := rotate(`{"kind":"ed25519"}`)
	if got := test(); !verifiedBy(t, key.Secret.Public, got) || verified(got, hookOwn) != "0" {
		t.Errorf("%v with %+v", got.header, key)
	}
}
