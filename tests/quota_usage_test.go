package tests

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

type amount struct{ Used, Limit int64 }

// usage is the answer of GET /v1/usage.
type usage struct {
	Project                                   string
	Agents, Messages, Bytes, Endpoints, Tails amount
	Rate                                      struct{ Requests, Messages, Bytes int64 }
}

func (s *server) usage(headers ...string) (u usage) {
	s.t.Helper()
	s.get(v1+"/usage", headers...).ok(&u)
	return u
}

// TestUsage: each project sees its own use, on every store, also after a restart and an erasure.
func TestUsage(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]string{"default": "HEARDLOG_STORE=" + freshStore(t), "memory": "HEARDLOG_STORE=memory:"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, store, twoTenants, "HEARDLOG_RATE_LIMIT=requests=1000,bytes=1000000000", "HEARDLOG_MAX_AGENTS=9")
			alice, bob := []string{"Authorization", basic("alice", "wonder")}, []string{"Authorization", basic("bob", "builder")}
			id, gone := s.join("n", nil, alice...), s.join("m", nil, alice...)
			for _, to := range []string{id, gone} {
				s.post(agent(to, "/messages"), `{"messages":[{"role":"user","content":"`+strings.Repeat("x", 1000)+`"},{"role":"assistant","content":"b"}]}`, alice...).ok(nil)
			}
			s.post(agent(id, "/leave"), nil, alice...).ok(nil)
			h := newHook(t)
			s.hookTo(h, nil, alice...)
			check := func(s *server, agents, messages int64) {
				t.Helper()
				u := s.usage(alice...)
				if u.Project != "p1" || u.Agents != (amount{agents, 9}) || u.Messages != (amount{messages, 100_000_000}) || u.Endpoints != (amount{1, 100}) ||
					u.Tails != (amount{0, 5000}) || u.Rate.Requests != 1000 || u.Rate.Messages != 0 || u.Rate.Bytes != 1_000_000_000 {
					t.Errorf("%+v", u)
				}
				if least := messages / 2 * 1000; u.Bytes.Used < least || u.Bytes.Used > 2*least || u.Bytes.Limit != 100_000<<20 {
					t.Errorf("%+v, want a little more than %d", u.Bytes, least)
				}
			}
			waitFor(t, "the use to be counted", func() bool { return s.usage(alice...).Agents.Used == 1 })
			check(s, 1, 4)
			if u := s.usage(bob...); u.Project != "p2" || u.Agents.Used+u.Messages.Used+u.Bytes.Used+u.Endpoints.Used != 0 {
				t.Errorf("bob's: %+v", u)
			}
			s.get(v1+"/usage?x=1", alice...).refused(http.StatusBadRequest, "InvalidFieldValue", "x")
			page := string(s.get("/metrics").body)
			for _, want := range []string{`heardlog_project_messages{project="p1"} 4`, `heardlog_project_agents{project="p1"} 1`, `heardlog_project_bytes{project="p1"} `} {
				if !strings.Contains(page, want) {
					t.Errorf("no %s in the metrics", want)
				}
			}
			if name == "memory" {
				return
			}
			s = s.again()
			check(s, 1, 4)
			s.do(http.MethodDelete, agent(gone), nil, alice...)
			waitFor(t, "the erased agent not to be counted", func() bool { return s.usage(alice...).Messages.Used == 2 })
			check(s, 0, 2)
		})
	}
}

// TestProjectQuota: a project stores no more than it may, and others are not affected. An answer to
// a message that was accepted is stored all the same.
func TestProjectQuota(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "At nine."})
	s := start(t, twoTenants, "HEARDLOG_LLM_URL="+base, "HEARDLOG_OUTBOUND_ALLOW=127.0.0.0/8", "HEARDLOG_MAX_PROJECT_MESSAGES=3")
	alice, bob := []string{"Authorization", basic("alice", "wonder")}, []string{"Authorization", basic("bob", "builder")}
	id := s.join("n", nil, alice...)
	const say = `{"role":"user","content":"a"}`
	s.post(agent(id, "/messages"), `{"messages":[`+say+`,`+say+`]}`, alice...).ok(nil)
	// A write during a count may be counted twice until the next one.
	waitFor(t, "the messages to be counted once", func() bool { return s.usage(alice...).Messages.Used == 2 })
	s.post(agent(id, "/messages"), `{"messages":[`+say+`,`+say+`]}`, alice...).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "HEARDLOG_MAX_PROJECT_MESSAGES", "2 messages stored", "limit of 3")
	s.chat(agent(id, "/chat/completions"), "When?", false, alice...).ok(nil)
	if list := s.ledger(id, alice...); len(list) != 4 || list[3].Content != "At nine." {
		t.Errorf("%+v", list)
	}
	if got := s.chat(agent(id, "/chat/completions"), "And then?", false, alice...); got.status != http.StatusUnprocessableEntity || !strings.Contains(string(got.body), `"code":"quota"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	other := s.join("m", nil, alice...)
	s.post(agent(other, "/messages"), say, alice...).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded")
	bobs := s.join("n", nil, bob...)
	s.post(agent(bobs, "/messages"), say, bob...).ok(nil)
	s = s.again() // the count is back before the first request
	s.post(agent(other, "/messages"), say, alice...).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "4 messages stored")
}

// TestProjectQuotaReplicas: what one server stores counts at another a few seconds later.
func TestProjectQuotaReplicas(t *testing.T) {
	t.Parallel()
	two := replicas(t, 2, "HEARDLOG_MAX_PROJECT_MB=1")
	id := two[0].join("n", nil)
	two[0].usage() // waits for the first count: a write during it may be counted twice
	long := func(i int) string {
		return fmt.Sprintf(`{"id":"m%d","role":"user","content":"%s"}`, i, strings.Repeat("x", 200_000))
	}
	for i := range 5 {
		two[0].post(agent(id, "/messages"), long(i)).ok(nil)
	}
	two[0].post(agent(id, "/messages"), long(5)).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "HEARDLOG_MAX_PROJECT_MB")
	waitFor(t, "the other server to count", func() bool { return two[1].usage().Bytes.Used > 1_000_000 })
	two[1].post(agent(id, "/messages"), long(6)).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "HEARDLOG_MAX_PROJECT_MB")
}

// TestProjectQuotaRecords: documents count against the limit, too.
func TestProjectQuotaRecords(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_MAX_PROJECT_MB=1")
	of := func(size int) string { return `{"content":"` + strings.Repeat("x", size) + `"}` }
	// A write during a count may be counted twice until the next one: there is room for that.
	for range 16 {
		s.storeDocuments("c", of(60_000))
	}
	s.storeDocuments("c", of(21_000))
	document := of(65_500)
	for _, c := range []struct{ method, path string }{{"POST", "/c"}, {"PUT", "/c/x"}} {
		s.do(c.method, vectorsPath+c.path, document).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "HEARDLOG_MAX_PROJECT_MB")
	}
	s.do("DELETE", vectorsPath+"/c", "").is(http.StatusNoContent, nil)
	waitFor(t, "the documents not to count", func() bool { return s.usage().Bytes.Used < 100_000 })
	s.storeDocuments("c", document)
}

// TestRateOfMessages: an append of many messages costs as much as they are, reads do not wait for
// it, and Retry-After says how long others do.
func TestRateOfMessages(t *testing.T) {
	t.Parallel()
	for name, rate := range map[string]string{"messages": "messages=1", "bytes": "requests=1000,bytes=100"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, twoTenants, "HEARDLOG_RATE_LIMIT="+rate)
			alice, bob := []string{"Authorization", basic("alice", "wonder")}, []string{"Authorization", basic("bob", "builder")}
			id, bobs := s.join("n", nil, alice...), s.join("n", nil, bob...)
			const say = `{"role":"user","content":"a"}`
			s.post(agent(id, "/messages"), `{"messages":[`+strings.Repeat(say+",", 999)+say+`]}`, alice...).ok(nil)
			got := s.post(agent(id, "/messages"), say, alice...).refused(http.StatusTooManyRequests, "ConcurrencyLimitExceeded", name, "HEARDLOG_RATE_LIMIT")
			var wait int
			if _, err := fmt.Sscan(got.header.Get("Retry-After"), &wait); err != nil || wait < 100 || wait > 1000 {
				t.Errorf("Retry-After %q", got.header.Get("Retry-After"))
			}
			s.get(agent(id, "/history"), alice...).ok(nil)
			s.post(agent(bobs, "/messages"), say, bob...).ok(nil)
		})
	}
}

// TestTailsOfProject: a project has only so many live tails open, whichever agents they follow.
func TestTailsOfProject(t *testing.T) {
	t.Parallel()
	s := start(t, twoTenants, "HEARDLOG_TAIL_PROJECT_READERS=2")
	alice, bob := []string{"Authorization", basic("alice", "wonder")}, []string{"Authorization", basic("bob", "builder")}
	open := func(name string, as []string) io.Closer {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+agent(s.join(name, nil, as...), "/events"), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(as[0], as[1])
		res, err := http.DefaultClient.Do(req)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%v %v", res, err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return res.Body
	}
	first := open("a", alice)
	open("b", alice)
	open("c", bob)
	id := s.join("d", nil, alice...)
	s.get(agent(id, "/events"), alice...).refused(http.StatusTooManyRequests, "ConcurrencyLimitExceeded", "HEARDLOG_TAIL_PROJECT_READERS", "2 live tails")
	if u := s.usage(alice...); u.Tails != (amount{2, 2}) {
		t.Errorf("%+v", u)
	}
	first.Close()
	waitFor(t, "the closed one to leave room", func() bool { return s.usage(alice...).Tails.Used == 1 })
	open("e", alice)
}
