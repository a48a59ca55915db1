package webhook

import (
	"encoding/base64"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
)

// The prefix of a Standard Webhooks secret, and the bounds of the key behind it, in bytes.
const (
	secretPrefix = "whsec_"
	minKey       = 24
	maxKey       = 64
)

// MaxSecret is the length of the longest secret that is plain text, in bytes.
const MaxSecret = 256

// ParseSecret checks a signing secret as an operator enters it: whsec_ and 24 to 64 bytes of
// base64, or any other text of up to MaxSecret bytes. It fails with fault.Missing or fault.Invalid,
// and the error never repeats the secret.
func ParseSecret(raw string) (secret.String, error) {
	switch {
	case raw == "":
		return "", fault.At(fault.Missing, "secret", "must not be empty")
	case strings.TrimSpace(raw) != raw:
		return "", fault.At(fault.Invalid, "secret", "must not begin or end with white space; was it pasted with a line break?")
	case strings.HasPrefix(raw, "v1,") || strings.HasPrefix(raw, "v1a,"):
		// People paste the version of the signature header in front of the secret, and every
		// signature is then wrong.
		return "", fault.At(fault.Invalid, "secret", `must not begin with "v1,", which belongs to the signature header; use only what follows the comma`)
	case strings.HasPrefix(raw, "whsk_") || strings.HasPrefix(raw, "whpk_"):
		return "", fault.At(fault.Invalid, "secret", "must be a whsec_ secret or plain text, not a key pair of v1a signatures")
	case len(raw) > MaxSecret:
		return "", fault.At(fault.Invalid, "secret", "is %d bytes long; at most %d are allowed", len(raw), MaxSecret)
	case !utf8.ValidString(raw) || strings.ContainsFunc(raw, unicode.IsControl):
		return "", fault.At(fault.Invalid, "secret", "must be UTF-8 without control characters")
	}
	if _, err := standardKey(secret.String(raw)); err != nil {
		return "", err
	}
	return secret.String(raw), nil
}

// standardKey returns the HMAC key of Standard Webhooks signatures: the decoded bytes of a whsec_
// secret, or the text of any other.
func standardKey(s secret.String) ([]byte, error) {
	text, ok := strings.CutPrefix(string(s), secretPrefix)
	if !ok {
		return []byte(s), nil
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil { // the library's error holds only an offset, but no detail of a secret is needed
		return nil, fault.At(fault.Invalid, "secret", "must have base64 after %s", secretPrefix)
	}
	if len(key) < minKey || len(key) > maxKey {
		return nil, fault.At(fault.Invalid, "secret", "must have a key of %d to %d bytes after %s, not %d", minKey, maxKey, secretPrefix, len(key))
	}
	return key, nil
}

// checkAgora refuses Agora's signatures if no live secret can make them: they are HMACs with the
// secret's text, and a key pair has none.
func (e Endpoint) checkAgora(now time.Time) error {
	if !e.Agora {
		return nil
	}
	for _, s := range e.live(now) {
		if !Asymmetric(s) {
			return nil
		}
	}
	return fault.At(fault.Invalid, "agora_signatures", "requires a live secret of kind %s: add one to secrets, or set this to false", KindHMAC)
}

// live returns the secrets of the endpoint that sign at the time.
func (e Endpoint) live(now time.Time) []secret.String {
	var out []secret.String
	for _, s := range e.Secrets {
		if s.live(now) {
			out = append(out, s.Value)
		}
	}
	return out
}
