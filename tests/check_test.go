package tests

import (
	"net/http"
	"slices"
	"testing"
)

type findingOf struct {
	Check, By  string
	At, Before struct {
		Seq    int64
		TurnID int64 `json:"turn_id"`
		Text   string
	}
	UnheardAnswer *bool `json:"unheard_answer"`
}

func (s *server) findings(id string) []findingOf {
	s.t.Helper()
	var out struct{ Findings []findingOf }
	s.get(agent(id, "/checks")).ok(&out)
	return out.Findings
}

// TestChecks: what went wrong in a call is found when it ends and when evidence comes later, shown
// with the turns, found by lists, and counted by reports.
func TestChecks(t *testing.T) {
	t.Parallel()
	s := start(t)
	const hours = "We are open from nine to five on weekdays and from ten to two on Saturday."
	id, fine := s.join("desk", nil), s.join("night", nil)
	s.post(agent(id, "/messages"), `{"messages":[
		{"role":"user","content":"How much does the annual ticket cost?"},
		{"role":"assistant","content":"It costs ninety euros. `+hours+`"},
		{"role":"user","content":"Okay, thanks."},
		{"role":"assistant","content":"`+hours+`"}]}`)
	s.post(agent(fine, "/messages"), `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."}]}`)
	for _, a := range []string{id, fine} {
		s.post(agent(a, "/leave"), nil).ok(nil)
	}
	var report struct {
		Totals struct {
			Calls  int
			Checks map[string]int
		}
	}
	s.get(v1 + "/reports").ok(&report)
	if report.Totals.Calls != 2 || report.Totals.Checks["repeated"] != 1 {
		t.Errorf("the report has %+v", report.Totals)
	}
	if got := s.finds("check=repeated"); !slices.Equal(got, []string{"desk"}) {
		t.Errorf("found %v, want desk", got)
	}
	if got := s.finds("check=repeated,silence"); len(got) != 0 {
		t.Errorf("found %v", got)
	}
	found := s.findings(id)
	if len(found) != 1 || found[0].Check != "repeated" || found[0].At.Text != hours || found[0].At.Seq != 4 || found[0].Before.Seq != 2 || found[0].At.TurnID != 1 {
		t.Errorf("found %+v", found)
	}
	if got := s.findings(fine); len(got) != 0 {
		t.Errorf("found %+v", got)
	}
	s.get(v1+"/agents?check=rude").refused(http.StatusBadRequest, "InvalidFieldValue", "check", "repeated")
	s.get(agent("nobody", "/checks")).absent("nobody")

	// The caller heard nothing of the first answer: nothing was repeated then.
	s.interrupt(id, `{"turn_id":0,"heard":"It costs"}`).ok(nil)
	report.Totals.Checks = nil
	s.get(v1 + "/reports").ok(&report)
	if got := s.finds("check=repeated"); len(got) != 0 || report.Totals.Checks["repeated"] != 0 || report.Totals.Calls != 2 {
		t.Errorf("after late evidence: found %v, report %+v", got, report.Totals)
	}
}
