package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

const maxOrigins = 100

// Origins are the origins of web pages that may call the server: none, a list, or * alone.
type Origins []string

// Any reports whether every page may.
func (o Origins) Any() bool { return len(o) == 1 && o[0] == "*" }

// parseOrigins reads a list of origins.
func parseOrigins(v string) (Origins, error) {
	var out Origins
	for e := range strings.SplitSeq(v, ",") {
		e = strings.TrimSpace(e)
		if e == "" {
			continue
		}
		if len(out) == maxOrigins {
			return nil, fmt.Errorf("must have at most %d origins", maxOrigins)
		}
		u, err := url.Parse(e)
		if e != "*" && (err != nil || u.Scheme == "" || u.Host == "" || e != u.Scheme+"://"+u.Host || strings.Contains(e, "*")) {
			return nil, fmt.Errorf("must be origins such as https://app.example or http://localhost:3000, without a path, or *, not %q", e)
		}
		out = append(out, e)
	}
	for _, o := range out {
		if o == "*" && len(out) > 1 {
			return nil, errors.New("must be either * or a list of origins")
		}
	}
	return out, nil
}
