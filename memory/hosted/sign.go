package hosted

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // Twilio signs with it
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The headers that hold signatures.
const (
	headerVapiSecret    = "X-Vapi-Secret"
	headerVapiSignature = "X-Vapi-Signature"
	headerVapiHMAC      = "X-Signature"
	headerVapiTime      = "X-Timestamp"
	headerRetell        = "X-Retell-Signature"
	headerElevenLabs    = "ElevenLabs-Signature"
	headerTwilio        = "X-Twilio-Signature"
)

// How old a signed webhook may be: as long as the platforms' own libraries accept it.
const (
	maxAge           = 5 * time.Minute
	maxAgeElevenLabs = 30 * time.Minute
)

// signatures are the headers that sign a platform's webhooks. Others than these do not sign any.
var signatures = map[string][]string{
	"vapi": {headerVapiSecret, headerVapiSignature, headerVapiHMAC}, "retell": {headerRetell}, "elevenlabs": {headerElevenLabs}, "twilio": {headerTwilio},
}

// Signed reports whether the headers of a request have a signature of the platform.
func Signed(name string, h http.Header) bool {
	return slices.ContainsFunc(signatures[name], func(header string) bool { return h.Get(header) != "" })
}

// Request is a webhook to be verified.
type Request struct {
	Header http.Header
	Body   []byte
	// URLs are the addresses at which the platform may have called, with their queries: Twilio
	// signs its own idea of it.
	URLs []string
	Now  time.Time
}

// Verify reports whether a secret signed a webhook, in constant time.
func Verify(name, secret string, r Request) bool {
	switch name {
	case "vapi":
		return r.vapi(secret)
	case "retell":
		at, digest, _ := strings.Cut(r.Header.Get(headerRetell), ",")
		at, ok := strings.CutPrefix(at, "v=")
		digest, okDigest := strings.CutPrefix(digest, "d=")
		return ok && okDigest && r.fresh(at, time.Millisecond, maxAge) && equal(digest, sign(sha256.New, secret, r.Body, []byte(at)))
	case "elevenlabs":
		var at, digest string
		for part := range strings.SplitSeq(r.Header.Get(headerElevenLabs), ",") {
			if v, ok := strings.CutPrefix(part, "t="); ok {
				at = v
			} else if v, ok := strings.CutPrefix(part, "v0="); ok {
				digest = v
			}
		}
		return r.fresh(at, time.Second, maxAgeElevenLabs) && equal(digest, sign(sha256.New, secret, []byte(at), []byte("."), r.Body))
	case "twilio":
		return r.twilio(secret)
	}
	return false
}

// vapi verifies the two ways of Vapi: the secret itself in a header, or a signature of the body,
// with or without a time in front of it.
func (r *Request) vapi(secret string) bool {
	valid := equal(r.Header.Get(headerVapiSecret), secret)
	for _, name := range []string{headerVapiSignature, headerVapiHMAC} {
		digest := strings.TrimPrefix(r.Header.Get(name), "sha256=")
		if at := r.Header.Get(headerVapiTime); at != "" {
			unit := time.Second
			if len(at) > 11 {
				unit = time.Millisecond
			}
			valid = equal(digest, sign(sha256.New, secret, []byte(at), []byte("."), r.Body)) && r.fresh(at, unit, maxAge) || valid
			continue
		}
		valid = equal(digest, sign(sha256.New, secret, r.Body)) || valid
		valid = name == headerVapiSignature && equal(digest, secret) || valid // as older documents have it
	}
	return valid
}

// twilio verifies a form, whose fields are signed in their order behind the address, or another
// body, whose hash is in the signed address.
func (r *Request) twilio(token string) bool {
	var fields []byte
	form := IsForm(r.Header)
	if form {
		values, err := url.ParseQuery(string(r.Body))
		if err != nil {
			return false
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			list := slices.Compact(slices.Sorted(slices.Values(values[name])))
			for _, v := range list {
				fields = append(append(fields, name...), v...)
			}
		}
	}
	sum := sha256.Sum256(r.Body)
	digest := r.Header.Get(headerTwilio)
	valid := false
	for _, at := range r.URLs {
		u, err := url.Parse(at)
		if err != nil || !form && !equal(u.Query().Get("bodySHA256"), hex.EncodeToString(sum[:])) {
			continue
		}
		mac := hmac.New(sha1.New, []byte(token))
		mac.Write([]byte(at))
		mac.Write(fields)
		valid = equal(digest, base64.StdEncoding.EncodeToString(mac.Sum(nil))) || valid
	}
	return valid
}

// fresh reports whether a time, in units since 1970, is not older or newer than that.
func (r *Request) fresh(at string, unit, most time.Duration) bool {
	n, err := strconv.ParseInt(at, 10, 64)
	if err != nil || n < 0 || n > 1<<53/int64(unit/time.Millisecond) {
		return false
	}
	age := r.Now.UnixMilli() - n*int64(unit/time.Millisecond)
	return max(age, -age) <= most.Milliseconds()
}

// sign returns the HMAC of parts, in hex.
func sign(h func() hash.Hash, secret string, parts ...[]byte) string {
	mac := hmac.New(h, []byte(secret))
	for _, p := range parts {
		mac.Write(p)
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// equal compares in constant time. Nothing equals an empty text.
func equal(given, want string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1 && given != ""
}

// IsForm reports whether a body is a form, as most of Twilio's are.
func IsForm(h http.Header) bool {
	return strings.HasPrefix(h.Get("Content-Type"), "application/x-www-form-urlencoded")
}
