package oidc

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"

	"github.com/heardlog/heardlog/internal/fault"
)

// Times of the issuer's keys. A token with an unknown key has them fetched again at most every
// keysGap, so that forged tokens cannot flood the issuer. While the issuer is away, keys are
// trusted for keysAway.
const (
	keysFresh = 5 * time.Minute
	keysGap   = time.Second
	keysAway  = time.Hour
)

// Bounds of the issuer's keys.
const (
	maxKeys   = 100
	minRSAKey = 2048 / 8 // bytes
)

// algorithms returns those that tokens may be signed with. All have a public key: with a symmetric
// one, who can check a token could also make it.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
	}
}

// keySet holds the public keys of the issuer.
type keySet struct {
	fetch func(ctx context.Context) ([]jose.JSONWebKey, error)
	now   func() time.Time
	loads singleflight.Group

	mu     sync.Mutex
	keys   []jose.JSONWebKey
	asOf   time.Time
	tried  time.Time
	failed error // of the last try
}

// verify returns the payload of a signed token. It fails with fault.Unauthenticated, or with
// fault.Unavailable if the keys cannot be fetched.
func (s *keySet) verify(ctx context.Context, token *jose.JSONWebSignature) ([]byte, error) {
	s.mu.Lock()
	keys, age, waited := s.keys, s.now().Sub(s.asOf), s.now().Sub(s.tried)
	s.mu.Unlock()
	switch {
	case age > keysAway:
		var err error
		if keys, err = s.load(ctx); err != nil {
			return nil, err
		}
	case age > keysFresh && waited > keysGap:
		go func() { _, _ = s.load(context.WithoutCancel(ctx)) }() // what is known is used meanwhile
	}
	payload, known := check(token, keys)
	if payload != nil {
		return payload, nil
	}
	if !known && age <= keysAway && waited > keysGap {
		again, err := s.load(ctx)
		if err != nil {
			return nil, err
		}
		if payload, _ = check(token, again); payload != nil {
			return payload, nil
		}
	}
	return nil, fault.New(fault.Unauthenticated, "the token is not signed by the identity provider")
}

// check returns the payload if one of the keys has signed the token, and whether one of them has
// the ID that the token names.
func check(token *jose.JSONWebSignature, keys []jose.JSONWebKey) (payload []byte, known bool) {
	header := token.Signatures[0].Header
	for _, k := range keys {
		if header.KeyID != "" && k.KeyID != header.KeyID || k.Algorithm != "" && k.Algorithm != header.Algorithm {
			continue
		}
		known = header.KeyID != ""
		if payload, err := token.Verify(k.Key); err == nil {
			return payload, true
		}
	}
	return nil, known
}

// load fetches the keys. Calls at the same time share one fetch, and those just after one that
// failed its error.
func (s *keySet) load(ctx context.Context) ([]jose.JSONWebKey, error) {
	s.mu.Lock()
	failed, waited := s.failed, s.now().Sub(s.tried)
	s.mu.Unlock()
	if failed != nil && waited < retryAfter {
		return nil, failed
	}
	out, err, _ := s.loads.Do("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		keys, err := s.fetch(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tried, s.failed = s.now(), err
		if err == nil {
			s.keys, s.asOf = keys, s.tried
		}
		return keys, err
	})
	if err != nil {
		return nil, err
	}
	return out.([]jose.JSONWebKey), nil
}

// fetchKeys reads the keys at an address. It leaves out those that cannot sign tokens.
func fetchKeys(ctx context.Context, client *http.Client, address string) ([]jose.JSONWebKey, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: status %d", address, resp.StatusCode)
	}
	var raw struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&raw); err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	var out []jose.JSONWebKey
	for _, one := range raw.Keys {
		var k jose.JSONWebKey
		if json.Unmarshal(one, &k) != nil || !k.Valid() || !k.IsPublic() || k.Use != "" && k.Use != "sig" {
			continue // of a kind that is not known, or for encryption
		}
		if weak, ok := k.Key.(*rsa.PublicKey); ok && weak.Size() < minRSAKey {
			continue
		}
		if out = append(out, k); len(out) == maxKeys {
			break
		}
	}
	return out, nil
}
