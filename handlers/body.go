package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"time"

	fastjson "github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"github.com/go-playground/validator/v10"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory/input"
)

// MaxDepth is how deep a JSON body may nest.
const MaxDepth = 64

// DefaultBodyTimeout is the time a client has to send its body.
const DefaultBodyTimeout = 30 * time.Second

// bodies reads and checks request bodies. The groups of handlers embed it.
type bodies struct {
	limit    int64 // bytes
	large    *largeTurns
	validate *validator.Validate
}

// decode reads a JSON body into T and checks it. strict, for our own routes, refuses unknown
// fields; routes that imitate another API refuse them under /v1 only.
func decode[T any](b bodies, w http.ResponseWriter, r *http.Request, strict bool) (T, error) {
	var v T
	body, err := b.read(w, r)
	if err != nil {
		return v, err
	}
	if strict {
		return v, b.unmarshal(body, &v, true)
	}
	return v, b.unmarshalAs(w, r, body, &v)
}

// unmarshalAs is unmarshal for routes that imitate another API, or exist beside those under /v1.
func (b bodies) unmarshalAs(w http.ResponseWriter, r *http.Request, body []byte, v any) error {
	if err := checkStrays(w, r, body, v, nil); err != nil {
		return err
	}
	return b.unmarshal(body, v, false)
}

// unmarshal is decode for a body that has been read.
func (b bodies) unmarshal(body []byte, v any, strict bool) error {
	if err := parse(body, v, strict); err != nil {
		return err
	}
	return b.check(v)
}

// parse reads one JSON value into v, as encoding/json does but in less than half of its time. If
// strict is set, it refuses unknown fields, and names are case-sensitive.
func parse(body []byte, v any, strict bool) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return input.Error(io.EOF)
	}
	if err := fastjson.Unmarshal(body, v, jsonv1.DefaultOptionsV1(), fastjson.RejectUnknownMembers(strict), fastjson.MatchCaseInsensitiveNames(!strict)); err != nil {
		if strict {
			if strays := straysOf(body, reflect.TypeOf(v), ""); len(strays) > 0 {
				return strays[0].unknown()
			}
		}
		return input.Error(err)
	}
	return nil
}

// given reports whether a member of a body is there and not null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// read reads a JSON body and checks its size and nesting.
func (b bodies) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return b.readUpTo(w, r, b.limit)
}

// readUpTo is read with another limit.
func (b bodies) readUpTo(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := b.readDocument(w, r, limit)
	if err != nil {
		return nil, err
	}
	return body, checkRepeated(r, body)
}

// readDocument reads a JSON body that is stored as it is. Its members may occur twice.
func (b bodies) readDocument(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := b.readRawUpTo(w, r, limit)
	if err != nil {
		return nil, err
	}
	if len(body) > largeBody {
		if err := b.large.enter(r); err != nil {
			return nil, err
		}
	}
	if depth := jsonDepth(body); depth > MaxDepth {
		return nil, fault.New(fault.BadRequest, "the JSON nests deeper than %d levels", MaxDepth)
	}
	return body, nil
}

// readRaw reads a body of any type and checks its size. Reading to the end also lets the server
// notice when the client disconnects.
func (b bodies) readRaw(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return b.readRawUpTo(w, r, b.limit)
}

// readRawUpTo is readRaw with another limit.
func (b bodies) readRawUpTo(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if ct := r.Header.Get("Content-Type"); ct != "" {
		// The type itself is not checked: curl -d sends JSON as a form.
		if _, _, err := mime.ParseMediaType(ct); err != nil {
			return nil, fault.New(fault.BadRequest, "Content-Type %q cannot be read; send application/json", text.Clip(ct, 80))
		}
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, fault.New(fault.BadRequest, "Content-Encoding %q is not supported; send the body as it is", text.Clip(enc, 40))
	}
	if r.ContentLength > limit {
		// It is not read, so Expect: 100-continue gets no 100, and the connection cannot go on.
		w.Header().Set("Connection", "close")
		return nil, tooLarge(limit)
	}
	body, err := readAll(http.MaxBytesReader(w, r.Body, limit), min(r.ContentLength, limit))
	if r.ContentLength != 0 && err == nil {
		// The deadline was for the body. The server goes on reading to notice a disconnect.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	if err != nil {
		if tooBig, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, tooLarge(tooBig.Limit)
		}
		return nil, fault.Wrap(fault.BadRequest, err, "the body could not be read")
	}
	return body, nil
}

// tooLarge returns the error for a body above the limit. Calls with a limit of their own also take
// what the setting allows, if that is more.
func tooLarge(limit int64) error {
	return fault.New(fault.TooLarge, "the body is larger than %d bytes, the limit of this call; a higher HEARDLOG_MAX_BODY raises it", limit)
}

// readAll is io.ReadAll for a body of the given length, below 0 if it is unknown. Memory is
// reserved for at most maxTrusted bytes before they arrive, since the length is only a claim.
func readAll(r io.Reader, size int64) ([]byte, error) {
	const maxTrusted = 64 << 10
	// One more byte, so that the end is seen without growing.
	b := make([]byte, 0, max(512, min(size, maxTrusted)+1))
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

// jsonDepth returns the deepest nesting of brackets outside strings. It does not check the JSON.
func jsonDepth(b []byte) int {
	depth, deepest := 0, 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			for { // find the quote without a backslash before it
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

// decodeOptional reads a body into v, or leaves v as it is if the body is missing.
func (b bodies) decodeOptional(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := b.read(w, r)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}
	return b.unmarshal(body, v, true)
}

// readNone reads the body of a call that takes none. An empty object is allowed.
func (b bodies) readNone(w http.ResponseWriter, r *http.Request) error {
	body, err := b.read(w, r)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}
	return b.unmarshal(body, &struct{}{}, true)
}
