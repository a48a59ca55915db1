package ossa

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxExact is the largest integer that every reader of JSON keeps exactly.
const maxExact = 1 << 53

// object returns an object with its variables replaced and its defaults filled in. It notes keys
// that the schema does not have, and keeps them.
func (c *checker) object(s *jsonschema.Schema, path string, given map[string]any) map[string]any {
	out := make(map[string]any, len(s.Properties))
	for _, key := range slices.Sorted(maps.Keys(given)) {
		out[key] = given[key]
		if child := property(s, key); child != nil {
			out[key] = c.value(child, joinPath(s, path, key), given[key], s.WriteOnly)
		} else if _, flag := given[key].(bool); key == "optional" && flag {
			continue // see host.refuse
		} else if len(s.Properties) > 0 { // one without properties may hold anything
			c.unsupported = append(c.unsupported, Problem{joinPath(s, path, key), "is not known here"})
		}
	}
	for key, child := range s.Properties {
		child = deref(child)
		if _, ok := given[key]; ok || child.Default == nil || c.strict && slices.Contains(s.Required, key) {
			continue
		}
		out[key] = c.value(child, joinPath(s, path, key), *child.Default, false)
	}
	return out
}

// value returns a value with its variables replaced and its defaults filled in. A value of another
// kind than the schema wants stays as it is. In a secret, variables are not replaced.
func (c *checker) value(s *jsonschema.Schema, path string, v any, secret bool) any {
	if text, ok := v.(string); ok {
		if secret && strings.Contains(text, "${") {
			c.settled[path] = true
			return v
		}
		expanded, found, err := c.expand(text)
		if err != nil {
			c.settled[path] = true
			c.fail(path, "%s %s", show(v), err)
			return v
		}
		v = expanded
		if found && (isType(s, "boolean") || isType(s, "integer")) {
			v = parseScalar(expanded)
		}
	}
	switch v := v.(type) {
	case map[string]any:
		if isType(s, "object") {
			return c.object(s, path, v)
		}
	case []any:
		if s.Items2020 == nil {
			return v
		}
		out := make([]any, 0, len(v))
		for i, item := range v {
			key := strconv.Itoa(i)
			out = append(out, c.value(property(s, key), joinPath(s, path, key), item, secret))
		}
		return out
	case json.Number:
		if isType(s, "integer") {
			return integer(v)
		}
	}
	return v
}

// parseScalar reads a number or boolean from a text in which a variable was replaced; JSON has no
// other place for a variable. Any other text is returned as it is.
func parseScalar(text string) any {
	var v any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if dec.Decode(&v) != nil || dec.More() {
		return text
	}
	return v
}

// integer returns a whole number, such as 100, 100.0 or 1e2, as int64. It returns any other number
// as a text, which no schema of an integer accepts; numbers with large exponents are costly to
// compare.
func integer(n json.Number) any {
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > maxExact {
		return string(n)
	}
	return int64(f)
}
