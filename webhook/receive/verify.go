// Package receive is the receiving side of Heardlog's webhooks. It verifies requests, decodes them
// into types, and serves a URL that handles each event once. It depends only on the standard
// library.
//
// A complete receiver:
//
//	v, err := receive.NewVerifier("whsec_…")
//	…
//	http.Handle("/hook", &receive.Handler{
//		Verifier: v,
//		Once:     receive.NewMemory(10_000).Once,
//		Handle: func(ctx context.Context, e receive.Event) error {
//			if h, ok := e.Data.(receive.History); ok {
//				return store(ctx, h)
//			}
//			return nil
//		},
//	})
package receive

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers that carry signatures.
const (
	HeaderID        = "webhook-id"         // the event's noticeId, the same on every attempt and replay
	HeaderTimestamp = "webhook-timestamp"  // the attempt's time, Unix seconds
	HeaderSignature = "webhook-signature"  // v1 (and v1a) signatures, separated by spaces
	HeaderAttempt   = "webhook-attempt"    // number of the attempt, from 1; not signed
	HeaderAgora     = "Agora-Signature-V2" // hex HMAC-SHA256 of the body alone
)

// DefaultTolerance is how far an attempt's timestamp may be from this machine's clock, in either
// direction. Every attempt has a fresh signature, so a retry after days passes too.
const DefaultTolerance = 5 * time.Minute

// Bounds of a secret's size and of the number of signatures checked in one header, because anyone
// can send a header.
const (
	minKey        = 24
	maxKey        = 64
	maxSignatures = 32
)

// ErrSignature is wrapped by every error of Verify: the request is not from a holder of a secret,
// or it is too old.
var ErrSignature = errors.New("the signature does not hold")

// Verifier checks that requests come from Heardlog. Create it with NewVerifier. It is safe for
// concurrent use, and must not be changed once in use.
type Verifier struct {
	// Agora accepts requests that carry only Agora-Signature-V2. That signature holds no time: a
	// recorded request can be sent again, and only dropping repeats helps. If it is false, a
	// request must have a Standard Webhooks signature.
	Agora bool
	// Tolerance is how old, or ahead, a timestamp may be; 0 = DefaultTolerance.
	Tolerance time.Duration
	// Now returns the time; nil means time.Now.
	Now func() time.Time

	raw  []string // as given: Agora's key is the text itself
	hmac [][]byte
	ed   []ed25519.PublicKey
}

// NewVerifier returns a verifier for one or more secrets: whsec_ and 24 to 64 bytes of base64, any
// other text, or whpk_ and base64, the public key of an endpoint that signs with ed25519. While a
// secret is being rotated, pass both the old and the new one; a signature by either is accepted.
// The error names the secret that cannot be used, without showing it.
func NewVerifier(secrets ...string) (*Verifier, error) {
	v := new(Verifier)
	if len(secrets) == 0 {
		return nil, errors.New("receive: a verifier needs a secret")
	}
	for i, s := range secrets {
		if err := v.add(s); err != nil {
			return nil, fmt.Errorf("receive: secret %d %w", i+1, err)
		}
	}
	return v, nil
}

func (v *Verifier) add(s string) error {
	if s == "" || strings.TrimSpace(s) != s {
		return errors.New("is empty, or has white space around it")
	}
	if text, ok := strings.CutPrefix(s, "whpk_"); ok {
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(key) != ed25519.PublicKeySize {
			return errors.New("begins with whpk_, but what follows is not base64 of 32 bytes")
		}
		v.ed = append(v.ed, key)
		return nil
	}
	// people paste both, and every signature would be wrong
	if strings.HasPrefix(s, "v1,") || strings.HasPrefix(s, "whsk_") {
		return errors.New("is not a signing secret: those begin with whsec_, or are plain text")
	}
	key := []byte(s)
	if text, ok := strings.CutPrefix(s, "whsec_"); ok {
		var err error
		if key, err = base64.StdEncoding.DecodeString(text); err != nil || len(key) < minKey || len(key) > maxKey {
			return fmt.Errorf("begins with whsec_, but what follows is not base64 of %d to %d bytes", minKey, maxKey)
		}
	}
	v.raw, v.hmac = append(v.raw, s), append(v.hmac, key)
	return nil
}

// Verify checks that a request with these headers and this raw body is genuine, in constant time.
// The body must be the bytes as received, before any JSON parser has changed them. Every error
// wraps ErrSignature and may be shown to the sender.
//
// If there is a Standard Webhooks signature, it alone decides. Agora's signature beside it is
// ignored: it is made with only one secret, which during a rotation may not be the one known here.
func (v *Verifier) Verify(h http.Header, body []byte) error {
	if h.Get(HeaderSignature) != "" {
		return v.standard(h, body)
	}
	if !v.Agora {
		return refuse("%s is missing", HeaderSignature)
	}
	return v.agora(h.Get(HeaderAgora), body)
}

func (v *Verifier) standard(h http.Header, body []byte) error {
	id, stamp := h.Get(HeaderID), h.Get(HeaderTimestamp)
	if id == "" || stamp == "" {
		return refuse("%s or %s is missing", HeaderID, HeaderTimestamp)
	}
	unix, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || strconv.FormatInt(unix, 10) != stamp {
		return refuse("%s is not a time in Unix seconds", HeaderTimestamp)
	}
	// Compare in seconds: a time.Duration would overflow on a timestamp in milliseconds and accept
	// it.
	if now, limit := v.now().Unix(), int64(v.tolerance()/time.Second); unix < now-limit || unix > now+limit {
		return refuse("%s is more than %d s away from this machine's clock", HeaderTimestamp, limit)
	}
	signed := append([]byte(id+"."+stamp+"."), body...)
	wanted := make([]string, len(v.hmac))
	for i, key := range v.hmac {
		mac := hmac.New(sha256.New, key)
		mac.Write(signed)
		wanted[i] = base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	n, ok := 0, false
	for sig := range strings.FieldsSeq(h.Get(HeaderSignature)) {
		if n++; n > maxSignatures {
			break
		}
		version, text, _ := strings.Cut(sig, ",")
		switch version {
		case "v1":
			for _, want := range wanted {
				ok = hmac.Equal([]byte(text), []byte(want)) || ok
			}
		case "v1a":
			raw, err := base64.StdEncoding.DecodeString(text)
			for _, key := range v.ed {
				ok = err == nil && ed25519.Verify(key, signed, raw) || ok
			}
		}
	}
	if !ok {
		return refuse("none in %s fits the body and a secret", HeaderSignature)
	}
	return nil
}

func (v *Verifier) agora(got string, body []byte) error {
	if got == "" {
		return refuse("%s and %s are missing", HeaderSignature, HeaderAgora)
	}
	ok := false
	for _, key := range v.raw {
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write(body)
		ok = hmac.Equal([]byte(strings.ToLower(got)), []byte(hex.EncodeToString(mac.Sum(nil)))) || ok
	}
	if !ok {
		return refuse("%s does not fit the body and a secret", HeaderAgora)
	}
	return nil
}

func (v *Verifier) now() time.Time {
	if v.Now != nil {
		return v.Now()
	}
	return time.Now()
}

func (v *Verifier) tolerance() time.Duration {
	if v.Tolerance > 0 {
		return v.Tolerance
	}
	return DefaultTolerance
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrSignature}, args...)...)
}
