package webhook

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
)

// minHidden is the length in bytes from which a value is searched for in answers. Shorter values
// occur in any text and protect nothing.
const minHidden = 6

// hideSecrets removes the endpoint's secret values from the receiver's answer. A receiver that
// echoes the request, as some do when they fail, would otherwise put them into the log of attempts.
func (a *Attempt) hideSecrets(e *Endpoint) {
	if len(a.Response) == 0 && len(a.Detail.Headers) == 0 && a.Error == "" {
		return
	}
	hidden := e.hidden()
	if len(hidden) == 0 {
		return
	}
	if a.Truncated {
		a.Response = a.Response[:len(a.Response)-begun(a.Response, hidden)]
	}
	for _, v := range hidden {
		a.Response = bytes.ReplaceAll(a.Response, []byte(v), []byte("[secret]"))
		// It may quote the target of a redirect.
		a.Error = strings.ReplaceAll(a.Error, v, "[secret]")
		for i := range a.Detail.Headers {
			a.Detail.Headers[i].Value = strings.ReplaceAll(a.Detail.Headers[i].Value, v, "[secret]")
		}
	}
	if len(a.Response) > MaxResponse { // a short value has made room for the sign in its place
		a.Response, a.Truncated = a.Response[:MaxResponse], true
	}
}

// hidden lists the endpoint's secret values as they appear in a request and in JSON, longest first,
// because one may contain another.
func (e *Endpoint) hidden() []string {
	var values []string
	for _, s := range e.Secrets {
		values = append(values, s.Value.Reveal())
	}
	for _, h := range e.Headers {
		values = append(values, h.Value.Reveal())
	}
	values = append(values, e.Auth.Bearer.Reveal(), e.Auth.Password.Reveal(), e.ClientCert.Key.Reveal())
	if e.Auth.Password != "" {
		values = append(values, base64.StdEncoding.EncodeToString([]byte(e.Auth.User+":"+e.Auth.Password.Reveal())))
	}
	var out []string
	for _, v := range values {
		if len(v) < minHidden {
			continue
		}
		out = append(out, v)
		if b, err := json.Marshal(v); err == nil && string(b) != `"`+v+`"` {
			out = append(out, string(b[1:len(b)-1]))
		}
	}
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return out
}

// begun returns how many bytes at the end of a truncated answer may be the beginning of a value.
func begun(b []byte, values []string) int {
	n := 0
	for _, v := range values {
		for k := min(len(v)-1, len(b)); k > n; k-- {
			if bytes.HasSuffix(b, []byte(v[:k])) {
				n = k
				break
			}
		}
	}
	return n
}
