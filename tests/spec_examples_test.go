package tests

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/heardlog/heardlog"
	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// ofTheState are words of refusals of examples that are right, but not for a new call.
var ofTheState = []string{
	"previous_response_not_found", "opens a WebSocket here", "has no user_id in its scope", "the last turn of the call is -1", "the event names no call",
	"nothing that is selected can be asked again",
}

// TestSpecExamples sends each example of openapi.yaml as a tool would: the parameters and the body
// as they stand, to an agent that exists. None is refused as wrong.
func TestSpecExamples(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromData(heardlog.Spec)
	if err != nil {
		t.Fatal(err)
	}
	_, base := upstream(t, fake.Script{Answer: "At nine."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_MODEL=m1")
	sent := 0
	for _, path := range slices.Sorted(maps.Keys(doc.Paths.Map())) {
		item := doc.Paths.Value(path)
		if !strings.HasPrefix(path, "/v1/") || strings.Contains(path, "realtime") || strings.HasSuffix(path, "/events") || path == "/v1/keys" {
			continue
		}
		for method, op := range item.Operations() {
			if method == http.MethodDelete {
				continue
			}
			bodies := map[string]any{"": nil}
			if op.RequestBody != nil {
				if c := op.RequestBody.Value.Content.Get("application/json"); c != nil && len(c.Examples) > 0 {
					bodies = map[string]any{}
					for name, e := range c.Examples {
						bodies[name] = e.Value.Value
					}
				}
			}
			for name, body := range bodies {
				id := s.join(fmt.Sprint("example-", sent), nil)
				at, query := path, url.Values{}
				for _, p := range slices.Concat(item.Parameters, op.Parameters) {
					v := p.Value
					switch {
					case v.In == "path" && v.Name == "id" && strings.HasPrefix(path, "/v1/agents/"):
						at = strings.ReplaceAll(at, "{id}", id)
					case v.In == "path" && v.Name == "platform" && name == "vapi":
						at = strings.ReplaceAll(at, "{platform}", name)
					case v.In == "path":
						at = strings.ReplaceAll(at, "{"+v.Name+"}", url.PathEscape(fmt.Sprint(v.Example)))
					case v.In == "query" && v.Example != nil:
						query.Set(v.Name, fmt.Sprint(v.Example))
					}
				}
				if len(query) > 0 {
					at += "?" + query.Encode()
				}
				var text string
				if body != nil {
					raw, err := json.Marshal(body)
					if err != nil {
						t.Fatal(err)
					}
					text = string(raw)
				}
				sent++
				a := s.do(method, at, text)
				refused := a.status == http.StatusBadRequest || a.status >= 500
				if refused && !slices.ContainsFunc(ofTheState, func(words string) bool { return strings.Contains(string(a.body), words) }) {
					t.Errorf("%s %s, example %q: %d %s", method, at, name, a.status, a.body)
				}
			}
		}
	}
	if sent < 150 {
		t.Errorf("%d examples were sent", sent)
	}
}
