package webhook

import (
	"crypto/ed25519"
	"encoding/base64"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
)

// The prefixes of a v1a key pair's halves.
const (
	privatePrefix = "whsk_"
	publicPrefix  = "whpk_"
)

// DefaultOverlap is how long a replaced secret keeps signing, unless the request sets another time.
const DefaultOverlap = 24 * time.Hour

// newSecret makes a whsec_ secret of 32 random bytes.
func newSecret(random io.Reader) (secret.String, error) {
	key := make([]byte, 32)
	if _, err := io.ReadFull(random, key); err != nil {
		return "", fault.Wrap(fault.Internal, err, "no random bytes")
	}
	return secret.String(secretPrefix + base64.StdEncoding.EncodeToString(key)), nil
}

// NewKey creates a whsk_ key for v1a signatures. Receivers verify with its PublicKey.
func NewKey(random io.Reader) (secret.String, error) {
	_, key, err := ed25519.GenerateKey(random)
	if err != nil {
		return "", fault.Wrap(fault.Internal, err, "no random bytes")
	}
	return secret.String(privatePrefix + base64.StdEncoding.EncodeToString(key)), nil
}

// Asymmetric reports whether the secret is a key for v1a signatures.
func Asymmetric(s secret.String) bool { return strings.HasPrefix(string(s), privatePrefix) }

// PublicKey returns the whpk_ half of a whsk_ key, or false if s is no such key.
func PublicKey(s secret.String) (string, bool) {
	key, err := signingKey(s)
	if err != nil {
		return "", false
	}
	public, ok := key.Public().(ed25519.PublicKey)
	return publicPrefix + base64.StdEncoding.EncodeToString(public), ok
}

// signingKey reads a whsk_ key: 64 bytes, or the 32 of its seed, in base64.
func signingKey(s secret.String) (ed25519.PrivateKey, error) {
	text, ok := strings.CutPrefix(string(s), privatePrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	switch {
	case !ok || err != nil || len(key) != ed25519.SeedSize && len(key) != ed25519.PrivateKeySize:
		return nil, fault.At(fault.Invalid, "secret", "must have base64 of an ed25519 key of 64 or 32 bytes after %s", privatePrefix)
	case len(key) == ed25519.SeedSize:
		return ed25519.NewKeyFromSeed(key), nil
	}
	if !slices.Equal(ed25519.NewKeyFromSeed(key[:ed25519.SeedSize]), key) {
		return nil, fault.At(fault.Invalid, "secret", "must be a key pair whose two halves belong together")
	}
	return key, nil
}

// ParseKey checks what may sign for an endpoint: a secret as ParseSecret takes it, or a whsk_ key.
func ParseKey(raw string) (secret.String, error) {
	if s := secret.String(raw); Asymmetric(s) {
		_, err := signingKey(s)
		return s, err
	}
	return ParseSecret(raw)
}

// Rotate returns the endpoint with a new first secret. Live secrets of the same kind keep signing
// for the overlap; 0 ends them at once. Expired secrets are dropped. It fails with fault.Invalid if
// there are MaxSecrets live secrets already.
func (e Endpoint) Rotate(fresh SigningSecret, overlap time.Duration, now time.Time) (Endpoint, error) {
	list := []SigningSecret{fresh}
	for _, s := range e.Secrets {
		if Asymmetric(s.Value) == Asymmetric(fresh.Value) {
			if end := now.Add(overlap); s.NotAfter.IsZero() || s.NotAfter.After(end) {
				s.NotAfter = end
			}
		}
		if s.live(now) {
			list = append(list, s)
		}
	}
	if len(list) > MaxSecrets {
		return Endpoint{}, fault.At(fault.Invalid, "secrets", "has %d live ones already; revoke one first", MaxSecrets)
	}
	e = e.Clone()
	e.Secrets = list
	return e, nil
}

// Revoke returns the endpoint without the secret. It fails with fault.NotFound if no secret has the
// ID, and with fault.Conflict for the last live one, because nothing could be signed after it.
func (e Endpoint) Revoke(id string, now time.Time) (Endpoint, error) {
	at := slices.IndexFunc(e.Secrets, func(s SigningSecret) bool { return s.ID == id })
	if at < 0 {
		return Endpoint{}, fault.New(fault.NotFound, "there is no secret %s", strconv.Quote(id))
	}
	was := e.Secrets[at].live(now)
	e = e.Clone()
	e.Secrets = slices.Delete(e.Secrets, at, at+1)
	if was && len(e.live(now)) == 0 {
		return Endpoint{}, fault.New(fault.Conflict, "this is the last secret that signs; add a new one first")
	}
	return e, nil
}

func (s SigningSecret) live(now time.Time) bool { return s.NotAfter.IsZero() || now.Before(s.NotAfter) }
