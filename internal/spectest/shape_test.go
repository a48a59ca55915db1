package spectest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/heardlog/heardlog"
)

func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(heardlog.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestOperations: each path is written out, since many tools read no reference there, and each
// operation has what generated clients and lists of requests are named and sorted by.
func TestOperations(t *testing.T) {
	t.Parallel()
	doc := document(t)
	tags, used := []string{}, map[string]bool{}
	for _, tag := range doc.Tags {
		tags = append(tags, tag.Name)
		if tag.Description == "" {
			t.Errorf("tag %s has no description", tag.Name)
		}
	}
	for path, item := range doc.Paths.Map() {
		if item.Ref != "" {
			t.Errorf("%s is a reference", path)
		}
		for method, op := range item.Operations() {
			name := method + " " + path
			if op.OperationID == "" || op.Summary == "" || op.Description == "" {
				t.Errorf("%s lacks an operationId, a summary or a description", name)
			}
			if len(op.Tags) != 1 || !slices.Contains(tags, op.Tags[0]) {
				t.Errorf("%s has the tags %q, want one of %q", name, op.Tags, tags)
			} else {
				used[op.Tags[0]] = true
			}
			for _, ref := range slices.Concat(item.Parameters, op.Parameters) {
				checkExample(t, method, name, ref.Value)
			}
		}
	}
	for _, tag := range tags {
		if !used[tag] {
			t.Errorf("no operation has tag %s", tag)
		}
	}
}

// checkExample checks the example of a parameter, which tools send as it is.
func checkExample(t *testing.T, method, name string, p *openapi3.Parameter) {
	t.Helper()
	value := fmt.Sprint(p.Example)
	switch {
	case p.Name == "Idempotency-Key" && p.Example != nil:
		t.Errorf("%s: all calls would share the Idempotency-Key %s", name, value)
	case p.In == openapi3.ParameterInPath && (p.Example == nil || strings.Contains(value, "/")):
		t.Errorf("%s: the example of %s is %q; it must be there and must not hold a slash", name, p.Name, value)
	case method == "DELETE" && slices.Contains([]string{"user", "project", "collection"}, p.Name) && !strings.HasPrefix(value, "no-such-"):
		t.Errorf("%s: the example of %s is %q, which may exist and would be deleted", name, p.Name, value)
	case slices.Contains([]string{"from", "to", "from_time", "to_time"}, p.Name) && p.Example == nil:
		t.Errorf("%s: %s has no example, so tools send a time that means nothing", name, p.Name)
	}
}

// TestComponents: none is unused, and no property has a default, because generators then require
// the field. Descriptions name the defaults.
func TestComponents(t *testing.T) {
	t.Parallel()
	text, err := document(t).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components map[string]map[string]any
		Paths      map[string]any
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for kind, members := range doc.Components {
		for name, member := range members {
			ref := fmt.Sprintf("%q", "#/components/"+kind+"/"+name)
			if kind != "securitySchemes" && !bytes.Contains(text, []byte(ref)) {
				t.Errorf("nothing uses components/%s/%s", kind, name)
			}
			checkDefaults(t, kind+"/"+name, member)
		}
	}
	for path, item := range doc.Paths {
		checkDefaults(t, path, item)
	}
}

func checkDefaults(t *testing.T, where string, v any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		properties, _ := v["properties"].(map[string]any)
		for name, p := range properties {
			if schema, ok := p.(map[string]any); ok && schema["default"] != nil {
				t.Errorf("%s: property %s has a default; its description must name it instead", where, name)
			}
		}
		for key, inner := range v {
			if key != "example" && key != "examples" && key != "value" {
				checkDefaults(t, where+"/"+key, inner)
			}
		}
	case []any:
		for _, inner := range v {
			checkDefaults(t, where, inner)
		}
	}
}
