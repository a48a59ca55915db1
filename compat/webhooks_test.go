package compat_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// sent is one attempt as a receiver saw it.
type sent struct {
	header http.Header
	body   []byte
}

// signedBy returns the indexes of the secrets that signed the attempt, by an independent verifier.
func (a sent) signedBy(t testing.TB, secrets ...string) string {
	t.Helper()
	out := ""
	for i, s := range secrets {
		v, err := standardwebhooks.NewWebhook(s)
		if err != nil {
			t.Fatal(err)
		}
		if v.Verify(a.body, a.header) == nil {
			out += fmt.Sprint(i)
		}
	}
	return out
}

type hookEndpoint struct {
	ID      string `json:"id"`
	Secrets []struct {
		ID, Secret string
	} `json:"secrets"`
}

// TestSecretsRotate checks a receiver with an independent library: it accepts the first attempt and
// the one after a refusal. During the overlap it may have the old or the new secret, after the
// revoke only the new one. All of this survives a restart.
func TestSecretsRotate(t *testing.T) {
	t.Parallel()
	got := make(chan sent, 100)
	var refuse atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if refuse.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		got <- sent{r.Header.Clone(), body}
	}))
	t.Cleanup(srv.Close)
	next := func() sent {
		t.Helper()
		select {
		case a := <-got:
			return a
		case <-time.After(patience):
			t.Fatal("nothing came")
			return sent{}
		}
	}
	s := start(t)
	const base = "/v1/webhooks/endpoints"
	var e hookEndpoint
	s.call(t, http.StatusCreated, "POST", base, object{"url": srv.URL, "events": []string{"agent.joined"}}, &e)
	first := e.Secrets[0].Secret
	test := func() sent {
		t.Helper()
		s.call(t, http.StatusAccepted, "POST", base+"/"+e.ID+"/test", nil, nil)
		return next()
	}
	if by := test().signedBy(t, first); by != "0" {
		t.Errorf("the first attempt is signed by %q", by)
	}
	refuse.Store(true)
	s.join(t, "n", nil)
	one := next()
	refuse.Store(false)
	var rotated struct {
		Secret struct{ Secret string }
	}
	s.call(t, http.StatusCreated, "POST", base+"/"+e.ID+"/secrets", object{"overlap": 3600}, &rotated)
	second := rotated.Secret.Secret
	two := next() // after five seconds, with the secrets of now and the body of then
	if one.signedBy(t, first, second) != "0" || two.signedBy(t, first, second) != "01" || string(one.body) != string(two.body) || two.header.Get("webhook-attempt") != "2" {
		t.Errorf("the attempts are signed by %q and %q", one.signedBy(t, first, second), two.signedBy(t, first, second))
	}
	s.call(t, http.StatusNoContent, "DELETE", base+"/"+e.ID+"/secrets/"+e.Secrets[0].ID, nil, nil)
	if by := test().signedBy(t, first, second); by != "1" {
		t.Errorf("after the revoke it is signed by %q", by)
	}
	s.kill()
	s = start(t, "HEARDLOG_STORE=sqlite:"+s.store)
	if by := test().signedBy(t, first, second); by != "1" {
		t.Errorf("after a restart it is signed by %q", by)
	}
}
