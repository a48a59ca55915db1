package knowledge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
)

// maxParts is how many parts a schema may have, each counted as often as it is referred to. It
// bounds the time of a check.
const maxParts = 2000

// closed is the loader of schemas that may not load anything.
type closed struct{}

// Load implements jsonschema.URLLoader.
func (closed) Load(string) (any, error) {
	return nil, errors.New("a schema may only refer to itself, by a pointer such as #/$defs/name")
}

// compile compiles the schema of a base; nil for none.
func compile(schema json.RawMessage) (*jsonschema.Schema, error) {
	const field = "json_schema"
	if len(schema) == 0 {
		return nil, nil
	}
	if len(schema) > MaxSchema {
		return nil, fault.At(fault.Invalid, field, "is %d bytes long; at most %d are allowed", len(schema), MaxSchema)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if _, ok := doc.(map[string]any); err != nil || !ok {
		return nil, fault.At(fault.Invalid, field, "must be an object")
	}
	c := counter{root: doc}
	if err := c.count(doc, nil); err != nil {
		return nil, fault.At(fault.Invalid, field, "%s", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(closed{})
	const name = "base:schema"
	if err := compiler.AddResource(name, doc); err != nil {
		return nil, fault.At(fault.Invalid, field, "is not a JSON Schema: %s", text.Clip(err.Error(), 300))
	}
	compiled, err := compiler.Compile(name)
	if err != nil {
		return nil, fault.At(fault.Invalid, field, "is not a JSON Schema: %s", text.Clip(err.Error(), 300))
	}
	return compiled, nil
}

// counter counts the parts of a schema with what they refer to.
type counter struct {
	root  any
	parts int
}

func (c *counter) count(v any, within []string) error {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			if err := c.count(item, within); err != nil {
				return err
			}
		}
	case map[string]any:
		if c.parts++; c.parts > maxParts {
			return fmt.Errorf("has more than %d parts, each counted as often as it is referred to", maxParts)
		}
		for name, value := range v {
			switch ref, isText := value.(string); {
			case (name == "$dynamicRef" || name == "$recursiveRef" || name == "$id" && len(within) > 0) && isText:
				return fmt.Errorf("must not have %s", name)
			case name == "$ref" && isText:
				if err := c.follow(ref, within); err != nil {
					return err
				}
			}
			if err := c.count(value, within); err != nil {
				return err
			}
		}
	}
	return nil
}

// follow counts what a reference refers to.
func (c *counter) follow(ref string, within []string) error {
	if slices.Contains(within, ref) {
		return fmt.Errorf("$ref %q refers to itself", text.Clip(ref, 80))
	}
	pointer, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return fmt.Errorf("$ref %q must be a pointer into the schema, such as #/$defs/name", text.Clip(ref, 80))
	}
	at := c.root
	for _, key := range strings.Split(pointer, "/") {
		key = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
		switch v := at.(type) {
		case map[string]any:
			at = v[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(v) {
				return fmt.Errorf("$ref %q refers to nothing", text.Clip(ref, 80))
			}
			at = v[i]
		default:
			at = nil
		}
	}
	if at == nil {
		return fmt.Errorf("$ref %q refers to nothing", text.Clip(ref, 80))
	}
	return c.count(at, append(slices.Clone(within), ref))
}

var english = message.NewPrinter(language.English)

// meets returns fault.Invalid if an entry's data do not meet a schema; nil allows all. field is the
// path of the data.
func meets(schema *jsonschema.Schema, field string, data json.RawMessage) error {
	if schema == nil {
		return nil
	}
	if len(data) == 0 {
		data = json.RawMessage("{}")
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return fault.At(fault.Invalid, field, "must be an object")
	}
	err = schema.Validate(v)
	if err == nil {
		return nil
	}
	leaf, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return fault.Wrap(fault.Internal, err, "the data could not be checked")
	}
	for len(leaf.Causes) > 0 {
		leaf = leaf.Causes[0]
	}
	for _, key := range leaf.InstanceLocation {
		field += "." + text.Clip(key, 60)
	}
	return fault.At(fault.Invalid, field, "%s", text.Clip(leaf.ErrorKind.LocalizedString(english), 300))
}
