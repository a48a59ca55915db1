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

// maxKey is the maximum length of an Idempotency-Key from which the IDs of several messages are
// made.
const maxKey = 100

// idempotencyKey returns the request's Idempotency-Key, "" for none: printable ASCII without
// spaces, at most limit characters.
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
		return def, nil // clients send zero for absent
	}
	if err != nil || n < low || n > high {
		return 0, fault.At(fault.Invalid, name, "%q is not a whole number from %d to %d", clip(s, 40), low, high)
	}
	return n, nil
}

// pathName returns an unescaped part of the path. chi leaves parts escaped in a path with escapes
// that matter, such as %2F.
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

// knownParams refuses unknown parameters, so that a typo does not become a filter that lets
// everything through.
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

// listParam reads a parameter that holds values separated by commas.
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
