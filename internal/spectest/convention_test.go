package spectest_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"
)

// foreignForm matches operations under /v1 that have the form of another product.
var foreignForm = regexp.MustCompile(`/(chat/completions|models(/\{model\})?|embeddings|responses(/\{[a-z_]+\}(/input_items)?)?|realtime(/client_secrets)?)$|^[A-Z]+ /v1/conversations|^POST /v1/(join|leave|ingest/agora|agents)$|^GET /v1/webhooks/fetch/|` +
	`/agents/\{id\}/(leave|update|history|turns|speak|think|interrupt)$`)

// unlike are the operations that do not follow docs/reference/conventions.md in something, as that
// page says.
var unlike = []string{
	"DELETE /v1/projects/{project}: DELETE answers 200",
	"DELETE /v1/projects/{project}: DELETE answers 404",
	"DELETE /v1/session: DELETE answers 200",
	"DELETE /v1/users/{user}: DELETE answers 200",
	"GET /v1/users/{user}/facts/context: no 404",
}

var snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// TestConvention checks the operations of /v1 against the rules of docs/reference/conventions.md.
func TestConvention(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for path, item := range document(t).Paths.Map() {
		for method, op := range item.Operations() {
			name := method + " " + path
			if !strings.HasPrefix(path, "/v1/") || foreignForm.MatchString(name) {
				continue
			}
			note := func(format string, args ...any) { found[name+": "+fmt.Sprintf(format, args...)] = true }
			checkPages(op, slices.Concat(item.Parameters, op.Parameters), note)
			checkStatuses(method, path, op, note)
			for _, schema := range schemasOf(op) {
				checkNames(schema, map[*openapi3.Schema]bool{}, func(format string, args ...any) {
					found[op.Tags[0]+": "+fmt.Sprintf(format, args...)] = true
				})
			}
		}
	}
	if d := cmp.Diff(unlike, slices.Sorted(maps.Keys(found))); d != "" {
		t.Errorf("operations that do not follow the convention (-listed +found):\n%s", d)
	}
}

// checkPages: a list has limit, cursor and next_cursor, or none of them, and one array.
func checkPages(op *openapi3.Operation, params openapi3.Parameters, note func(string, ...any)) {
	has := map[string]bool{}
	for _, p := range params {
		has[p.Value.Name] = true
		if p.Value.In == openapi3.ParameterInQuery && !snakeCase.MatchString(p.Value.Name) {
			note("parameter %s", p.Value.Name)
		}
	}
	ok := op.Responses.Status(200)
	if ok == nil || ok.Value.Content.Get("application/json") == nil {
		return
	}
	schema := ok.Value.Content.Get("application/json").Schema.Value
	next := schema.Properties["next_cursor"]
	if has["cursor"] != (next != nil) || has["cursor"] && !has["limit"] {
		note("limit, cursor and next_cursor belong together")
	}
	if next == nil {
		return
	}
	if slices.Contains(schema.Required, "next_cursor") {
		note("next_cursor is required")
	}
	arrays := 0
	for _, p := range schema.Properties {
		if p.Value.Type.Is("array") {
			arrays++
		}
	}
	if arrays != 1 {
		note("a list has one array, not %d", arrays)
	}
}

// checkStatuses: DELETE answers 204 even if there is nothing to delete, errors have one form, and
// what is named may not be there.
func checkStatuses(method, path string, op *openapi3.Operation, note func(string, ...any)) {
	for status, r := range op.Responses.Map() {
		media := r.Value.Content.Get("application/json")
		switch {
		case method == "DELETE" && (status == "200" || status == "404"):
			note("DELETE answers %s", status)
		case status < "400":
		case media == nil || media.Schema == nil || media.Schema.Value.Properties["detail"] == nil || media.Schema.Value.Properties["reason"] == nil:
			note("%s has another form than errors", status)
		}
	}
	// A list may be empty.
	lists := slices.ContainsFunc(op.Parameters, func(p *openapi3.ParameterRef) bool { return p.Value.Name == "cursor" })
	if method == "GET" && strings.Contains(path, "{") && !lists && op.Responses.Status(404) == nil {
		note("no 404")
	}
}

// schemasOf returns what an operation takes and answers, without errors.
func schemasOf(op *openapi3.Operation) (out []*openapi3.Schema) {
	add := func(content openapi3.Content) {
		if m := content.Get("application/json"); m != nil && m.Schema != nil {
			out = append(out, m.Schema.Value)
		}
	}
	if op.RequestBody != nil {
		add(op.RequestBody.Value.Content)
	}
	for status, r := range op.Responses.Map() {
		if status < "400" {
			add(r.Value.Content)
		}
	}
	return out
}

// checkNames: names are in snake_case, and *_at are times.
func checkNames(s *openapi3.Schema, seen map[*openapi3.Schema]bool, note func(string, ...any)) {
	if s == nil || seen[s] {
		return
	}
	seen[s] = true
	for name, p := range s.Properties {
		if !snakeCase.MatchString(name) {
			note("name %s", name)
		}
		if name == "body" { // of an event
			continue
		}
		if time := p.Value.Format == "date-time" || p.Value.Type.Is("number"); strings.HasSuffix(name, "_at") && !time || strings.HasSuffix(name, "ed_ms") || strings.HasSuffix(name, "es_ms") {
			note("time %s", name)
		}
		checkNames(p.Value, seen, note)
	}
	for _, list := range []openapi3.SchemaRefs{s.AllOf, s.AnyOf, s.OneOf} {
		for _, p := range list {
			checkNames(p.Value, seen, note)
		}
	}
	if s.Items != nil {
		checkNames(s.Items.Value, seen, note)
	}
}
