package secret

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth limits how deep documents are searched.
const maxDepth = 64

// InJSON returns the secrets in a JSON document: all strings below members whose names hold
// secrets, and those in addresses. The members of except, at the top, are not searched. A member
// that occurs twice is searched twice.
func InJSON(doc []byte, except ...string) []string {
	var out []string
	d := jsontext.NewDecoder(bytes.NewReader(doc), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if collect(d, false, 0, except, &out) != nil {
		return nil
	}
	return out
}

func collect(d *jsontext.Decoder, hidden bool, depth int, except []string, out *[]string) error {
	kind := d.PeekKind()
	if depth > maxDepth || kind != '"' && kind != '{' && kind != '[' {
		return d.SkipValue()
	}
	token, err := d.ReadToken()
	if err != nil {
		return err
	}
	if kind == '"' {
		if v := token.String(); hidden {
			*out = append(*out, v)
		} else if strings.Contains(v, "://") {
			*out = append(*out, InURL(v)...)
		}
		return nil
	}
	for end := kind + 2; d.PeekKind() != end; { // } and ] are two after { and [
		below := hidden
		if kind == '{' {
			name, err := d.ReadToken()
			if err != nil {
				return err
			}
			if slices.Contains(except, name.String()) {
				if err := d.SkipValue(); err != nil {
					return err
				}
				continue
			}
			below = hidden || Named(name.String())
		}
		if err := collect(d, below, depth+1, nil, out); err != nil {
			return err
		}
	}
	_, err = d.ReadToken()
	return err
}

// Strip returns a JSON document without the members that hold secrets, and without the secrets in
// its addresses. A document without any is returned as it is, unless a member occurs twice. One
// that is not JSON is returned as nil.
func Strip(doc []byte) []byte {
	if len(doc) == 0 || len(InJSON(doc)) == 0 && jsontext.Value(doc).IsValid() {
		return doc
	}
	v, err := parse(doc)
	if err != nil {
		return nil
	}
	b, err := json.Marshal(strip(v, 0))
	if err != nil {
		return nil
	}
	return b
}

func strip(v any, depth int) any {
	if depth > maxDepth {
		return nil
	}
	switch v := v.(type) {
	case string:
		if strings.Contains(v, "://") {
			return StripURL(v)
		}
	case []any:
		for i, e := range v {
			v[i] = strip(e, depth+1)
		}
	case map[string]any:
		for name, e := range v {
			if v[name] = strip(e, depth+1); !Named(name) {
				continue
			}
			if hasText(e, depth+1) {
				delete(v, name)
			}
		}
	}
	return v
}

// hasText reports whether a value is a string or holds one.
func hasText(v any, depth int) bool {
	if depth > maxDepth {
		return false
	}
	below := func(e any) bool { return hasText(e, depth+1) }
	switch v := v.(type) {
	case string:
		return true
	case []any:
		return slices.ContainsFunc(v, below)
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), below)
	}
	return false
}

// Restore returns a JSON document in which masked members have the values that stored has in the
// same place. It returns the name of a masked member that stored does not have, or "".
func Restore(doc, stored []byte) ([]byte, string) {
	if !bytes.Contains(doc, []byte(Mask)) && !bytes.Contains(doc, []byte("***")) {
		return doc, ""
	}
	v, err := parse(doc)
	if err != nil {
		return doc, ""
	}
	was, _ := parse(stored)
	missing := ""
	restore(v, was, 0, &missing)
	b, err := json.Marshal(v)
	if err != nil {
		return doc, ""
	}
	return b, missing
}

func restore(v, was any, depth int, missing *string) {
	if depth > maxDepth {
		return
	}
	switch v := v.(type) {
	case []any:
		old, _ := was.([]any)
		for i, e := range v {
			var o any
			if i < len(old) {
				o = old[i]
			}
			restore(e, o, depth+1, missing)
		}
	case map[string]any:
		old, _ := was.(map[string]any)
		for name, e := range v {
			if text, ok := e.(string); ok && Named(name) && IsMask(text) {
				if v[name], ok = old[name]; !ok {
					*missing = name
				}
				continue
			}
			restore(e, old[name], depth+1, missing)
		}
	}
}

// parse decodes a document and keeps its numbers as they are written.
func parse(doc []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// sorted returns strings longest first, each once, because one may contain another.
func sorted(list []string) []string {
	slices.SortFunc(list, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(list)
}
