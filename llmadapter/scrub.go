package llmadapter

import (
	"bytes"
	"errors"
	"net/http"
	"regexp"
	"strconv"
)

// hidden stands where a secret stood.
const hidden = "[secret]"

// keyLike finds what looks like a key though it is none of ours: upstreams quote the keys of others, too.
func keyLike() *regexp.Regexp {
	return regexp.MustCompile(`\bsk-[A-Za-z0-9_\-]{6,}|(?i:\bBearer\s+)[A-Za-z0-9._~+/\-]{6,}=*`)
}

// Scrub takes secrets out of a text: first what equals one of them, plain or as JSON writes it, then what looks like a key
// (reference/proxies.md rule 11).
func Scrub(b []byte, secrets []string) []byte {
	for _, s := range secrets {
		if len(s) < 4 { // would tear words apart
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

// scrubbed gives an error with the same chain of causes but a text without secrets.
func scrubbed(err error, call *Call) error {
	if text := string(Scrub([]byte(err.Error()), call.Secrets())); text != err.Error() {
		return errors.New(text)
	}
	return err
}

func isJSONObject(b []byte) bool {
	t := bytes.TrimSpace(b)
	return len(t) > 0 && t[0] == '{' && validJSON(t)
}

// ErrorObject reads an error that an upstream put into its answer: an object with a message, or a string. It gives its text,
// without what looks like a key, and the HTTP status that it names, 502 where it names none.
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
