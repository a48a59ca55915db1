package tests

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// replicas runs servers on one database.
func replicas(t *testing.T, n int, env ...string) []*server {
	t.Helper()
	env = append(env, "HEARDLOG_STORE="+postgrestest.URL(t))
	var out []*server
	for range n {
		out = append(out, start(t, env...))
	}
	return out
}

// TestCutElsewhere: an answer that streams through one server can be cut through another. The
// ledger is the same as on one server.
func TestCutElsewhere(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, counting())
	two := replicas(t, 2, "HEARDLOG_LLM_URL="+base)
	for name, tt := range map[string]struct {
		path, body, heard, by string
		more                  []string
	}{
		"interrupt":            {"/interrupt", ``, "0 assistant: One two three", "api_interrupt", nil},
		"interrupt with heard": {"/interrupt", `{"heard":"One"}`, "0 assistant: One", "api_interrupt", nil},
		"interrupt a turn":     {"/interrupt", `{"turn_id":0,"heard":"One two"}`, "0 assistant: One two", "api_interrupt", nil},
		"a platform's cut":     {"/evidence/vapi", `{"type":"user-interrupted"}`, "0 assistant: One two three", "start_of_speech", nil},
		"speak":                {"/speak", `{"text":"Stop"}`, "0 assistant: One two three", "api_speak", []string{"1 assistant: Stop"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := *two[0], *two[1]
			a.t, b.t = t, t
			id, _ := speaking(t, &a, name, nil)
			b.post(agent(id, tt.path), tt.body).ok(nil)
			for _, s := range []*server{&a, &b} {
				h := s.history(id).Contents
				got := texts(h)
				for i := range got {
					got[i] = strings.TrimSpace(got[i])
				}
				if name == "interrupt" && len(got) > 1 && strings.HasPrefix(tt.heard, got[1]) {
					got[1] = tt.heard // an estimate by the time, which is short
				}
				if diff := cmp.Diff(append([]string{"0 user: Count", tt.heard}, tt.more...), got); diff != "" {
					t.Error(diff)
				}
				if len(h) > 1 && h[1].Metadata["interrupted"] != true {
					t.Errorf("metadata %v", h[1].Metadata)
				}
			}
		})
	}
	id, _ := speaking(t, two[0], "not its words", nil)
	two[1].post(agent(id, "/interrupt"), `{"turn_id":0,"heard":"something else altogether"}`).refused(400, "InvalidFieldValue", "heard")
	two[1].post(agent(id, "/speak"), `{"text":"Stop","priority":"IGNORE"}`).ok(nil)
	two[0].post(agent(id, "/interrupt"), nil).ok(nil)
	if got := texts(two[1].history(id).Contents); len(got) != 2 {
		t.Errorf("it spoke although an answer was in flight elsewhere: %q", got)
	}
}

// TestOvertakenElsewhere: the caller's next words reach another server while the first still
// answers. The result is the same as on one server.
func TestOvertakenElsewhere(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, counting())
	two := replicas(t, 2, "HEARDLOG_LLM_URL="+base)
	for name, body := range map[string]string{
		"by its history": `{"stream":true,"messages":[{"role":"user","content":"Count"},{"role":"assistant","content":"One two"},{"role":"user","content":"Wait"}]}`,
		"by its words":   `{"stream":true,"messages":[{"role":"user","content":"Wait"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got [2][]string
			for i := range got {
				a, b := *two[0], *two[i]
				a.t, b.t = t, t
				id, first := speaking(t, &a, fmt.Sprint(name, i), nil)
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+agent(id, "/chat/completions"), strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				resp, err := b.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				for buf, said := make([]byte, 4096), ""; !strings.Contains(said, "three"); {
					n, err := resp.Body.Read(buf)
					if said += string(buf[:n]); err != nil {
						t.Fatalf("%v after %q", err, said)
					}
				}
				_, _, _ = first.Close(), resp.Body.Close(), err
				b.post(agent(id, "/leave"), nil).ok(nil)
				tail := a.tail(id)
				tail.status("STOPPED")
				got[i] = texts(a.history(id).Contents)
			}
			if diff := cmp.Diff(got[0], got[1]); diff != "" || len(got[0]) < 4 {
				t.Errorf("at one server (-) and at two (+):\n%s\n%q", diff, got[0])
			}
		})
	}
}

// TestLeaveElsewhere: the final memory holds what streams through another server, and a farewell is
// waited for.
func TestLeaveElsewhere(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, counting())
	two := replicas(t, 2, "HEARDLOG_LLM_URL="+base)
	for name, graceful := range map[string]bool{"at once": false, "with a farewell": true} {
		id, body := speaking(t, two[0], name, map[string]any{"parameters": map[string]any{"farewell_config": map[string]any{"graceful_enabled": graceful, "graceful_timeout_seconds": 60}}})
		tail := two[1].tail(id)
		two[1].post(agent(id, "/leave"), nil).ok(nil)
		if graceful {
			if a := two[0].agent(id); a.Status != "IDLE" {
				t.Errorf("%s: %+v", name, a)
			}
			_ = body.Close() // what it says ends
		}
		if why := tail.status("STOPPED"); why != "OK" {
			t.Errorf("%s: ended with %q", name, why)
		}
		got := texts(two[1].history(id).Contents)
		if len(got) != 2 || strings.TrimSpace(got[1]) != "0 assistant: One two three" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestTailElsewhere: the live tail of one server shows the changes through another, each once and
// in order.
func TestTailElsewhere(t *testing.T) {
	t.Parallel()
	two := replicas(t, 2)
	id := two[0].join("n", nil)
	tail := two[1].tail(id)
	const n = 30
	for i := range n {
		two[i%2].say(id, user(fmt.Sprint("message ", i)))
	}
	for i := range n {
		want := fmt.Sprint("message ", i)
		if m := tail.message(want, func(message) bool { return true }); m.Content != want {
			t.Fatalf("%q comes where %q was due", m.Content, want)
		}
	}
}

// TestTimersOfReplicas: each server serves the timers of all agents. One of them ends an idle
// agent, once, if no server had a request for it. Agents and deliveries of a server that is gone
// are taken over.
func TestTimersOfReplicas(t *testing.T) {
	t.Parallel()
	r := receive(t, hookSecret)
	three := replicas(t, 3, "HEARDLOG_WEBHOOK_URL="+r.url, "HEARDLOG_WEBHOOK_SECRET="+string(hookSecret), "HEARDLOG_OUTBOUND_ALLOW=127.0.0.1/32")
	names := map[string]string{}
	for i := range 6 {
		name := fmt.Sprint("idle ", i)
		names[three[i%3].join(name, map[string]any{"idle_timeout": 1})] = name
	}
	kept := three[0].join("kept", map[string]any{"idle_timeout": 4})
	three[1].tail(kept)
	three[0].stop() // what it made is the others'
	for _, name := range names {
		three[1].gone(name)
	}
	if a := three[2].agent(kept); a.Status != "RUNNING" {
		t.Errorf("an agent that another server is asked for: %+v", a)
	}
	left := map[string]int{}
	for len(left) < len(names) {
		n := <-r.got
		if n.EventType == 102 {
			left[n.SID]++
		}
	}
	three[1].stop()
	three[2].stop()
	for {
		select {
		case n := <-r.got:
			if n.EventType == 102 {
				left[n.SID]++
			}
			continue
		default:
		}
		break
	}
	for id, n := range left {
		if n != 1 || names[id] == "" {
			t.Errorf("the end of %q (%s) was told %d times", id, names[id], n)
		}
	}
}

// TestDatabaseDown: while the database is down, readyz fails and calls are refused with
// Retry-After. Acknowledged data survives, and the server recovers by itself.
func TestDatabaseDown(t *testing.T) {
	t.Parallel()
	db := postgrestest.Start(t)
	s := start(t, "HEARDLOG_STORE="+db.URL())
	id := s.join("n", nil)
	for i, crash := range []bool{false, true} {
		s.say(id, user(fmt.Sprint("message ", i)))
		s.get("/readyz").ok(nil)
		db.Down(crash)
		if a := s.get("/readyz"); a.status != 503 || a.header.Get("Retry-After") == "" {
			t.Errorf("/readyz without a database: %d %s, Retry-After %q", a.status, a.body, a.header.Get("Retry-After"))
		}
		s.get("/healthz").ok(nil) // the process is alive: a restart would not help
		for _, a := range []answer{
			s.post(agent(id, "/messages"), user("lost")), s.get(agent(id, "/history")), s.post(v1+"/agents", map[string]any{"name": "other", "properties": map[string]any{}}),
		} {
			if a.status != 503 || a.header.Get("Retry-After") == "" {
				t.Errorf("%s without a database: %d, Retry-After %q", a.call, a.status, a.header.Get("Retry-After"))
			}
		}
		db.Up()
		s.readyAgain()
	}
	if diff := cmp.Diff([]string{"0 user: message 0", "0 user: message 1"}, texts(s.history(id).Contents)); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(s.log.String(), "postgres@") {
		t.Error("the log shows who we are at the database")
	}
}

// readyAgain waits until the server has found that its database is back.
func (s *server) readyAgain() {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); s.get("/readyz").status != 200; {
		if time.Now().After(end) {
			s.t.Fatal("not ready although the database answers again")
		}
	}
}

// TestDatabaseSilent: a network that drops all packets to the database counts as a database that is
// down: calls are refused in time with Retry-After, readyz fails, and the server recovers by
// itself.
func TestDatabaseSilent(t *testing.T) {
	t.Parallel()
	proxy := postgrestest.NewProxy(t, postgrestest.URL(t))
	s := start(t, "HEARDLOG_STORE="+proxy.URL())
	id := s.join("n", nil)
	s.say(id, user("before"))
	proxy.Hole(true)
	const bound = time.Minute // the store takes 10 s, and TCP alone would wait for longer
	var calls sync.WaitGroup
	for _, call := range []func() answer{
		func() answer { return s.get("/readyz") },
		func() answer { return s.post(agent(id, "/messages"), user("lost")) },
		func() answer { return s.get(agent(id, "/history")) },
		func() answer {
			return s.post(v1+"/agents", map[string]any{"name": "other", "properties": map[string]any{}})
		},
	} {
		calls.Go(func() {
			began := time.Now()
			a := call()
			if took := time.Since(began); a.status != 503 || a.header.Get("Retry-After") == "" || took > bound {
				t.Errorf("%s without an answer of the database: %d after %s, Retry-After %q", a.call, a.status, took, a.header.Get("Retry-After"))
			}
		})
	}
	calls.Wait()
	proxy.Hole(false)
	s.readyAgain()
	s.say(id, user("after"))
	if diff := cmp.Diff([]string{"0 user: before", "0 user: after"}, texts(s.history(id).Contents)); diff != "" {
		t.Error(diff)
	}
}
