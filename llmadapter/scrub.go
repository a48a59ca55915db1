package llmadapter

import (
	"bytes"
	"errors"
	"net/http"
	"regexp"
	"strconv"
)

// hidden replaces secrets.
const hidden = "[secret]"

// keyLike matches what looks like a key, since upstreams may also quote other keys than ours.
func keyLike() *regexp.Regexp {
	return regexp.MustCompile(`\bsk-[A-Za-z0-9_\-]{6,}|(?i:\bBearer\s+)[A-Za-z0-9._~+/\-]{6,}=*`)
}

// Scrub removes secrets from a text: first the given ones, plain or in JSON's form, then all that
// looks like a key.
func Scrub(b []byte, secrets []string) []byte {
	for _, s := range secrets {
		if len(s) < 4 { // it would match inside words
			continue
		}
		b = bytes.ReplaceAll(b, []byte(s), []byte(hidden))
		if q := appendQuote(nil, s); len(q) != len(s)+2 {
			b = bytes.ReplaceAll(b, q[1:len(q)-1], []byte(hidden))
		}
	}
	if bytes.Contains(b, []byte("sk-")) || bytes.Contains(bytes.ToLower(b), []byte("bearer")) {
		b = keyLike().ReplaceAll(b, []byte(hidden))
	}
	return b
}

// scrubbed returns err, or an error with its text without secrets.
func scrubbed(err error, call *Call) error {
	if text := string(Scrub([]byte(err.Error()), call.Secrets())); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// isJSONObject reports whether b is a JSON object.
func isJSONObject(b []byte) bool {
	t := bytes.TrimSpace(b)
	return len(t) > 0 && t[0] == '{' && validJSON(t)
}

// ErrorObject reads an error inside an answer: an object with a message, or a string. It returns
// the text without secrets, and the HTTP status in the object, 502 by default.
func ErrorObject(obj []byte, secrets []string) (text string, status int) {
	message, _ := lookup(obj, "message")
	if text = textOf(message); text == "" && obj[0] != '{' {
		text = textOf(obj)
	}
	if text == "" {
		text = "the LLM reported an error inside its answer"
	}
	status = http.StatusBadGateway
	code, _ := lookup(obj, "code")
	if n, err := strconv.Atoi(textOf(code)); err == nil && n >= 400 && n < 600 {
		status = n
	}
	return clip(string(Scrub([]byte(text), secrets)), 1000), status
}
