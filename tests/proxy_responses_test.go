package tests

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// TestResponses plays a turn with the Responses API on each of its paths, and what can go wrong
// there.
func TestResponses(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "Hi."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_MAX_BODY=16384", "HEARDLOG_MAX_AGENTS=1")
	id := s.join("n", nil)
	const one = `{"model":"m","input":"first"}`
	for path, headers := range map[string][]string{v1 + "/responses": {"X-Agent-Id", id}, agent(id, "/responses"): nil} {
		var made, kept struct {
			ID, Status, Model string
			Output            []struct{ Content []struct{ Text string } }
		}
		s.post(path, one, headers...).ok(&made)
		if made.Status != "completed" || len(made.Output) != 1 || made.Output[0].Content[0].Text != "Hi." {
			t.Errorf("%s: %+v", path, made)
		}
		got := s.post(path, `{"model":"m","input":"first","stream":true}`, headers...)
		if got.status != http.StatusOK || !strings.Contains(string(got.body), "event: response.completed") {
			t.Errorf("%s streams %d %s", path, got.status, got.body)
		}
		s.post(path, `{"model":"m","input":"`+strings.Repeat("x", 20000)+`"}`, headers...).failed(413, "too_large", "16384")
		read := v1 + "/responses/"
		if headers == nil {
			read = agent(id, "/responses/")
		}
		if s.get(read + made.ID).ok(&kept); made.Model == "" || !reflect.DeepEqual(kept, made) {
			t.Errorf("%s: %+v is read as %+v", path, made, kept)
		}
		s.get(read+made.ID+"?stream=true").failed(400, "invalid", "stream: is not supported for a stored response")
		s.do("DELETE", read+made.ID, nil).ok(nil)
		for _, gone := range []string{made.ID, "nothing", "resp_nobody_2"} {
			s.get(read+gone).failed(404, "not_found", gone)
			s.do("DELETE", read+gone, nil).failed(404, "not_found", gone)
		}
		s.post(path, `{"input":"x","previous_response_id":"`+made.ID+`"}`, headers...).failed(400, "previous_response_not_found", made.ID)
	}
	s.post(v1+"/responses", one, "X-Agent-Id", "a b").failed(404, "not_found", "agent")
	s.post(v1+"/responses", one, "X-Agent-Id", "new").failed(422, "quota", "1")
	s.post(agent("unknown", "/responses"), one).failed(404, "not_found", "agent")
	s.post(agent(id, "/leave"), nil).ok(nil)
	s.post(v1+"/responses", one, "X-Agent-Id", id).failed(410, "stopped", id)
	s.post(agent(id, "/responses"), one).failed(410, "stopped", "OK")

	closed, limited := start(t, twoTenants), start(t, "HEARDLOG_RATE_LIMIT=1")
	for _, path := range []string{v1 + "/responses", agent("x", "/responses")} {
		for method, path := range map[string]string{"POST": path, "GET": path + "/r", "DELETE": path + "/r"} {
			closed.do(method, path, one).failed(401, "unauthenticated", "authorization")
			for limited.do(method, path, one).status != http.StatusTooManyRequests {
			}
		}
	}
}
