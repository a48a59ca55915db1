package mcp

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/heardlog/heardlog/internal/peek"
)

// schemas holds the schema of each type of arguments and results, which takes long to make.
var schemas sync.Map // reflect.Type to *jsonschema.Schema

// schemaOf returns the schema of a type. Each value has a single type: some models refuse a list of
// types such as ["null","array"].
func schemaOf[T any]() *jsonschema.Schema {
	typ := reflect.TypeFor[T]()
	if s, ok := schemas.Load(typ); ok {
		return s.(*jsonschema.Schema)
	}
	s, err := jsonschema.ForType(typ, &jsonschema.ForOptions{})
	if err != nil {
		panic(err) // the types are those of this package
	}
	withoutNull(s)
	schemas.Store(typ, s)
	return s
}

// withoutNull removes null from the types that a schema and those within it allow.
func withoutNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if left := slices.DeleteFunc(s.Types, func(t string) bool { return t == "null" }); len(left) == 1 {
		s.Type, s.Types = left[0], nil
	}
	withoutNull(s.Items)
	withoutNull(s.AdditionalProperties)
	for _, p := range s.Properties {
		withoutNull(p)
	}
}

// readArguments reads the arguments of a tool into in. An argument that is null is as if it were
// missing. Errors name the argument, the fault and what is allowed, for the model to read.
func readArguments(tool string, s *jsonschema.Schema, raw json.RawMessage, in any) error {
	root := peek.Parse(raw)
	switch {
	case root.IsNull():
	case !root.IsObject():
		return fmt.Errorf("the arguments of %s must be an object, not %s", tool, kindOf(root))
	}
	given := map[string]json.RawMessage{}
	err := peek.Object(root, func(quoted, value []byte) error {
		name, v := peek.Unquote(quoted), peek.Value(value)
		p := s.Properties[name]
		switch {
		case p == nil:
			return fmt.Errorf("%.80s: is not an argument of %s; its arguments are %s", name, tool, strings.Join(s.PropertyOrder, ", "))
		case v.IsNull():
			return nil
		}
		given[name] = json.RawMessage(v)
		if p.Type == "integer" {
			given[name] = fmt.Appendf(nil, "%.0f", v.Float()) // a model may write 5.0
		}
		return checkArgument(name, p, v)
	})
	if err != nil {
		return err
	}
	for _, name := range s.Required {
		if given[name] == nil {
			return fmt.Errorf("%s: is required: %s", name, s.Properties[name].Description)
		}
	}
	b, err := json.Marshal(given)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, in)
}

// checkArgument refuses a value that is not of the schema's type.
func checkArgument(name string, s *jsonschema.Schema, v peek.Value) error {
	ok, want := false, ""
	switch s.Type {
	case "string":
		ok, want = v.IsString(), "a string"
	case "integer":
		ok, want = v.IsNumber() && v.Float() == math.Trunc(v.Float()) && math.Abs(v.Float()) < 1<<53, "a whole number"
	case "array":
		ok, want = v.IsArray(), "a list"
	}
	if !ok {
		about := ""
		if s.Description != "" {
			about = " (" + s.Description + ")"
		}
		return fmt.Errorf("%s: must be %s%s, not %s", name, want, about, kindOf(v))
	}
	for i, e := range v.List() {
		if s.Items != nil {
			if err := checkArgument(fmt.Sprintf("%s[%d]", name, i), s.Items, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// kindOf returns what a value is, in words. A number is shown.
func kindOf(v peek.Value) string {
	switch {
	case v.IsNull():
		return "null"
	case v.IsString():
		return "a string"
	case v.IsNumber():
		return fmt.Sprintf("%.30s", v)
	case v.IsArray():
		return "a list"
	case v.IsObject():
		return "an object"
	}
	return string(v) // true or false
}
