package webhook

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
)

// The headers of a delivery.
const (
	HeaderID        = "webhook-id"        // the event's noticeId, the same on every attempt
	HeaderTimestamp = "webhook-timestamp" // the attempt's time, Unix seconds
	// V1 and v1a signatures, one for each live secret, separated by spaces.
	HeaderSignature = "webhook-signature"
	HeaderAttempt   = "webhook-attempt" // number of the attempt, from 1; not signed
	HeaderAgora     = "Agora-Signature"
	HeaderAgoraV2   = "Agora-Signature-V2"
)

// SignStandard returns the Standard Webhooks v1 signature of one secret, "v1,…". It fails with
// fault.Invalid if the secret cannot be used.
func SignStandard(secret secret.String, id string, at time.Time, body []byte) (string, error) {
	key, err := standardKey(secret)
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)), nil
}

// signAsymmetric returns the Standard Webhooks v1a signature of a whsk_ key, "v1a,…": ed25519 over
// the same text as v1. It fails with fault.Invalid if the key cannot be used.
func signAsymmetric(secret secret.String, id string, at time.Time, body []byte) (string, error) {
	key, err := signingKey(secret)
	if err != nil {
		return "", err
	}
	text := append([]byte(id+"."+strconv.FormatInt(at.Unix(), 10)+"."), body...)
	return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(key, text)), nil
}

// SignAgora returns the values of Agora-Signature and Agora-Signature-V2: lower-case hex of
// HMAC-SHA1 and HMAC-SHA256 over the body. The key is the text of the secret, including a whsec_
// prefix.
func SignAgora(secret secret.String, body []byte) (v1, v2 string) {
	// Older receivers of Agora's events check SHA-1; V2 is sent beside it.
	h1 := hmac.New(sha1.New, []byte(secret))
	h1.Write(body)
	h2 := hmac.New(sha256.New, []byte(secret))
	h2.Write(body)
	return hex.EncodeToString(h1.Sum(nil)), hex.EncodeToString(h2.Sum(nil))
}

// sign sets the headers of one attempt. They are made for each attempt: the timestamp must be fresh
// for receivers that refuse old ones, and a secret revoked since must not sign.
func sign(h http.Header, d Delivery, now time.Time) error {
	h.Set(HeaderID, d.EventID)
	h.Set(HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	h.Set(HeaderAttempt, strconv.Itoa(d.Attempt))
	if len(d.Endpoint.Secrets) == 0 {
		return nil
	}
	secrets := d.Endpoint.live(now)
	if len(secrets) == 0 {
		return fault.New(fault.Invalid, "every secret of the endpoint has ended, and nothing is sent unsigned: add a new secret")
	}
	signatures := make([]string, len(secrets))
	for i, s := range secrets {
		with := SignStandard
		if Asymmetric(s) {
			with = signAsymmetric
		}
		sig, err := with(s, d.EventID, now, d.Body)
		if err != nil {
			return err
		}
		signatures[i] = sig
	}
	h.Set(HeaderSignature, strings.Join(signatures, " "))
	shared := slices.IndexFunc(secrets, func(s secret.String) bool { return !Asymmetric(s) })
	// Agora's form has one signature: that of the newest secret.
	if d.Endpoint.Agora && shared >= 0 {
		v1, v2 := SignAgora(secrets[shared], d.Body)
		h.Set(HeaderAgora, v1)
		h.Set(HeaderAgoraV2, v2)
	}
	return nil
}

// signatures returns the headers of a request that sign made, nil if they hold no signature.
func signatures(h http.Header) []HeaderLine {
	if h.Get(HeaderSignature) == "" {
		return nil
	}
	var out []HeaderLine
	for _, name := range []string{HeaderTimestamp, HeaderSignature, HeaderAgora, HeaderAgoraV2} {
		if v := h.Get(name); v != "" {
			out = append(out, HeaderLine{Name: name, Value: v})
		}
	}
	return out
}

// VerifyAgora checks that a request carries the Agora-Signature-V2 of the secret over the raw body.
// It compares in constant time and fails with fault.Unauthenticated. Agora's signature holds no
// time: a recorded request can be sent again.
func VerifyAgora(secret secret.String, h http.Header, body []byte) error {
	got := h.Get(HeaderAgoraV2)
	if got == "" {
		return fault.New(fault.Unauthenticated, "%s is missing", HeaderAgoraV2)
	}
	if _, want := SignAgora(secret, body); !hmac.Equal([]byte(strings.ToLower(got)), []byte(want)) {
		return fault.New(fault.Unauthenticated, "%s does not match the body and the secret", HeaderAgoraV2)
	}
	return nil
}
