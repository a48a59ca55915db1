package tests

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/sqlite"
)

type replayEstimate struct {
	Requests, Skipped int
	Input             int      `json:"input_tokens"`
	Output            int      `json:"output_tokens"`
	Cost              *float64 `json:"cost_usd"`
}

type replayAnswer struct {
	Content, Model, Error string
	ToolCalls             []any `json:"tool_calls"`
	Status                int
	Cost                  *float64 `json:"cost_usd"`
}

type replayOf struct {
	ID, State    string
	Done, Failed int
	Spent        float64 `json:"spent_usd"`
	Estimate     replayEstimate
	Results      []struct {
		AgentID       string `json:"agent_id"`
		TurnID        int64  `json:"turn_id"`
		Gone          bool
		Before, After *replayAnswer
	}
	Next string `json:"next_cursor"`
}

const replays = v1 + "/replays"

// replay starts a replay and returns it when it has ended.
func (s *server) replay(t *testing.T, body any, headers ...string) (r replayOf) {
	s.t.Helper()
	s.post(replays, body, headers...).is(http.StatusAccepted, &r)
	return s.replayed(t, r.ID)
}

func (s *server) replayed(t *testing.T, id string) (r replayOf) {
	s.t.Helper()
	waitFor(t, "the end of the replay", func() bool {
		r = replayOf{}
		s.get(replays + "/" + id).ok(&r)
		return r.State == "done"
	})
	return r
}

// TestReplayTurn: the request of a turn is asked again as it was sent, with the changes, from
// another upstream. The call stays as it is, and the key is shown nowhere.
func TestReplayTurn(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "As I said, at nine."})
	other, second := upstream(t, fake.Script{Answer: "At nine."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_MODEL=m1")
	id := s.join("n", map[string]any{"llm": map[string]any{"params": map[string]any{"temperature": 0.5}, "system_messages": []any{map[string]any{"role": "system", "content": "Sell <tickets>."}}}})
	s.chat(agent(id, "/chat/completions"), "When?", true).ok(nil)
	before := string(s.get(agent(id, "/messages")).ok(nil).body)
	change := map[string]any{
		"agent_id": id, "turn_id": 0, "model": "m2", "system": "Be \"brief\".", "params": map[string]any{"temperature": 1, "top_p": 0.1},
		"llm": map[string]any{"url": second + "/chat/completions?key=in-the-url", "api_key": "key-of-the-replay"},
	}
	var dry struct{ Estimate replayEstimate }
	change["dry_run"] = true
	s.post(replays, change).ok(&dry)
	if e := dry.Estimate; e.Requests != 1 || e.Skipped != 0 || e.Input < 8 || e.Input > 30 || e.Output < 4 || e.Cost != nil || len(other.Requests()) != 0 {
		t.Errorf("%+v, and %d requests", e, len(other.Requests()))
	}
	delete(change, "dry_run")
	r := s.replay(t, change, "Idempotency-Key", "k1")
	if len(r.Results) != 1 || r.Done != 1 || r.Failed != 0 || r.Results[0].Before.Content != "As I said, at nine." || r.Results[0].After == nil || r.Results[0].After.Content != "At nine." {
		t.Fatalf("%+v", r)
	}
	sent := other.Requests()
	if len(sent) != 1 || sent[0].Header.Get("Authorization") != "Bearer key-of-the-replay" {
		t.Fatalf("%+v", sent)
	}
	told := s.requests(id, 0)[0].Body
	want := strings.NewReplacer(`"Sell \u003ctickets\u003e."`, `"Be \"brief\"."`, `"m1"`, `"m2"`, `"temperature":0.5`, `"temperature":1`, `"stream":true,`, ``, `,"stream":true`, ``).Replace(told)
	if got := string(sent[0].Body); got != strings.TrimSuffix(want, "}")+`,"top_p":0.1}` {
		t.Errorf("sent %s\nwant %s", got, want)
	}
	if diff := cmp.Diff(before, string(s.get(agent(id, "/messages")).ok(nil).body)); diff != "" {
		t.Error("the call has changed", diff)
	}
	for _, path := range []string{replays, replays + "/" + r.ID, v1 + "/jobs", "/metrics"} {
		if body := string(s.get(path).ok(nil).body); strings.Contains(body, "key-of-the-replay") || strings.Contains(body, "in-the-url") {
			t.Errorf("%s shows a secret: %s", path, body)
		}
	}
	if s.post(replays, change, "Idempotency-Key", "k1").is(http.StatusAccepted, nil); len(other.Requests()) != 1 {
		t.Error("a repeat with the same key was run")
	}
	change["model"] = "m3"
	s.post(replays, change, "Idempotency-Key", "k1").refused(http.StatusConflict, "Conflict", "Idempotency-Key")
	s.do(http.MethodDelete, replays+"/"+r.ID, nil).is(http.StatusNoContent, nil)
	s.get(replays+"/"+r.ID).refused(http.StatusNotFound, "NotFound", "replay")
	if got := s.get(v1 + "/jobs").ok(nil); strings.Contains(string(got.body), r.ID) {
		t.Errorf("the job was left: %s", got.body)
	}
}

// TestReplayAnswers: a tool call is an answer, failures are told with their status, and an address
// that the server may not reach is not reached.
func TestReplayAnswers(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "At nine."})
	_, tool := upstream(t, fake.Script{ToolName: "book", ToolArgs: `{"at":9}`})
	refusing, down := upstream(t, fake.Script{Status: http.StatusUnauthorized})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", nil)
	s.chat(agent(id, "/chat/completions"), "When?", true).ok(nil)
	ask := func(url string) *replayAnswer {
		r := s.replay(t, map[string]any{"agent_id": id, "turn_id": 0, "llm": map[string]any{"url": url}})
		if len(r.Results) != 1 || r.Results[0].After == nil {
			t.Fatalf("%+v", r)
		}
		return r.Results[0].After
	}
	if a := ask(tool); len(a.ToolCalls) != 1 || a.Error != "" {
		t.Errorf("%+v", a)
	}
	if a := ask(down); a.Status != http.StatusUnauthorized || a.Error == "" || len(refusing.Requests()) != 1 {
		t.Errorf("%+v after %d requests", a, len(refusing.Requests()))
	}
	if a := ask("http://169.254.169.254/latest"); a.Error == "" || a.Content != "" {
		t.Errorf("%+v", a)
	}
}

// TestReplayFilter: a filter selects the newest turns of the calls that it finds; the cost is known
// before and after. Answers go with the call that they are about.
func TestReplayFilter(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "At nine.", Usage: true})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_MODEL=fake-1", "HEARDLOG_LLM_PRICES=fake-1=100:1000")
	ids := make([]string, 3)
	for i := range ids {
		ids[i] = s.join(fmt.Sprint("n", i), map[string]any{"labels": map[string]string{"line": []string{"sales", "sales", "help"}[i]}})
		for range 3 {
			s.chat(agent(ids[i], "/chat/completions"), "When?", i == 0).ok(nil)
		}
	}
	asked := len(llm.Requests())
	body := map[string]any{"filter": map[string]string{"label.line": "sales", "since": "1h"}, "turns": 2, "dry_run": true}
	var dry struct{ Estimate replayEstimate }
	s.post(replays, body).ok(&dry)
	if e := dry.Estimate; e.Requests != 4 || e.Cost == nil || *e.Cost <= 0 || len(llm.Requests()) != asked {
		t.Errorf("%+v", e)
	}
	body["dry_run"] = false
	r := s.replay(t, body)
	if r.Done != 4 || r.Failed != 0 || len(r.Results) != 4 || r.Spent <= 0 || len(llm.Requests()) != asked+4 {
		t.Fatalf("%+v, %d requests", r, len(llm.Requests())-asked)
	}
	for _, one := range r.Results {
		if one.TurnID < 1 || one.AgentID == ids[2] || one.After == nil || one.After.Content != "At nine." || one.After.Cost == nil {
			t.Errorf("%+v", one)
		}
	}
	var page replayOf
	s.get(replays + "/" + r.ID + "?limit=3").ok(&page)
	next := page.Next
	page = replayOf{}
	s.get(replays + "/" + r.ID + "?limit=3&cursor=" + next).ok(&page)
	if len(page.Results) != 1 || page.Next != "" {
		t.Errorf("the last page: %+v", page)
	}
	var list struct{ Replays []replayOf }
	if s.get(replays).ok(&list); len(list.Replays) != 1 || list.Replays[0].ID != r.ID {
		t.Errorf("%+v", list)
	}
	s.do(http.MethodDelete, agent(ids[0]), nil).is(http.StatusNoContent, nil)
	page = replayOf{}
	s.get(replays + "/" + r.ID).ok(&page)
	for _, one := range page.Results {
		if gone := one.AgentID == ids[0]; one.Gone != gone || gone && (one.After != nil || one.Before != nil) {
			t.Errorf("after the erasure: %+v", one)
		}
	}
}

// TestReplayLimits: what cannot be asked again is refused before anything is sent, and a key must
// be allowed to read.
func TestReplayLimits(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "At nine."})
	_, never := upstream(t, fake.Script{Hang: true})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_CREDENTIALS=default=a:secret-of-a")
	me := []string{"Authorization", basic("a", "secret-of-a")}
	id := s.join("n", nil, me...)
	s.chat(agent(id, "/chat/completions"), "When?", true, me...).ok(nil)
	for body, want := range map[string]string{
		`{}`:                                                           "agent_id",
		`{"agent_id":"` + id + `"}`:                                    "turn_id",
		`{"filter":{"limit":"1"}}`:                                     "filter.limit",
		`{"filter":{"labels":"1"}}`:                                    "filter.labels",
		`{"filter":{"status":"lost"}}`:                                 "status",
		`{"filter":{"name":"none"}}`:                                   "nothing",
		`{"filter":{},"calls":101}`:                                    "calls",
		`{"filter":{},"turns":51}`:                                     "turns",
		`{"agent_id":"x","turn_id":1,"filter":{}}`:                     "filter",
		`{"agent_id":"x","turn_id":1,"turns":1}`:                       "filter",
		`{"filter":{},"params":{"messages":[]}}`:                       "params.messages",
		`{"filter":{},"params":{"api_key":"0123456789"}}`:              "params",
		`{"filter":{},"params":[]}`:                                    "params",
		`{"filter":{},"llm":{"url":"ftp://x"}}`:                        "llm.url",
		`{"filter":{},"llm":{"url":"https://u:p@x.example"}}`:          "llm.url",
		`{"filter":{},"system":"` + strings.Repeat("x", 70_000) + `"}`: "system",
	} {
		a := s.post(replays, body, me...)
		if a.status != http.StatusBadRequest || !strings.Contains(string(a.body), want) {
			t.Errorf("%.80s: %d %s", body, a.status, a.body)
		}
	}
	one := map[string]any{"agent_id": id, "turn_id": 0, "llm": map[string]any{"url": never}}
	s.post(replays, map[string]any{"agent_id": id, "turn_id": 9}, me...).refused(http.StatusNotFound, "NotFound", "turn 9")
	s.post(replays, map[string]any{"agent_id": "none", "turn_id": 9}, me...).refused(http.StatusNotFound, "NotFound")
	s.get(replays+"/none?cursor=x", me...).refused(http.StatusBadRequest, "InvalidFieldValue", "cursor")
	none, writes := bearer(s.newKey("webhooks", me...)), bearer(s.newKey("write", me...))
	for _, a := range []answer{
		s.post(replays, one, none...), s.post(replays, one, writes...), s.get(replays, none...), s.get(replays+"/x", none...), s.do(http.MethodDelete, replays+"/x", nil, none...),
	} {
		if a.status != http.StatusForbidden {
			t.Errorf("%s: %d %s", a.call, a.status, a.body)
		}
	}
	for range 10 {
		s.post(replays, one, me...).is(http.StatusAccepted, nil)
	}
	s.post(replays, one, me...).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "10")
}

// TestReplayRefused checks who may not see or start replays, and what is too much.
func TestReplayRefused(t *testing.T) {
	t.Parallel()
	closed, small, limited := start(t, twoTenants), start(t, "HEARDLOG_MAX_BODY=1024"), start(t, "HEARDLOG_RATE_LIMIT=1", "HEARDLOG_RATE_BURST=1")
	stranger := closed.from("127.0.3.2")
	small.post(replays, strings.Repeat(" ", 2000)).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody")
	for _, call := range []struct{ method, path, body string }{
		{"POST", replays, `{"filter":{}}`}, {"GET", replays, ""}, {"GET", replays + "/x", ""}, {"DELETE", replays + "/x", ""},
	} {
		stranger.do(call.method, call.path, call.body).is(http.StatusUnauthorized, nil)
		for limited.do(call.method, call.path, call.body).status != http.StatusTooManyRequests {
		}
	}
	closed.do("DELETE", replays+"/x?limit=1", nil, "Authorization", basic("alice", "wonder")).is(http.StatusBadRequest, nil)
}

// TestReplayErased: the answers go with the caller, and those to requests with words that were
// erased. Another project sees none of it.
func TestReplayErased(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "At nine."})
	s := start(t, "HEARDLOG_LLM_URL="+base, twoTenants)
	alice, bob := []string{"Authorization", basic("alice", "wonder")}, []string{"Authorization", basic("bob", "builder")}
	id := s.join("n", map[string]any{"heardlog": map[string]any{"scope": map[string]any{"user_id": "anna"}}}, alice...)
	s.chat(agent(id, "/chat/completions"), "When?", true, alice...).ok(nil)
	var r replayOf
	s.post(replays, map[string]any{"filter": map[string]string{"user_id": "anna"}, "llm": map[string]any{"url": base, "api_key": "key-of-the-replay"}}, alice...).is(http.StatusAccepted, &r)
	waitFor(t, "the end of the replay", func() bool {
		s.get(replays+"/"+r.ID, alice...).ok(&r)
		return r.State == "done"
	})
	if len(r.Results) != 1 || r.Results[0].After == nil {
		t.Fatalf("%+v", r)
	}
	s.get(replays+"/"+r.ID, bob...).refused(http.StatusNotFound, "NotFound")
	s.do(http.MethodDelete, v1+"/users/anna", nil, alice...).ok(nil)
	got := replayOf{}
	if a := s.get(replays+"/"+r.ID, alice...).ok(&got); len(got.Results) != 1 || !got.Results[0].Gone || got.Results[0].After != nil || strings.Contains(string(a.body), "anna") {
		t.Errorf("%s", a.body)
	}
	needsFile(t)
	s.stop()
	path := strings.TrimPrefix(s.env[slices.IndexFunc(s.env, func(e string) bool { return strings.HasPrefix(e, "HEARDLOG_STORE=") })], "HEARDLOG_STORE=sqlite:")
	file, err := sqlite.OpenReader(sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var out strings.Builder
	if _, err := export.Write(t.Context(), &out, file, export.Scope{}, true, nil); err != nil {
		t.Fatal(err)
	}
	if all := out.String(); strings.Contains(all, "At nine.") || strings.Contains(all, "key-of-the-replay") || !strings.Contains(all, r.ID) {
		t.Errorf("the store holds %s", all)
	}
}

// TestReplayRestart: a replay goes on after its server has ended, and asks again only what was
// under way.
func TestReplayRestart(t *testing.T) {
	t.Parallel()
	needsFile(t)
	_, base := upstream(t, fake.Script{Answer: "At nine."})
	var asked atomic.Int64
	held, reached := make(chan struct{}), make(chan struct{}, 100)
	other := fake.New(fake.Options{Script: fake.Script{Answer: "Nine."}})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 4 {
			reached <- struct{}{}
			select {
			case <-held:
			case <-r.Context().Done():
				return
			}
		}
		other.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_SHUTDOWN_TIMEOUT=1s")
	id := s.join("n", nil)
	for range 10 {
		s.chat(agent(id, "/chat/completions"), "When?", true).ok(nil)
	}
	var r replayOf
	s.post(replays, map[string]any{"filter": map[string]string{}, "turns": 10, "llm": map[string]any{"url": srv.URL + "/v1", "api_key": "k"}}).is(http.StatusAccepted, &r)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	for range 4 {
		select {
		case <-reached:
		case <-ctx.Done():
			t.Fatal("the second four were not asked")
		}
	}
	s = s.again()
	close(held)
	if r = s.replayed(t, r.ID); r.Done != 10 || r.Failed != 0 || asked.Load() != 14 {
		t.Errorf("%+v after %d requests", r, asked.Load())
	}
	for _, one := range r.Results {
		if one.After == nil || one.After.Content != "Nine." {
			t.Errorf("%+v", one)
		}
	}
}
