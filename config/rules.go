package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/secret"
)

const (
	sqliteScheme = "sqlite:"
	memoryStore  = "memory:"
	inMemory     = ":memory:" // of SQLite
	minSecretKey = 16         // characters
)

// rules are the rules of validate tags that are our own. Their errors do not show values that may
// hold a secret.
var rules = map[string]func(reflect.Value) error{
	"hostport":  textRule(checkAddr),
	"store":     textRule(checkStore),
	"project":   textRule(checkProject),
	"httpurl":   textRule(checkURL),
	"wsurl":     textRule(checkSocketURL),
	"publicurl": textRule(checkPublicURL),
	"issuer":    textRule(checkIssuer),
	"collector": textRule(checkCollector),
	"proxy":     textRule(checkProxy),
	"line":      textRule(oneLine),
	"key":       textRule(checkKey),
	"datakey":   textRule(checkDataKey),
	"seconds":   checkSeconds,
}

func textRule(check func(string) error) func(reflect.Value) error {
	// The value is a string or a secret.String.
	return func(v reflect.Value) error { return check(v.String()) }
}

func checkAddr(v string) error {
	_, port, err := net.SplitHostPort(v)
	if err != nil {
		return fmt.Errorf("must be host:port, not %q", v)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("the port must be a number from 0 to 65535, not %q", port)
	}
	return nil
}

func isLoopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.Unmap().IsLoopback())
}

func checkStore(v string) error {
	scheme, _, _ := strings.Cut(v, ":") // the rest may hold a password
	switch scheme {
	case "postgres", "postgresql":
		if u, err := url.Parse(v); err != nil || u.Hostname() == "" && u.Query().Get("host") == "" || strings.Trim(u.Path, "/") == "" {
			return errors.New("a PostgreSQL store must be postgres://USER:PASSWORD@HOST:PORT/DATABASE")
		}
		return nil
	case "redis", "rediss":
		return errors.New("agents can no longer be stored in Redis; use sqlite:PATH, or postgres://USER:PASSWORD@HOST/DATABASE for several servers")
	}
	if v == memoryStore {
		return nil
	}
	path, ok := strings.CutPrefix(v, sqliteScheme)
	if !ok || path == "" {
		return fmt.Errorf("must be sqlite:PATH, postgres://USER:PASSWORD@HOST/DATABASE, or memory: to try things out, not %q", scheme)
	}
	if strings.ContainsRune(path, 0) || strings.Contains(path, "?") {
		return errors.New("the path must not contain NUL or a question mark")
	}
	return nil
}

// ValidProject reports whether s can be the name of a project: letters, digits, dot, dash and
// underscore, at most 128, the first a letter or digit. An open server checks every request.
func ValidProject(s string) bool {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '-' || c == '_'):
		default:
			return false
		}
	}
	return s != "" && len(s) <= 128
}

func checkProject(v string) error {
	if !ValidProject(v) {
		return fmt.Errorf("must have 1 to 128 letters, digits, dots, dashes and underscores, not %q", v)
	}
	return nil
}

func checkURL(v string) error {
	u, err := url.Parse(v)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "":
		return errors.New("must be an http or https URL with a host")
	case u.User != nil:
		return errors.New("must not contain a user name or password")
	case u.Fragment != "":
		return errors.New("must not contain a fragment")
	}
	return nil
}

func checkSocketURL(v string) error {
	if rest, ok := strings.CutPrefix(v, "ws"); ok {
		v = "http" + rest
	}
	if err := checkURL(v); err != nil {
		return errors.New("must be a ws, wss, http or https URL with a host, without a user name, password or fragment")
	}
	return nil
}

func checkPublicURL(v string) error {
	if strings.Contains(v, "?") {
		return errors.New("must not contain a query")
	}
	return checkURL(v)
}

// checkCollector refuses a query, since the exporter would drop it, and a key in it.
func checkCollector(v string) error {
	if strings.Contains(v, "?") {
		return errors.New("must not contain a query; keys go into OTEL_EXPORTER_OTLP_HEADERS")
	}
	return checkURL(v)
}

func checkProxy(v string) error {
	u, err := url.Parse(v)
	if err != nil || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) || u.Hostname() == "" || (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("must be a proxy's URL such as http://proxy.example:3128")
	}
	return nil
}

func checkKey(v string) error {
	if b, err := base64.StdEncoding.DecodeString(v); err == nil && len(b) == 32 || len(v) >= minSecretKey {
		return nil
	}
	return fmt.Errorf("must have at least %d characters, not %d; 32 random bytes in base64 are better", minSecretKey, len(v))
}

// decodeKey returns the 32 bytes of a key in base64, or any other key as it is.
func decodeKey(v secret.String) secret.String {
	if b, err := base64.StdEncoding.DecodeString(v.Reveal()); err == nil && len(b) == 32 {
		return secret.String(b)
	}
	return v
}

func checkSeconds(v reflect.Value) error {
	if d := time.Duration(v.Int()); d%time.Second != 0 {
		return fmt.Errorf("must be a whole number of seconds, not %q", d)
	}
	return nil
}

// oneLine refuses control characters, which could not stand in a header.
func oneLine(v string) error {
	if i := strings.IndexFunc(v, func(r rune) bool { return r < 0x20 || r == 0x7f }); i >= 0 {
		return fmt.Errorf("must not contain a control character; there is one at byte %d", i)
	}
	return nil
}
