package webhook

import (
	"crypto/hmac"
	"net/http"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
)

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
