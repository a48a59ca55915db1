package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/internal/spectest"
)

// missingField removes a field in with.
type missingField struct{}

// with returns a copy of a body with another value of a field. Objects above it that are not there
// are made.
func with(t *testing.T, body any, path []string, v any) any {
	t.Helper()
	if len(path) == 0 {
		return v
	}
	if i, err := strconv.Atoi(path[0]); err == nil {
		list := append([]any{}, body.([]any)...)
		list[i] = with(t, list[i], path[1:], v)
		return list
	}
	out := map[string]any{}
	if object, ok := body.(map[string]any); ok {
		for name, member := range object {
			out[name] = member
		}
	}
	if _, ok := v.(missingField); ok && len(path) == 1 {
		delete(out, path[0])
		return out
	}
	out[path[0]] = with(t, out[path[0]], path[1:], v)
	return out
}

// eachBody calls f with every example of a body in openapi.yaml, and with a function that sends a
// body to its operation. Agora's other paths are those of /v1.
func eachBody(t *testing.T, f func(b spectest.Body, send func(body any) answer)) {
	t.Helper()
	_, llm := upstream(t, fake.Script{Answer: "Hi."})
	s := start(t, "HEARDLOG_LLM_URL="+llm, "HEARDLOG_AUTO_JOIN=true")
	sp, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{"platform": "vapi", "user": "ann", "appid": "default", "namespace": "z", "key": "k", "collection": "c", "base": "b", "name": "m"}
	names := regexp.MustCompile(`\{([a-z_]+)\}`)
	n := 0
	for _, b := range sp.Bodies() {
		if strings.HasPrefix(b.Path, "/api/") && !strings.HasSuffix(b.Path, "/join") {
			continue
		}
		n++
		values["id"] = s.join(fmt.Sprint("agent ", n), nil)
		path := names.ReplaceAllStringFunc(b.Path, func(name string) string {
			if v := values[strings.Trim(name, "{}")]; v != "" {
				return v
			}
			return "none"
		})
		f(b, func(body any) answer {
			object, ok := body.(map[string]any)
			if n++; ok && object["name"] != nil && (strings.HasSuffix(path, "/join") || path == v1+"/agents") {
				if _, is := object["name"].(string); is { // which a running agent must not have
					body = with(t, object, []string{"name"}, fmt.Sprint("call ", n))
				}
			}
			return s.do(b.Method, path, body)
		})
	}
}

// TestNullIsMissing: a field that is null is as if it were missing, in every body.
func TestNullIsMissing(t *testing.T) {
	t.Parallel()
	eachBody(t, func(b spectest.Body, send func(any) answer) {
		for _, f := range b.Fields {
			where := b.Method + " " + b.Path + " " + f.String()
			if f.Required || strings.HasSuffix(where, "conversations/{id} messages") { // comes back byte for byte
				continue
			}
			null, missing := send(with(t, b.Example, f.Path, nil)), send(with(t, b.Example, f.Path, missingField{}))
			if null.status >= 400 && missing.status < 400 {
				t.Errorf("%s: null is answered %d %s, no field %d", where, null.status, null.body, missing.status)
			}
		}
	})
}

// TestErrorsInWords: whatever is sent, no error has the words of our source, and none is ours.
func TestErrorsInWords(t *testing.T) {
	t.Parallel()
	wrong := []any{7, 1.5, true, "s", []any{7}, map[string]any{"a": 1}, json.Number("1e30")}
	check := func(where string, v any, a answer) {
		t.Helper()
		if a.status >= http.StatusInternalServerError && a.status != http.StatusNotImplemented || a.status >= 400 && goWords(string(a.body)) {
			t.Errorf("%s: %v is answered %d %s", where, v, a.status, a.body)
		}
	}
	eachBody(t, func(b spectest.Body, send func(any) answer) {
		for i, f := range b.Fields {
			for j := range 3 { // all values for each field would take minutes
				v := wrong[(i+j*2)%len(wrong)]
				check(b.Method+" "+b.Path+" "+f.String(), v, send(with(t, b.Example, f.Path, v)))
			}
		}
		for _, body := range []string{"", "null", "7", `"s"`, "[7]", "true", "{", `{"a"`, "nul", `{"a":1}x`, "\xff", `{"messages":[}`, `{"input":tru}`} {
			check(b.Method+" "+b.Path, body, send(body))
		}
	})
}

// TestChatNulls: fields of a chat request that are null are as if they were missing, also for the
// LLM, which may refuse null.
func TestChatNulls(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Hi."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.joinAs("n", `{"llm":{"params":{"temperature":0.5}}}`)
	for _, path := range []string{"/chat/completions", "/responses"} {
		list := `"messages":[{"role":"user","content":"Hello.","name":null,"tool_calls":null,"tool_call_id":null,"turn_id":null,"timestamp":null,"metadata":null},
			{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}],"name":null,"refusal":null,"audio":null,"function_call":null},
			{"role":"tool","tool_call_id":"c1","content":"7","name":null}]`
		if path == "/responses" {
			list = `"input":[{"type":"message","id":null,"status":null,"role":"user","content":[{"type":"input_text","text":"Hello.","annotations":null}]},
				{"type":"function_call","id":null,"call_id":"c1","name":"f","arguments":"{}","status":null},{"type":"function_call_output","id":null,"call_id":"c1","output":"7","status":null}],
				"instructions":null,"previous_response_id":null,"reasoning":null,"text":null,"include":null,"background":null,"conversation":null,"prompt":null,"truncation":null,"max_output_tokens":null,
				"max_tool_calls":null,"top_logprobs":null,"store":null`
		}
		s.post(agent(id, path), `{"model":null,"stream":null,"stream_options":null,"tools":null,"tool_choice":null,"parallel_tool_calls":null,"temperature":null,"top_p":null,"metadata":null,
			"user":null,"stop":null,"n":null,"logprobs":null,"response_format":null,"turn_id":null,"timestamp":null,"heardlog":null,`+list+`}`).ok(nil)
		seen := llm.Requests()
		body := string(seen[len(seen)-1].Body)
		if strings.Contains(strings.ReplaceAll(body, `"content":null`, ""), ":null") || !strings.Contains(body, `"temperature":0.5`) {
			t.Errorf("%s: the LLM got %s", path, body)
		}
	}
}
