package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"strings"

	"github.com/heardlog/heardlog/internal/secret"
)

// Headers are headers for an upstream, by their names in canonical form. Their values may be keys.
type Headers map[string]secret.String

// parseHeaders reads Name=value pairs with commas between, a JSON object, or a file with either, in
// which each pair has a line of its own. No error shows a value, or a name that is not known, since
// it may be a key in the wrong place.
func parseHeaders(v string) (Headers, error) {
	v, separator := strings.TrimSpace(v), ","
	if !strings.HasPrefix(v, "{") && !strings.Contains(v, "=") && !strings.Contains(v, ": ") {
		b, err := readFile(v, "is neither Name=value pairs nor a JSON object nor the path of a file that can be read", maxFallbacksFile)
		if err != nil {
			return nil, err
		}
		v, separator = strings.TrimSpace(string(b)), "\n"
	}
	out := Headers{}
	if strings.HasPrefix(v, "{") {
		return out, out.addObject(v)
	}
	for i, pair := range strings.Split(v, separator) {
		if pair = strings.TrimSpace(pair); pair == "" || strings.HasPrefix(pair, "#") {
			continue
		}
		at := strings.IndexAny(pair, "=:")
		if at < 0 {
			return nil, fmt.Errorf("entry %d must be Name=value; a value with a comma needs a JSON object or a file", i+1)
		}
		if err := out.add(pair[:at], pair[at+1:]); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
	}
	return out, nil
}

// addObject adds the headers of a JSON object.
func (h Headers) addObject(v string) error {
	d := json.NewDecoder(bytes.NewReader([]byte(v)))
	var object map[string]string
	if err := d.Decode(&object); err != nil {
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			return fmt.Errorf("must be a JSON object of strings: syntax error at byte %d", e.Offset)
		}
		return errors.New("must be a JSON object of strings")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("has text after its object")
	}
	for name, value := range object {
		if err := h.add(name, value); err != nil {
			return err
		}
	}
	return nil
}

// add adds a header.
func (h Headers) add(name, value string) error {
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !headerName(name) {
		return errors.New("the name is not a valid header name")
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	if reservedHeader(name) {
		return fmt.Errorf("%s is set by the server itself, or belongs to the connection", name)
	}
	switch _, twice := h[name]; {
	case twice:
		return errors.New("the name is used in an earlier entry")
	case value == "":
		return errors.New("the value is missing")
	case len(h) == maxHeaders:
		return fmt.Errorf("must have at most %d headers", maxHeaders)
	}
	if err := oneLine(value); err != nil {
		return fmt.Errorf("the value %w", err)
	}
	h[name] = secret.String(value)
	return nil
}

// reservedHeader reports whether a header cannot be set: one of the connection, of the body, or one
// that every call to an upstream sets.
func reservedHeader(name string) bool {
	switch name {
	case "Host", "Connection", "Content-Length", "Transfer-Encoding", "Te", "Trailer", "Upgrade", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate",
		"Proxy-Authorization", "Expect", "Content-Type", "Content-Encoding", "Accept", "Accept-Encoding", "Traceparent", "Tracestate", "X-Request-Id":
		return true
	}
	return strings.HasPrefix(name, "X-Heardlog-")
}
