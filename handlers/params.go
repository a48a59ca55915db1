package handlers

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

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

// intParam reads a whole number from the query.
func intParam(v url.Values, name string, def, low, high int) (int, error) {
	s := v.Get(name)
	if s == "" {
		return def, nil
	}
	n, err := strconv.Atoi(s)
	if err == nil && n == 0 {
		return def, nil // clients send zero for what they leave open (reference/agora-api.md 7.11)
	}
	if err != nil || n < low || n > high {
		return 0, fault.At(fault.Invalid, name, "%q is not a whole number from %d to %d", clip(s, 40), low, high)
	}
	return n, nil
}

// pathName gives a part of the path as its client meant it. Where a path holds escapes that matter, such as %2F, chi gives its parts as they were sent.
func pathName(r *http.Request, param string) (string, error) {
	name := chi.URLParam(r, param)
	if r.URL.RawPath == "" {
		return name, nil
	}
	plain, err := url.PathUnescape(name)
	if err != nil {
		return "", fault.At(fault.Invalid, param, "%q cannot be read: a percent sign is written %%25", clip(name, 80))
	}
	return plain, nil
}

// knownParams refuses parameters that a call has not: a slip of the pen must not be a filter that lets everything through.
func knownParams(v url.Values, names ...string) error {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		switch {
		case !slices.Contains(names, name):
			return fault.At(fault.Invalid, clip(name, 80), "is not a parameter of this call; there are %s", cmp.Or(strings.Join(names, ", "), "none"))
		case len(v[name]) > 1:
			return fault.At(fault.Invalid, name, "is given %d times; several values stand in one, with commas, where they are allowed", len(v[name]))
		}
	}
	return nil
}

// listParam reads a parameter that holds several values with commas.
func listParam(v url.Values, name string) []string {
	s := v.Get(name)
	if s == "" {
		return nil
	}
	out := strings.Split(s, ",")
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}
