package secret

import (
	"slices"
	"strings"
)

// whole are names that hold a secret only as a whole: "key" does, "cache_key" does not.
var whole = []string{"key", "auth", "sig", "jwt", "pwd", "pass", "sas", "bearer", "xapikey", "xkey", "xauth"}

// parts are parts of names that hold a secret: "X-Amz-Credential", "tts_api_key".
var parts = []string{
	"apikey", "accesskey", "secretkey", "privatekey", "subscriptionkey", "functionskey", "signingkey", "authkey", "secret", "password",
	"passwd", "passphrase", "signature", "credential", "authorization", "cookie",
}

// Named reports whether a JSON member, a header or a query parameter of that name holds a secret.
// Case and everything but letters and digits do not count.
func Named(name string) bool {
	if len(name) > 128 {
		return false
	}
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return -1
	}, name)
	return slices.Contains(whole, plain) || strings.HasSuffix(plain, "token") ||
		slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(plain, part) })
}

// inQuery reports whether a query parameter holds a secret. Azure Functions take their key as code.
func inQuery(name string) bool { return strings.EqualFold(name, "code") || Named(name) }

// IsMask reports whether a value stands for a stored secret: Mask, or three stars or more, as other
// products show secrets.
func IsMask(value string) bool {
	return value == Mask || len(value) >= 3 && strings.Trim(value, "*") == ""
}
