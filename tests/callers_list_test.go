package tests

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// TestCallersListed: the list of callers has their calls, their facts by state, and who set their
// consent.
func TestCallersListed(t *testing.T) {
	t.Parallel()
	s := start(t, twoTenants)
	alice := []string{"Authorization", basic("alice", "wonder")}
	for i, name := range []string{"anna", "anna", "ben"} {
		id := s.join(fmt.Sprint("call-", i), caller(name), alice...)
		s.post(agent(id, "/messages"), map[string]any{"messages": []any{user("Hello.")}}, alice...).ok(nil)
	}
	s.post(userPath("anna", "/facts"), `{"kind":"profile","content":"Lives in Bonn"}`, alice...).is(http.StatusCreated, nil)
	s.do("PUT", userPath("anna", "/consent"), `{"remember":"turns"}`, alice...).ok(nil)
	s.do("PUT", userPath("ben", "/consent"), `{"remember":"all"}`, alice...).ok(nil)
	var list struct {
		Users []struct {
			ID      string `json:"user_id"`
			Calls   int
			LastAt  time.Time `json:"last_call_at"`
			Facts   map[string]int
			Consent struct {
				Remember string
				By       string    `json:"set_by"`
				At       time.Time `json:"set_at"`
			}
		}
	}
	s.get(v1+"/users", alice...).ok(&list)
	var got []string
	for _, u := range list.Users {
		got = append(got, fmt.Sprint(u.ID, " ", u.Calls, " ", !u.LastAt.IsZero(), " ", u.Facts, " ", u.Consent.Remember, " ", u.Consent.By, " ", !u.Consent.At.IsZero()))
	}
	if diff := cmp.Diff([]string{"anna 2 true map[active:1] turns alice true", "ben 1 true map[] all alice true"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestReportFirstAt: a group has the hour of the first call of its value, also from before the time
// of the report.
func TestReportFirstAt(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	began := time.Now().UTC()
	for i := range 2 {
		s.reported(fmt.Sprint("call-", i), map[string]any{"labels": map[string]string{"version": "v2"}}, "one two", false)
	}
	var r struct {
		Groups []struct {
			Value   string
			FirstAt time.Time `json:"first_at"`
		}
	}
	s.get(v1 + "/reports?group_by=label.version").ok(&r)
	if len(r.Groups) != 1 || r.Groups[0].Value != "v2" || r.Groups[0].FirstAt.Before(began.Truncate(time.Hour)) || r.Groups[0].FirstAt.After(time.Now()) || r.Groups[0].FirstAt.Minute() != 0 {
		t.Errorf("%+v", r)
	}
}
