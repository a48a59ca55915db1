package compat_test

import (
	"net/http"
	"testing"
)

// TestPageChecks: the page of a call shows what the checks have found, with the words of both
// places; lists and the overview lead to the calls.
func TestPageChecks(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join(t, "desk", nil)
	const hours = "We are open from nine to five on weekdays and from ten to two on Saturday."
	s.call(t, http.StatusOK, "POST", "/v1/agents/"+id+"/messages", object{"messages": []object{
		{"role": "assistant", "content": hours}, {"role": "user", "content": "Okay."}, {"role": "assistant", "content": hours},
	}}, nil)
	s.call(t, http.StatusOK, "POST", "/v1/agents/"+id+"/leave", nil, nil)
	s.call(t, http.StatusOK, "GET", "/v1/reports", nil, nil) // counts the call, and checks it

	b := openTab(t, s.url+"/calls/"+id)
	b.shows(".transcript .chip.bad", "said again what was heard")
	b.clicks(".transcript li:nth-child(3) button")
	b.shows("[aria-label=Findings] b", "said again what was heard")
	b.shows("[aria-label=Findings] q", hours)
	b.shows("[aria-label=Findings] .quiet", "said before in turn 0")

	b = openTab(t, s.url+"/?check=repeated")
	b.shows("tr .happened", "said again what was heard")
	b.shows("th[scope=row] a", "desk")

	b = openTab(t, s.url+"/overview")
	b.shows("a.chip.bad", "said again what was heard: 1 call")
	b.shows(".total", "1 call, 2 answers")
}
