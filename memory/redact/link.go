package redact

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"
	"unicode/utf8"
)

// ID returns a name of a message or a tool call. One that has a number or an address in it becomes
// the type of that and a short hash, such as "phone_1f3a9", so that equal names stay equal and
// others differ. What it may be: see Types; own expressions and secrets do not apply.
func (r *Redactor) ID(id string) string {
	if r == nil || id == "" {
		return id
	}
	spans := r.only(Card, IBAN, Phone, Email).spans(id)
	if len(spans) == 0 {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return spans[0].name + "_" + hex.EncodeToString(sum[:])[:hashDigits]
}

// hashDigits is how long the hash in a name is. Many telephone numbers share a hash of that length,
// so that it does not show which it was.
const hashDigits = 5

// link returns an address with personal data replaced in its user, path and parameters.
func (r *Redactor) link(s string, depth int) string {
	if len(s) >= 5 && strings.EqualFold(s[:5], "data:") {
		return r.dataURI(s, depth)
	}
	r = r.Unasked()
	var b strings.Builder
	rest, delimiters, path := s, "?&#", false
	if scheme, more, ok := strings.Cut(s, "://"); ok {
		end := strings.IndexAny(more, "/?#")
		if end < 0 {
			end = len(more)
		}
		host := more[:end]
		if at := strings.LastIndexByte(host, '@'); at >= 0 {
			host = r.login(host[:at]) + host[at:]
		}
		b.WriteString(scheme + "://" + host)
		rest, delimiters, path = more[end:], "/?&#", true
	} else if scheme, more, ok := strings.Cut(s, ":"); ok && !strings.ContainsAny(scheme, "/?#@ ") {
		b.WriteString(scheme + ":") // tel:, mailto:
		rest = more
	}
	for rest != "" {
		end := strings.IndexAny(rest, delimiters)
		if end < 0 {
			end = len(rest)
		}
		b.WriteString(r.parameter(rest[:end], path, depth))
		if end < len(rest) {
			path = path && rest[end] == '/'
			b.WriteByte(rest[end])
			end++
		}
		rest = rest[end:]
	}
	return b.String()
}

// login replaces in the user and password of an address.
func (r *Redactor) login(s string) string {
	user, password, ok := strings.Cut(s, ":")
	user = r.unescaped("", user, false, 0)
	if !ok {
		return user
	}
	if r.types[Secret] {
		return user + ":[" + Secret + "]"
	}
	return user + ":" + r.unescaped("", password, false, 0)
}

// parameter replaces in a segment of a path, or in a parameter with its name.
func (r *Redactor) parameter(s string, path bool, depth int) string {
	name, value, ok := strings.Cut(s, "=")
	if !ok {
		return r.unescaped("", s, path, depth)
	}
	return r.unescaped("", name, false, depth) + "=" + r.unescaped(name, value, false, depth)
}

// unescaped replaces in an escaped text. name is what an address calls it. In a path, long numbers
// are names of things unless they stand alone.
func (r *Redactor) unescaped(name, s string, path bool, depth int) string {
	plain, err := url.PathUnescape(s)
	if err != nil {
		plain = s
	}
	out := r.text(plain, depth)
	if out == plain && strings.Contains(plain, "+") { // which means a space, or begins a number
		spaced := plain[:1] + strings.ReplaceAll(plain[1:], "+", " ")
		if out = r.text(spaced, depth); out == spaced {
			out = plain
		}
	}
	if out == plain && name != "" { // "pin=4711"
		if value, ok := strings.CutPrefix(r.Text(name+": "+plain), name+": "); ok {
			out = value
		}
	}
	if out == plain || path && !strings.Contains(out, "["+Email+"]") && maskShape.FindString(out) != out {
		return s
	}
	return escape(out)
}

// escape escapes a text for an address, except for names in brackets.
func escape(s string) string {
	return strings.NewReplacer("+", "%20", "%5B", "[", "%5D", "]").Replace(url.QueryEscape(s))
}

// dataURI returns a data URI with personal data replaced if its type is one of texts. Pictures,
// sound and the like stay as they are.
func (r *Redactor) dataURI(s string, depth int) string {
	head, data, ok := strings.Cut(s, ",")
	if !ok {
		return r.text(s, depth)
	}
	kind := head[len("data:"):]
	encoded := len(kind) >= 7 && strings.EqualFold(kind[len(kind)-7:], ";base64")
	kind, _, _ = strings.Cut(kind, ";")
	switch {
	case kind != "" && !isText(kind):
		return s
	case encoded:
		return head + "," + r.base64(data, depth)
	}
	plain, err := url.PathUnescape(data)
	if err != nil {
		plain = data
	}
	if out := r.text(plain, depth); out != plain {
		return head + "," + escape(out)
	}
	return s
}

// data returns what a part of a message has as its data. kind is the type or the format that stands
// beside it, "" if none does.
func (r *Redactor) data(s, kind string, depth int) string {
	switch {
	case len(s) >= 5 && strings.EqualFold(s[:5], "data:"):
		return r.dataURI(s, depth)
	case kind != "" && !isText(kind):
		return s
	}
	return r.base64(s, depth)
}

// isText reports whether a media type, or a format, is one of texts.
func isText(kind string) bool {
	kind = strings.ToLower(strings.TrimSpace(kind))
	if strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml") && kind != "image/svg+xml" {
		return true
	}
	switch strings.TrimPrefix(kind, "application/") {
	case "json", "xml", "javascript", "x-www-form-urlencoded", "x-ndjson", "yaml", "text", "txt", "plain", "csv", "markdown", "md", "html":
		return true
	}
	return false
}

const (
	// sniffed is how many bytes of a base64 text show what it holds.
	sniffed = 1 << 10
	// minBinary is how long data that is neither a text nor base64 of one must be in order to count
	// as a picture or sound.
	minBinary = 64
)

// base64 replaces in a text that may be encoded in base64. What is encoded and not a text stays as
// it is; the beginning shows that.
func (r *Redactor) base64(s string, depth int) string {
	coding := base64.StdEncoding
	if strings.ContainsAny(s[:min(len(s), sniffed)], "-_") {
		coding = base64.URLEncoding
	}
	if len(s)%4 != 0 {
		coding = coding.WithPadding(base64.NoPadding)
	}
	head := s[:min(len(s), sniffed)]
	begin, err := coding.DecodeString(head)
	switch {
	case err != nil:
		return r.text(s, depth)
	case !readable(begin, len(head) < len(s)):
		if len(s) >= minBinary {
			return s
		}
		return r.text(s, depth)
	}
	all, err := coding.DecodeString(s)
	if err != nil || !utf8.Valid(all) {
		return s
	}
	if out := r.text(string(all), depth); out != string(all) {
		return coding.EncodeToString([]byte(out))
	}
	return s
}

// readable reports whether bytes are a text. A cut one may end within a character.
func readable(b []byte, cut bool) bool {
	for len(b) > 0 {
		c, size := utf8.DecodeRune(b)
		if c == utf8.RuneError && size == 1 {
			return cut && len(b) < utf8.UTFMax
		}
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' {
			return false
		}
		b = b[size:]
	}
	return true
}
