package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/go-playground/validator/v10"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/input"
)

// bodies reads and checks request bodies. The groups of handlers embed it.
type bodies struct {
	limit    int64 // bytes
	validate *validator.Validate
}

// decode reads a JSON body into T within the limits of the server. On routes of our own (strict) unknown fields are refused.
func decode[T any](b bodies, w http.ResponseWriter, r *http.Request, strict bool) (T, error) {
	var v T
	body, err := b.read(w, r)
	if err != nil {
		return v, err
	}
	return v, b.unmarshal(body, &v, strict)
}

// decodeBytes is decode for a body already read.
func (b bodies) unmarshal(body []byte, v any, strict bool) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	if strict {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(v); err != nil {
		return input.Error(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fault.New(fault.BadRequest, "the body holds more than one JSON value")
	}
	return b.check(v)
}

// readBody is readRaw for JSON, whose depth it checks.
func (b bodies) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return b.readUpTo(w, r, b.limit)
}

// readBodyUpTo is readBody with a limit of its own.
func (b bodies) readUpTo(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := b.readRawUpTo(w, r, limit)
	if err != nil {
		return nil, err
	}
	if depth := jsonDepth(body); depth > MaxDepth {
		return nil, fault.New(fault.BadRequest, "the JSON nests deeper than %d levels", MaxDepth)
	}
	return body, nil
}

// readRaw reads the whole body (which also arms the server's watch on the connection) and checks its size.
func (b bodies) readRaw(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return b.readRawUpTo(w, r, b.limit)
}

// readUpTo is readRaw with a limit of its own.
func (b bodies) readRawUpTo(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if ct := r.Header.Get("Content-Type"); ct != "" {
		// Clients send application/json;charset=utf-8 and, with -d of curl, a form type: the body decides.
		if _, _, err := mime.ParseMediaType(ct); err != nil {
			return nil, fault.New(fault.BadRequest, "Content-Type %q cannot be read; send application/json", clip(ct, 80))
		}
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, fault.New(fault.BadRequest, "Content-Encoding %q is not supported; send the body as it is", clip(enc, 40))
	}
	body, err := readAll(http.MaxBytesReader(w, r.Body, limit), min(r.ContentLength, limit))
	if r.ContentLength != 0 && err == nil {
		// observe has set a deadline. The server goes on reading, to notice a client that leaves: that must not end.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	if err != nil {
		if tooBig, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, fault.New(fault.TooLarge, "the body is larger than %d bytes", tooBig.Limit)
		}
		return nil, fault.Wrap(fault.BadRequest, err, "the body could not be read")
	}
	return body, nil
}

// readAll is io.ReadAll for a body of so many bytes, as its sender says; below 0 if he does not. What he says is believed up to
// maxTrusted: memory is given for bytes that came, not for a number in a head.
func readAll(r io.Reader, size int64) ([]byte, error) {
	const maxTrusted = 64 << 10
	b := make([]byte, 0, max(512, min(size, maxTrusted)+1)) // one more, so that the end is seen without growing
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return b, err
		}
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
	}
}

// jsonDepth gives the deepest nesting of brackets outside strings; it does not check the JSON. Strings, most of any body, are
// passed over by bytes.IndexByte.
func jsonDepth(b []byte) int {
	depth, deepest := 0, 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			for { // to the quote that no backslash stands before
				n := bytes.IndexByte(b[i+1:], '"')
				if n < 0 {
					return deepest
				}
				start := i + 1
				i += 1 + n
				slashes := 0
				for k := i - 1; k >= start && b[k] == '\\'; k-- {
					slashes++
				}
				if slashes%2 == 0 {
					break
				}
			}
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		}
	}
	return deepest
}

// optionalBody reads the body of a call that may come without one; nil is none.
func (b bodies) readOptional(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := b.read(w, r)
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, err
	}
	return body, err
}

// noBody reads the body of a call that takes none; an empty object is as good.
func (b bodies) readNone(w http.ResponseWriter, r *http.Request) error {
	body, err := b.read(w, r)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}
	return b.unmarshal(body, &struct{}{}, true)
}
