package tests

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// countedJSON is what an agent's tally and a bucket of an overview have in common.
type countedJSON struct {
	Answers, Interruptions, Failures, Ghosts int
	Generated                                int                    `json:"generated_tokens"`
	Unheard                                  int                    `json:"unheard_tokens"`
	Prompt                                   int                    `json:"prompt_tokens"`
	FirstToken                               struct{ P50, P95 int } `json:"first_token_ms"`
	Cost                                     costJSON
}

type costJSON struct {
	USD       float64
	Unheard   float64 `json:"unheard_usd"`
	Estimated float64 `json:"estimated_usd"`
}

type overviewJSON struct {
	Since, Until  time.Time
	BucketSeconds int `json:"bucket_seconds"`
	Totals        bucketJSON
	Buckets       []bucketJSON
	Webhooks      struct{ Pending, Dead int }
}

type bucketJSON struct {
	StartAt      time.Time `json:"start_at"`
	Calls, Turns int
	countedJSON
	BargeIn  float64        `json:"barge_in_rate"`
	Share    float64        `json:"unheard_share"`
	FailedAt map[string]int `json:"failures_by_upstream"`
}

// TestOverview checks that what happens in calls is counted in lists and in overviews, found by
// filters, and changed by late evidence.
func TestOverview(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=true")
	calm, busy, broken := s.join("calm", nil), s.join("busy", nil), s.join("broken", nil)
	const answer = "one two three four five six seven eight"
	for _, id := range []string{calm, busy} {
		s.ask(id, answer, user("Count."))
	}
	s.interrupt(busy, `{"heard_ms":0}`).ok(nil)
	s.post(agent(broken, "/chat/completions"), map[string]any{"messages": []any{user("Count.")}, "fake": map[string]any{"status": 400}})
	s.post(v1+"/chat/completions", map[string]any{"messages": []any{user("Count.")}, "call": map[string]any{"id": "5f0c"}, "fake": map[string]any{"answer": answer}}).ok(nil)

	for query, want := range map[string]string{
		"interrupted=true": "busy", "failed=true": "broken", "ghosts=true": "", "platform=vapi": "vapi.call:5f0c", "platform=retell": "", "failed=true&interrupted=true": "",
	} {
		if got := strings.Join(s.finds(query), " "); got != want {
			t.Errorf("%s finds %q, not %q", query, got, want)
		}
	}
	for _, bad := range []string{"interrupted=false", "failed=1", "ghosts=yes"} {
		field, _, _ := strings.Cut(bad, "=")
		s.get(v1+"/agents?"+bad).refused(http.StatusBadRequest, "InvalidFieldValue", field, "must be true")
	}
	var a struct{ Tally countedJSON }
	s.get(agent(busy)).ok(&a)
	if c := a.Tally; c.Answers != 1 || c.Interruptions != 1 || c.Generated == 0 || c.Unheard == 0 || c.Unheard != c.Generated || c.FirstToken.P95 < c.FirstToken.P50 {
		t.Errorf("the tally of a call with an interruption: %+v", c)
	}
	var o overviewJSON
	s.get(v1 + "/overview?since=1h").ok(&o)
	c := o.Totals
	if c.Calls != 4 || c.Turns != 4 || c.Answers != 3 || c.Interruptions != 1 || c.Failures != 1 || c.FailedAt["primary"] != 1 || c.Unheard != a.Tally.Unheard || c.BargeIn < 0.3 || c.BargeIn > 0.4 || c.Share == 0 {
		t.Errorf("totals: %+v", c)
	}
	calls := 0
	for i, b := range o.Buckets {
		if calls += b.Calls; !b.StartAt.Equal(o.Since.Add(time.Duration(i*o.BucketSeconds) * time.Second)) {
			t.Errorf("bucket %d starts at %s", i, b.StartAt)
		}
	}
	if calls != 4 || o.BucketSeconds != 60 || len(o.Buckets) != 61 {
		t.Errorf("%d calls in %d buckets of %d s", calls, len(o.Buckets), o.BucketSeconds)
	}
	s.interrupt(busy, `{"heard":"`+answer+`"}`).ok(nil) // better evidence: all was heard
	o = overviewJSON{}
	if s.get(v1 + "/overview").ok(&o); o.Totals.Unheard != 0 || o.Totals.Interruptions != 0 || len(o.Buckets) > 120 {
		t.Errorf("after late evidence: %+v", o.Totals)
	}
	s = s.again()
	if s.get(v1 + "/overview?since=30d").ok(&o); o.Totals.Calls != 4 || o.Totals.Answers != 3 || len(o.Buckets) > 120 {
		t.Errorf("after a restart: %+v", o.Totals)
	}
	s.do(http.MethodDelete, agent(calm), nil).is(http.StatusNoContent, nil)
	if s.get(v1 + "/overview").ok(&o); o.Totals.Calls != 3 || o.Totals.Answers != 2 {
		t.Errorf("after an erasure: %+v", o.Totals)
	}
	s.get(v1+"/overview?until=1h&since=32d").refused(http.StatusBadRequest, "InvalidFieldValue", "since", "30 days")
	s.get(v1+"/overview?sinse=1h").refused(http.StatusBadRequest, "InvalidFieldValue", "sinse", "since")
}

// TestCost checks what answers cost by the prices of the settings, reported or estimated, and that
// later prices do not change it.
func TestCost(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "one two three four five six seven eight"}) // 39 characters, 10 tokens
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_MODEL=fake-1-2026-01-02", "HEARDLOG_LLM_PRICES=fake-1=100:1000,other=1:1")
	id := s.join("desk", nil)
	type answers struct {
		Messages []struct {
			Role, Model string
			Cost        *costJSON
		}
	}
	read := func() (a struct{ Tally countedJSON }, list answers) {
		s.get(agent(id)).ok(&a)
		s.get(agent(id, "/messages")).ok(&list)
		return a, list
	}
	chat := func(script map[string]any) {
		s.post(agent(id, "/chat/completions"), map[string]any{"messages": []any{user("Count.")}, "stream": true, "fake": script}).ok(nil)
	}
	chat(map[string]any{"usage": true}) // 10 and 10 tokens
	const reported = 10*100e-6 + 10*1000e-6
	a, list := read()
	if got := list.Messages[1]; got.Model != "fake-1-2026-01-02" || got.Cost == nil || *got.Cost != (costJSON{USD: reported}) {
		t.Errorf("an answer with reported tokens: %+v, cost %+v", got, got.Cost)
	}
	if list.Messages[0].Cost != nil || a.Tally.Cost != (costJSON{USD: reported}) {
		t.Errorf("the question cost %+v, the call %+v", list.Messages[0].Cost, a.Tally.Cost)
	}
	s.interrupt(id, `{"heard_ms":0}`).ok(nil)
	if a, list = read(); a.Tally.Cost.Unheard != 10*1000e-6 || list.Messages[1].Cost.Unheard != a.Tally.Cost.Unheard {
		t.Errorf("nothing was heard: the call %+v, the answer %+v", a.Tally.Cost, list.Messages[1].Cost)
	}
	chat(nil) // without reported tokens
	a, list = read()
	if got := list.Messages[3].Cost; got == nil || got.Estimated != got.USD || got.USD < 10*1000e-6 || got.USD > reported+0.02 || got.Unheard != 0 {
		t.Errorf("an estimate: %+v", got)
	}
	all := a.Tally.Cost
	if diff := all.USD - reported - all.Estimated; diff > 1e-9 || diff < -1e-9 || all.Estimated == 0 {
		t.Errorf("the call with both: %+v", all)
	}
	s.env = append(s.env, "HEARDLOG_LLM_MODEL=unknown", "HEARDLOG_LLM_PRICES=fake-1=1:1")
	s = s.again()
	chat(map[string]any{"usage": true})
	if a, list = read(); a.Tally.Cost != all || list.Messages[5].Model != "unknown" || list.Messages[5].Cost != nil {
		t.Errorf("after a model without a price: the call %+v, the answer %+v", a.Tally.Cost, list.Messages[5])
	}
	var o overviewJSON
	if s.get(v1 + "/overview").ok(&o); o.Totals.Cost != all {
		t.Errorf("the overview has %+v", o.Totals.Cost)
	}
}

// TestOverviewRefused checks who may not see an overview, and that a project sees its own alone.
func TestOverviewRefused(t *testing.T) {
	t.Parallel()
	closed := start(t, twoTenants)
	closed.from("127.0.3.1").get(v1+"/overview").is(http.StatusUnauthorized, nil)
	closed.post(v1+"/join", map[string]any{"name": "n"}, "Authorization", basic("alice", "wonder")).ok(nil)
	var o overviewJSON
	if closed.get(v1+"/overview", "Authorization", basic("alice", "wonder")).ok(&o); o.Totals.Calls != 1 {
		t.Errorf("alice sees %+v", o.Totals)
	}
	open, limited := start(t), start(t, "HEARDLOG_RATE_LIMIT=1")
	open.get(v1+"/overview", "Host", "elsewhere.example").is(http.StatusForbidden, nil)
	for limited.get(v1+"/overview").status != http.StatusTooManyRequests {
	}
}
