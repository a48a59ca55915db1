package tests

import (
	"net/http"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// TestJobs: what could not be done after a call is listed with its reason, until the call is
// erased, and a state that does not exist is refused.
func TestJobs(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Status: http.StatusUnauthorized})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	type listed struct {
		Jobs []struct {
			Kind, ID, State, Since, Due, Error string
			Tries                              int
		}
	}
	list := func(query string) (out listed) {
		s.get(v1 + "/jobs" + query).ok(&out)
		return out
	}
	if got := list(""); len(got.Jobs) != 0 {
		t.Errorf("%+v", got)
	}
	id := s.joinAs("n", remembering("anna", `{"extract":true}`))
	waitFor(t, "the job during the call", func() bool { // it runs for as long as the agent is read
		got := list("?state=waiting").Jobs
		return len(got) == 1 && got[0].Kind == "facts" && got[0].ID == id
	})
	s.say(id, user("I live in Lisbon."), assistant("Nice."))
	s.post(agent(id, "/leave"), nil).ok(nil)
	waitFor(t, "the failure", func() bool { return len(list("?state=retrying").Jobs) == 1 })
	if j := list("").Jobs[0]; j.ID != id || j.Tries != 1 || j.Since == "" || j.Due == "" || !strings.Contains(j.Error, "Unauthorized") {
		t.Errorf("%+v", j)
	}
	if got := list("?state=failed"); len(got.Jobs) != 0 {
		t.Errorf("%+v", got)
	}
	if page := s.get("/metrics").ok(nil); !strings.Contains(string(page.body), `heardlog_jobs_total{kind="facts",outcome="retried"} 1`) {
		t.Error("the metrics do not count the try")
	}
	s.get(v1+"/jobs?state=lost").refused(http.StatusBadRequest, "InvalidFieldValue", "state")
	s = s.again()
	waitFor(t, "the job after a restart", func() bool { return len(list("?state=retrying").Jobs) == 1 })
	s.do(http.MethodDelete, agent(id), nil).is(http.StatusNoContent, nil)
	if got := list(""); len(got.Jobs) != 0 {
		t.Errorf("after the erasure: %+v", got)
	}
}
