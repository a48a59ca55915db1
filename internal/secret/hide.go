package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
)

// minLength is the length in bytes from which a secret is searched for. Shorter ones occur in any
// text and protect nothing.
const minLength = 4

// Limits of the secrets of a set. The time of a search depends on them.
const (
	MaxSecrets = 64        // values
	MaxBytes   = 128 << 10 // bytes of all values, more than a valid webhook endpoint has
)

// Withheld stands for a text in which too many secrets would have to be searched for. It is JSON,
// since the text may have been.
const Withheld = `{"error":{"message":"left out, since the call holds too many secrets to search for","type":"upstream_error"}}`

// Set holds secrets in the forms in which a text may repeat them, longest first.
type Set struct {
	forms []string
	full  bool // more than the limits allow
}

// NewSet returns the set of the given secrets: each as it is, in JSON's form and percent-encoded.
// Of a header's "Bearer x" and "Basic x" it also holds x, and what x encodes. A set of more than
// MaxSecrets values or MaxBytes bytes holds none of them: it replaces every text as a whole.
func NewSet(values ...string) Set {
	count, size := 0, 0
	for _, v := range values {
		if len(v) >= minLength {
			count++
			size += len(v)
		}
	}
	if count > MaxSecrets || size > MaxBytes {
		return Set{full: true}
	}
	var out []string
	add := func(v string) {
		if len(v) < minLength {
			return
		}
		out = append(out, v, url.QueryEscape(v), url.PathEscape(v))
		for _, escapeHTML := range []bool{false, true} {
			var b bytes.Buffer
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(escapeHTML)
			if e.Encode(v) == nil {
				out = append(out, string(b.Bytes()[1:b.Len()-2]))
			}
		}
	}
	for _, v := range values {
		add(v)
		scheme, rest, _ := strings.Cut(v, " ")
		switch {
		case strings.EqualFold(scheme, "Bearer"):
			add(rest)
		case strings.EqualFold(scheme, "Basic"):
			add(rest)
			if login, err := base64.StdEncoding.DecodeString(rest); err == nil {
				_, password, _ := strings.Cut(string(login), ":")
				add(string(login))
				add(password)
			}
		case strings.Contains(v, ":"): // a login
			add(base64.StdEncoding.EncodeToString([]byte(v)))
		}
	}
	return Set{forms: sorted(out)}
}

// Full reports whether the set holds too many secrets to search for.
func (s Set) Full() bool { return s.full }

// Remove replaces the secrets in a text by Mask. Of a full set it returns Withheld.
func (s Set) Remove(b []byte) []byte {
	if s.full && len(b) > 0 {
		return []byte(Withheld)
	}
	for _, v := range s.forms {
		if bytes.Contains(b, []byte(v)) {
			b = bytes.ReplaceAll(b, []byte(v), []byte(Mask))
		}
	}
	return b
}

// Begun returns how many bytes at the end of a truncated text may be the beginning of a secret.
func (s Set) Begun(b []byte) int {
	if s.full {
		return len(b)
	}
	n := 0
	for _, v := range s.forms {
		for k := min(len(v)-1, len(b)); k > n; k-- {
			if bytes.HasSuffix(b, []byte(v[:k])) {
				n = k
				break
			}
		}
	}
	return n
}

// shapes matches what looks like a key by itself: those of OpenAI and its like, of AWS and Google,
// JSON web tokens, the Authorization header, and logins in addresses.
var shapes = regexp.MustCompile(`\bsk-[A-Za-z0-9_\-]{6,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[A-Za-z0-9_\-]{30,}` +
	`|\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{4,}\.[A-Za-z0-9_\-]*|(?i:\bBearer[ \t]+)[A-Za-z0-9._~+/\-]{6,}=*|(?i:authorization["']?\s*[:=]\s*["']?basic\s+)[A-Za-z0-9+/]{4,}=*`)

// Shapes returns where in a text what looks like a key by itself begins and ends.
func Shapes(s string) [][]int { return shapes.FindAllStringIndex(s, -1) }

// loginShape matches the login of an address.
var loginShape = regexp.MustCompile(`(://)[^\s/?#"'@:]+:[^\s/?#"'@]+@`)

// queryShape matches a query parameter in an address.
var queryShape = regexp.MustCompile(`([?&](?:amp;)?([A-Za-z0-9_.\-]{1,64})=)[^\s&"'<>#]+`)

// Hide removes the secrets of a set from a text, and then all that looks like a secret, since the
// text may quote others too.
func (s Set) Hide(b []byte) []byte {
	b = shapes.ReplaceAll(s.Remove(b), []byte(Mask))
	if bytes.Contains(b, []byte("://")) {
		b = loginShape.ReplaceAll(b, []byte("${1}"+Mask+"@"))
	}
	if !bytes.ContainsAny(b, "?&") {
		return b
	}
	return queryShape.ReplaceAllFunc(b, func(m []byte) []byte {
		if sub := queryShape.FindSubmatch(m); inQuery(string(sub[2])) {
			return append(bytes.Clone(sub[1]), Mask...)
		}
		return m
	})
}
