package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
)

// Two readers of one body must not see different members: of {"url":"a","url":"b"} some take the
// first and some the second, and some take "URL" for "url". /v1 refuses both, and names that
// it does not know. Agora's paths accept what Agora accepts.

// ownPath reports whether a path belongs to /v1.
func ownPath(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/v1/") }

// checkRepeated refuses a JSON body with two members of the same name in one object. It leaves
// other mistakes to the decoder. Package llmadapter checks chat completions.
func checkRepeated(r *http.Request, body []byte) error {
	if !ownPath(r) || strings.HasSuffix(r.URL.Path, "/chat/completions") {
		return nil
	}
	err := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowInvalidUTF8(true)).SkipValue()
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok && errors.Is(syntax.Err, jsontext.ErrDuplicateName) {
		field := ""
		for part := range syntax.JSONPointer.Tokens() {
			field = memberPath(field, part)
		}
		return fault.At(fault.Invalid, text.Clip(field, 200), "must occur once in its object")
	}
	return nil
}

// memberPath returns the path of a member, or of an entry of a list, below a path.
func memberPath(path, name string) string {
	if _, err := strconv.ParseUint(name, 10, 32); err == nil {
		return path + "[" + name + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// stray is a member of a body that the type it is decoded into does not have.
type stray struct {
	path, name string
	nearest    string // the known name that is most like it, or ""
	known      []string
}

// isCase reports whether only the case of the name is wrong. encoding/json would take the member
// for the known one.
func (s stray) isCase() bool { return strings.EqualFold(s.name, s.nearest) }

// err returns the error for a stray member that a lenient decoder may take for a known one.
func (s stray) err() error {
	if s.isCase() {
		return fault.At(fault.Invalid, s.path, "must be written %q", s.nearest)
	}
	return s.unknown()
}

// unknown returns the error for a stray member.
func (s stray) unknown() error {
	if s.nearest != "" {
		return fault.At(fault.Invalid, s.path, "is not a field of this call; did you mean %q?", s.nearest)
	}
	if len(s.known) == 0 {
		return fault.At(fault.Invalid, s.path, "is not a field of this call")
	}
	return fault.At(fault.Invalid, s.path, "is not a field of this call; known here are: %s", text.Clip(strings.Join(s.known, ", "), 400))
}

// strayHeader lists the members of a body that had no effect. Agora ignores what it does not know,
// so that its paths cannot refuse them.
const strayHeader = "X-Heardlog-Ignored"

// checkStrays refuses stray members under /v1. Other paths list them in a header. Members for which
// agoras returns true belong to objects of Agora, which may have more fields than are known here:
// they count only if they look like a misspelling.
func checkStrays(w http.ResponseWriter, r *http.Request, body []byte, v any, agoras func(path string) bool) error {
	var ignored []string
	for _, s := range straysOf(body, reflect.TypeOf(v), "") {
		switch {
		case s.nearest == "" && agoras != nil && agoras(s.path):
		case ownPath(r):
			return s.err()
		case !s.isCase():
			ignored = append(ignored, s.path)
		}
	}
	if before := w.Header().Get(strayHeader); before != "" {
		ignored = append([]string{before}, ignored...)
	}
	if len(ignored) > 0 {
		w.Header().Set(strayHeader, headerText(strings.Join(ignored, ", ")))
	}
	return nil
}

// headerText returns a text as a header can hold it.
func headerText(s string) string {
	return strings.Map(func(c rune) rune {
		if c < 0x20 || c >= 0x7f {
			return '?'
		}
		return c
	}, text.Clip(s, 500))
}

// straysOf returns the stray members of a JSON value that is decoded into t, sorted by their paths.
// It does not look into values that decode themselves. path is that of the value.
func straysOf(raw []byte, t reflect.Type, path string) []stray {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var out []stray
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		var list []json.RawMessage
		_ = json.Unmarshal(raw, &list) // another type is the decoder's to refuse
		for i, v := range list {
			out = append(out, straysOf(v, t.Elem(), memberPath(path, strconv.Itoa(i)))...)
		}
	case t.Kind() == reflect.Struct:
		var object map[string]json.RawMessage
		_ = json.Unmarshal(raw, &object)
		known := map[string]reflect.Type{}
		addNames(known, t)
		names := slices.Sorted(maps.Keys(known))
		for _, name := range slices.Sorted(maps.Keys(object)) {
			if field, ok := known[name]; ok {
				out = append(out, straysOf(object[name], field, memberPath(path, name))...)
				continue
			}
			if s := (stray{memberPath(path, text.Clip(name, 60)), name, text.Nearest(name, names), names}); s.nearest != "" || !keepsMore(t) {
				out = append(out, s)
			}
		}
	}
	return out
}

// keepsMore reports whether a struct has a field for members that it does not know.
func keepsMore(t reflect.Type) bool {
	for f := range t.Fields() {
		if f.Tag.Get("json") == ",embed" || f.Anonymous && f.Type.Kind() == reflect.Struct && keepsMore(f.Type) {
			return true
		}
	}
	return false
}

// addNames adds the names on the wire of a struct's fields, with their types.
func addNames(names map[string]reflect.Type, t reflect.Type) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			addNames(names, f.Type)
		case name != "" && name != "-":
			names[name] = f.Type
		}
	}
}
