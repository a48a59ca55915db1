package webhook

import (
	"crypto/hmac"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
)

// Tolerance is how far an attempt's timestamp may be from the receiver's clock, to either side.
const Tolerance = 5 * time.Minute

// maxSignatures bounds how many signatures VerifyStandard compares, because anyone can send the
// header.
const maxSignatures = 32

// VerifyStandard checks that a request carries a Standard Webhooks v1 signature of the secret over
// the raw body, made within Tolerance of now. It compares in constant time and fails with
// fault.Unauthenticated, or fault.Invalid for a secret that cannot be used.
//
// The body must be the bytes as received: decoding and encoding them again changes them.
func VerifyStandard(secret secret.String, h http.Header, body []byte, now time.Time) error {
	id, stamp, signatures := h.Get(HeaderID), h.Get(HeaderTimestamp), h.Get(HeaderSignature)
	if id == "" || stamp == "" || signatures == "" {
		return fault.New(fault.Unauthenticated, "%s, %s or %s is missing", HeaderID, HeaderTimestamp, HeaderSignature)
	}
	unix, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || strconv.FormatInt(unix, 10) != stamp {
		return fault.New(fault.Unauthenticated, "%s is not a time in Unix seconds", HeaderTimestamp)
	}
	// Compare in seconds: a time.Duration would overflow on a timestamp in milliseconds and accept
	// it.
	if limit := int64(Tolerance / time.Second); unix < now.Unix()-limit || unix > now.Unix()+limit {
		return fault.New(fault.Unauthenticated, "%s is more than %d s away from this machine's clock", HeaderTimestamp, limit)
	}
	want, err := SignStandard(secret, id, time.Unix(unix, 0), body)
	if err != nil {
		return err
	}
	n, ok := 0, false
	for sig := range strings.SplitSeq(signatures, " ") {
		if n++; n > maxSignatures {
			break
		}
		if hmac.Equal([]byte(sig), []byte(want)) {
			ok = true
		}
	}
	if !ok {
		return fault.New(fault.Unauthenticated, "no signature in %s fits the body and the secret", HeaderSignature)
	}
	return nil
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
		return fault.New(fault.Unauthenticated, "%s does not fit the body and the secret", HeaderAgoraV2)
	}
	return nil
}
