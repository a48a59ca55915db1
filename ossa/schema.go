package ossa

import (
	"bytes"
	_ "embed" // schema.json
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed schema.json
var schemaFile []byte

// model returns the compiled schema of a whole document.
var model = sync.OnceValue(func() *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemaFile))
	if err != nil {
		panic(err) // the file is part of the program, and every test reads it
	}
	c := jsonschema.NewCompiler()
	const name = "schema.json"
	if err := c.AddResource(name, doc); err != nil {
		panic(err)
	}
	return c.MustCompile(name)
})

// deref returns the schema that s refers to, or s itself.
func deref(s *jsonschema.Schema) *jsonschema.Schema {
	for s != nil && s.Ref != nil {
		s = s.Ref
	}
	return s
}

// property returns the schema of a value in an object or a list, or nil if the schema has none.
func property(s *jsonschema.Schema, key string) *jsonschema.Schema {
	if s.Items2020 != nil {
		return deref(s.Items2020)
	}
	return deref(s.Properties[key])
}

func isType(s *jsonschema.Schema, name string) bool {
	return s.Types != nil && len(s.Types.ToStrings()) == 1 && s.Types.ToStrings()[0] == name
}

// findPart returns the schema of an object by its path, such as short_term.working_memory, or nil
// if there is no such object. The empty path is the whole document.
func findPart(path string) *jsonschema.Schema {
	s := model()
	for _, name := range split(path) {
		if s = property(s, name); s == nil || !isType(s, "object") {
			return nil
		}
	}
	return s
}

// wants describes the values that a schema allows, to follow a value in an error.
func wants(s *jsonschema.Schema) string {
	switch {
	case s.Const != nil:
		return "is not " + (*s.Const).(string)
	case s.Enum != nil:
		return "must be one of " + strings.Join(texts(s.Enum.Values), ", ")
	case s.Pattern != nil:
		return "is not of the form ossa/vX.Y.Z"
	case isType(s, "boolean"):
		return "is neither true nor false"
	case isType(s, "integer"):
		return "is not an integer" + bounds(s)
	case isType(s, "string"):
		return "is not a text"
	case isType(s, "array"):
		return "is not a list"
	}
	return "is not an object"
}

func texts(values []any) []string {
	var out []string
	for _, v := range values {
		out = append(out, v.(string))
	}
	return out
}

// bounds describes the limits of an integer. A limit that only keeps the number exact is not named.
func bounds(s *jsonschema.Schema) string {
	least, most := s.Minimum.Num().Int64(), s.Maximum.Num().Int64()
	switch {
	case least == -maxExact:
		return ""
	case most == maxExact:
		return " of at least " + strconv.FormatInt(least, 10)
	}
	return " from " + strconv.FormatInt(least, 10) + " to " + strconv.FormatInt(most, 10)
}
