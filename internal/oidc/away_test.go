package oidc_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/oidc"
)

// TestAway: while the provider is away, its keys are trusted for an hour.
func TestAway(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var url string
	var down atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case down.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/keys":
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k"}}})
		default:
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": url, "jwks_uri": url + "/keys"})
		}
	}))
	t.Cleanup(s.Close)
	url = s.URL
	var clock atomic.Int64 // Unix seconds; the keys are also fetched in the background
	clock.Store(1_780_000_000)
	p := oidc.New(oidc.Config{
		Issuer: url, Audiences: []string{"a"}, Claim: "groups", Roles: []oidc.Role{{Value: "g", Project: "p", Role: "read"}},
		Client: &http.Client{Transport: http.DefaultTransport}, Now: func() time.Time { return time.Unix(clock.Load(), 0) },
	})
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	bearer := func() error {
		t.Helper()
		claims, err := json.Marshal(map[string]any{"iss": url, "aud": "a", "sub": "s", "exp": clock.Load() + 60, "groups": "g"})
		if err != nil {
			t.Fatal(err)
		}
		signed, err := signer.Sign(claims)
		if err != nil {
			t.Fatal(err)
		}
		token, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Bearer(t.Context(), token, "")
		return err
	}
	if err := bearer(); err != nil {
		t.Fatal(err)
	}
	down.Store(true)
	clock.Add(50 * 60)
	if err := bearer(); err != nil {
		t.Errorf("away for 50 minutes: %v", err)
	}
	clock.Add(11 * 60)
	if err := bearer(); !fault.Is(err, fault.Unavailable) {
		t.Errorf("away for more than an hour: %v", err)
	}
	down.Store(false)
	clock.Add(60)
	if err := bearer(); err != nil {
		t.Errorf("back: %v", err)
	}
}
