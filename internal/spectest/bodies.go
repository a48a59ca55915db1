package spectest

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// Body is an example of the JSON body that an operation takes.
type Body struct {
	Method, Path string // as in the description
	Example      map[string]any
	Fields       []Field // that the example has or could have
}

// Field is a field of a body.
type Field struct {
	Path     []string // names of members, and indexes of lists
	Required bool
}

// String returns the path as errors name it: messages[0].content.
func (f Field) String() string {
	var b strings.Builder
	for _, part := range f.Path {
		if _, err := strconv.Atoi(part); err == nil {
			b.WriteString("[" + part + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(part)
	}
	return b.String()
}

// Bodies returns the examples of all JSON bodies that are objects, in order of their paths. A field
// is listed with the first example of its operation alone.
func (s *Spec) Bodies() []Body {
	var out []Body
	for path, item := range s.doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op.RequestBody == nil || method == http.MethodGet {
				continue
			}
			media := op.RequestBody.Value.Content["application/json"]
			if media == nil {
				continue
			}
			examples := []any{media.Example}
			for _, name := range slices.Sorted(maps.Keys(media.Examples)) {
				examples = append(examples, media.Examples[name].Value.Value)
			}
			seen := map[string]bool{}
			for _, e := range examples {
				object, ok := e.(map[string]any)
				if !ok {
					continue
				}
				b := Body{Method: method, Path: path, Example: object}
				addFields(&b, media.Schema.Value, object, nil, seen)
				out = append(out, b)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Body) int { return strings.Compare(a.Path+a.Method, b.Path+b.Method) })
	return out
}

// addFields adds the fields of a schema and of those within it.
func addFields(b *Body, schema *openapi3.Schema, example any, at []string, seen map[string]bool) {
	if list, ok := example.([]any); ok && len(list) > 0 && schema.Items != nil {
		addFields(b, schema.Items.Value, list[0], append(slices.Clone(at), "0"), seen)
		return
	}
	object, ok := example.(map[string]any)
	if !ok && example != nil || len(at) > 6 {
		return
	}
	for _, more := range []openapi3.SchemaRefs{schema.AllOf, schema.OneOf, schema.AnyOf} {
		for _, ref := range more {
			addFields(b, ref.Value, example, at, seen)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		ref := schema.Properties[name]
		f := Field{append(slices.Clone(at), name), slices.Contains(schema.Required, name)}
		if !seen[f.String()] {
			seen[f.String()] = true
			b.Fields = append(b.Fields, f)
		}
		if object[name] != nil || len(ref.Value.Properties) > 0 {
			addFields(b, ref.Value, object[name], f.Path, seen)
		}
	}
}
