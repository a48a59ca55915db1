package tests

import (
	"net/http"
	"strings"
	"testing"
)

// TestPatterns is the life of a learned pattern, over a restart.
func TestPatterns(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_MAX_PROJECT_MB=1", "HEARDLOG_MAX_BODY=200000")
	const all, one = v1 + "/patterns", v1 + "/patterns/order-first"
	s.get(one).refused(http.StatusNotFound, "TaskNotFound", "order-first")
	s.post(one+"/feedback", `{"outcome":"good"}`).refused(http.StatusNotFound, "TaskNotFound")
	s.do(http.MethodPut, one, `{"type":"tool_usage","content":"Look up the order first."}`).ok(nil)
	s.do(http.MethodPut, all+"/other", `{"type":"error_recovery","content":"Say sorry once.","weight":1,"half_life_days":0}`).ok(nil)
	var moved struct {
		OldWeight float64 `json:"old_weight"`
		NewWeight float64 `json:"new_weight"`
		Why       string
	}
	if s.post(one+"/feedback", `{"outcome":"good"}`).ok(&moved); moved.OldWeight != .5 || moved.NewWeight != .6 || moved.Why == "" {
		t.Errorf("%+v", moved)
	}
	for range 2 { // a repeat moves nothing, and is answered as the first was
		if s.post(one+"/feedback", `{"outcome":"bad"}`, "Idempotency-Key", "k").ok(&moved); moved.OldWeight != .6 || moved.NewWeight != .5 {
			t.Errorf("%+v", moved)
		}
		s = s.again()
	}
	s.post(one+"/feedback", `{"outcome":"good"}`, "Idempotency-Key", "k").refused(http.StatusConflict, "TaskConflict", "Idempotency-Key: was used for the outcome bad")
	s.post(one+"/feedback", `{"outcome":"good"}`, "Idempotency-Key", "é").refused(http.StatusBadRequest, "InvalidFieldValue", "Idempotency-Key")
	var p struct {
		Weight float64
		Good   int
	}
	if s.get(one).ok(&p); p.Weight != .5 || p.Good != 1 {
		t.Errorf("%+v", p)
	}
	for query, want := range map[string]string{"": "other order-first ", "?type=tool_usage": "order-first ", "?type=delegation_patterns": ""} {
		var list struct{ Patterns []struct{ ID string } }
		s.get(all + query).ok(&list)
		got := ""
		for _, p := range list.Patterns {
			got += p.ID + " "
		}
		if got != want {
			t.Errorf("%s: %q", query, got)
		}
	}
	for _, c := range []struct{ method, path, body, word string }{
		{"PUT", one, `{"type":"wishes","content":"x"}`, "type: must be one of task_completion"}, {"PUT", one, `{"type":"tool_usage","content":"x","weight":2}`, "weight"},
		{"PUT", one, `{"type":"tool_usage","content":"x","half_life_days":366}`, "half_life_days"}, {"GET", all + "?type=wishes", "", "type"},
		{"GET", all + "/" + strings.Repeat("x", 129), "", "id"}, {"DELETE", all + "/" + strings.Repeat("x", 129), "", "id"}, {"POST", one + "/feedback", `{"outcome":"fine"}`, "outcome"},
	} {
		var body any
		if c.body != "" {
			body = c.body
		}
		if got := s.do(c.method, c.path, body); got.status != http.StatusBadRequest || !strings.Contains(string(got.body), c.word) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, got.status, got.body)
		}
	}
	large := `{"content":"` + strings.Repeat("x", 200_000) + `"}`
	s.do(http.MethodPut, one, large).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody")
	s.post(one+"/feedback", large).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody")
	if got := s.do(http.MethodDelete, all+"/other", nil); got.status != http.StatusNoContent {
		t.Errorf("%d %s", got.status, got.body)
	}
	s.get(all+"/other").refused(http.StatusNotFound, "TaskNotFound")
	for size := 60_000; size > 50; {
		if s.storeDocument(strings.Repeat("x", size)) != http.StatusOK {
			size /= 4
		}
	}
	s.do(http.MethodPut, all+"/more", `{"type":"tool_usage","content":"`+strings.Repeat("x", 1500)+`"}`).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "HEARDLOG_MAX_PROJECT_MB")
	s.post(one+"/feedback", `{"outcome":"good"}`).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "HEARDLOG_MAX_PROJECT_MB")
}

// storeDocument stores a document and returns the status.
func (s *server) storeDocument(content string) int {
	s.t.Helper()
	return s.post(vectorsPath+"/c", map[string]string{"content": content}).status
}
