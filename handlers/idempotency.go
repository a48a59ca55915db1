package handlers

import (
	"net/http"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
)

// maxKey is how long an Idempotency-Key may be where ids of several messages are made of it.
const maxKey = 100

// idempotencyKey gives the request's Idempotency-Key, "" for none: printable ASCII without spaces, at most limit characters.
func idempotencyKey(r *http.Request, limit int) (string, error) {
	key := r.Header.Get("Idempotency-Key")
	if len(key) > limit {
		return "", fault.At(fault.Invalid, "Idempotency-Key", "is %d characters long; at most %d are allowed", len(key), limit)
	}
	if i := strings.IndexFunc(key, func(c rune) bool { return c <= 0x20 || c >= 0x7f }); i >= 0 {
		return "", fault.At(fault.Invalid, "Idempotency-Key", "holds a character at byte %d that is not printable ASCII without spaces", i)
	}
	return key, nil
}
