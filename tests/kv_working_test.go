package tests

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func working(id, key string) string {
	return agent(id, "/working-memory/"+url.PathEscape(key))
}

type workingEntry struct {
	Key       string
	Bytes     int64
	UpdatedAt time.Time `json:"updated_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

func (e workingEntry) life() time.Duration { return e.ExpiresAt.Sub(e.UpdatedAt) }

type workingList struct {
	Keys       []workingEntry
	Total      int
	Bytes      int64
	MaxBytes   int64  `json:"max_bytes"`
	NextCursor string `json:"next_cursor"`
}

func (l workingList) names() (out []string) {
	for _, k := range l.Keys {
		out = append(out, k.Key)
	}
	return out
}

// joinWorking joins with a working_memory block, "" for none.
func (s *server) joinWorking(name, block string, headers ...string) string {
	s.t.Helper()
	if block == "" {
		block = "{}"
	}
	var out struct {
		AgentID string `json:"agent_id"`
	}
	s.post(v1+"/join", fmt.Sprintf(`{"name":%q,"properties":{"heardlog":{"working_memory":%s}}}`, name, block), headers...).ok(&out)
	return out.AgentID
}

func (s *server) putWorking(id, key, body string) (e workingEntry) {
	s.t.Helper()
	s.do(http.MethodPut, working(id, key), body).ok(&e)
	return e
}

// TestWorkingMemory: any JSON under any key comes back byte for byte, over a restart and under
// every base path, and is erased with the agent.
//
// Rules: 004-6
func TestWorkingMemory(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_SECRET_KEY=a long enough secret")
	id, other := s.joinWorking("ann", ""), s.joinWorking("bob", "")
	values := map[string]string{
		"%": `null`, "%2F": `"a b"`, "1": `1.50`, "10": `1e400`, "2": `true`, "A": `{ "b" : [ ],"b":2 }`, "a/b": `"\u0000\ud83d\ude00 é </script>"`, "é": `[[[]]]`,
	}
	want := []string{"%", "%2F", "1", "10", "2", "A", "a/b", "é"}
	for key, value := range values {
		e := s.putWorking(id, key, `{"value":`+value+`}`)
		if e.Key != key || e.Bytes != int64(len(key)+len(value)) || e.life() != time.Hour {
			t.Errorf("%q: %+v", key, e)
		}
	}
	s.putWorking(other, "1", `{"value":"bob's","ttl_seconds":86400}`)
	s = s.again()
	for key, value := range values {
		got := s.get(working(id, key)).ok(nil)
		if !strings.HasSuffix(string(got.body), `,"value":`+value+"}\n") {
			t.Errorf("%q is %s, want %s", key, got.body, value)
		}
	}
	var got []string
	for cursor, n := "", 0; n == 0 || cursor != ""; n++ {
		var page workingList
		s.get(agent(id, "/working-memory?limit=3&cursor="+url.QueryEscape(cursor))).ok(&page)
		if page.Total != len(want) || page.MaxBytes != 64<<20 || n > 4 {
			t.Fatalf("page %d: %+v", n, page)
		}
		got, cursor = append(got, page.names()...), page.NextCursor
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("keys (-want +got):\n%s", d)
	}
	for _, base := range []string{agora, cn} {
		if got := s.get(base + "/agents/" + id + "/working-memory/2").ok(nil); !strings.Contains(string(got.body), `"value":true`) {
			t.Errorf("%s: %s", base, got.body)
		}
	}
	if got := s.do(http.MethodDelete, working(id, "a/b"), nil); got.status != http.StatusNoContent {
		t.Errorf("delete: %d %s", got.status, got.body)
	}
	s.do(http.MethodDelete, working(id, "a/b"), nil).absent()
	s.get(working(id, "a/b")).refused(http.StatusNotFound, "TaskNotFound", `"a/b"`)
	s.post(agent(id, "/leave"), nil).ok(nil)
	s.do(http.MethodPut, working(id, "2"), `{"value":1}`).refused(http.StatusGone, "TaskNotFound")
	s.get(working(id, "2")).ok(nil)
	if got := s.do(http.MethodDelete, agent(id, "/working-memory"), nil); got.status != http.StatusNoContent {
		t.Errorf("clear: %d %s", got.status, got.body)
	}
	var page workingList
	s.get(agent(id, "/working-memory")).ok(&page)
	if page.Total != 0 || page.Bytes != 0 || page.Keys == nil {
		t.Errorf("after the clear %+v", page)
	}
	if got := s.get(working(other, "1")).ok(nil); !strings.Contains(string(got.body), "bob's") {
		t.Errorf("another agent's: %s", got.body)
	}
	if got := s.do(http.MethodDelete, agent(other, ""), nil); got.status != http.StatusNoContent {
		t.Fatalf("erase: %d %s", got.status, got.body)
	}
	for _, path := range []string{working(other, "1"), agent(other, "/working-memory")} {
		s.get(path).refused(http.StatusNotFound, "TaskNotFound")
	}
}

// TestWorkingMemoryBounds: limits of the server, and those that an agent sets for itself.
//
// Rules: 004-6
func TestWorkingMemoryBounds(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_MAX_WORKING_MB=2")
	id := s.joinWorking("ann", `{"enabled":true,"max_size_mb":1,"ttl_seconds":60}`)
	if e := s.putWorking(id, "k", `{"value":1}`); e.life() != time.Minute {
		t.Errorf("the agent's own ttl: %+v", e)
	}
	if e := s.putWorking(id, "k", `{"value":1,"ttl_seconds":86400}`); e.life() != 24*time.Hour {
		t.Errorf("the call's ttl: %+v", e)
	}
	for body, words := range map[string]string{
		`{"value":1,"ttl_seconds":59}`: "ttl_seconds", `{"value":1,"ttl_seconds":86401}`: "ttl_seconds", `{"value":1,"ttl_seconds":0}`: "ttl_seconds",
		`{"value":1,"ttl_seconds":"60"}`: "ttl_seconds", `{"value":1,"ttl":60}`: "ttl",
	} {
		s.do(http.MethodPut, working(id, "k"), body).refused(http.StatusBadRequest, "InvalidFieldValue", words)
	}
	s.do(http.MethodPut, working(id, "k"), `{}`).refused(http.StatusBadRequest, "MissingRequiredField", "value")
	s.do(http.MethodPut, working(id, "k"), "{\"value\":\"\xff\"}").refused(http.StatusBadRequest, "InvalidFieldValue", "UTF-8")
	for _, body := range []string{``, `[]`, `{"value":}`, `{"value":1} {}`} {
		s.do(http.MethodPut, working(id, "k"), body).refused(http.StatusBadRequest, "InvalidRequestBody")
	}
	for _, key := range []string{"%20", "a%20", "a%00b", "a%0Ab", strings.Repeat("x", 257), "%E2%80%8B", "%FF", "%2E", "%2E%2E"} {
		for _, method := range []string{http.MethodPut, http.MethodGet, http.MethodDelete} {
			s.do(method, agent(id, "/working-memory/"+key), `{"value":1}`).refused(http.StatusBadRequest, "InvalidFieldValue", "key: ")
		}
	}
	s.get(agent(id, "/working-memory?limit=1001")).refused(http.StatusBadRequest, "InvalidFieldValue", "limit")
	s.get(agent(id, "/working-memory?cursor=%00")).refused(http.StatusBadRequest, "InvalidFieldValue", "cursor")
	half := `{"value":"` + strings.Repeat("x", 600_000) + `"}`
	s.putWorking(id, "half", half)
	s.do(http.MethodPut, working(id, "more"), half).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "1048576")
	s.putWorking(id, "half", half) // one that is there may be stored again
	for block, want := range map[string]int64{`{"max_size_mb":1024}`: 2 << 20, `{}`: 2 << 20, `{"max_size_mb":1}`: 1 << 20} {
		var page workingList
		s.get(agent(s.joinWorking("of "+block, block), "/working-memory")).ok(&page)
		if page.MaxBytes != want {
			t.Errorf("%s: %d, want %d", block, page.MaxBytes, want)
		}
	}
	for block, field := range map[string]string{`{"max_size_mb":1025}`: "max_size_mb", `{"max_size_mb":-1}`: "max_size_mb", `{"ttl_seconds":59}`: "ttl_seconds", `{"enabled":"no"}`: "enabled"} {
		s.post(v1+"/join", `{"name":"bad","properties":{"heardlog":{"working_memory":`+block+`}}}`).refused(http.StatusBadRequest, "InvalidFieldValue", "heardlog.working_memory."+field)
	}
	off := s.joinWorking("off", `{"enabled":false}`)
	for _, c := range []struct{ method, path string }{{"PUT", "/k"}, {"GET", "/k"}, {"DELETE", "/k"}, {"GET", ""}, {"DELETE", ""}} {
		s.do(c.method, agent(off, "/working-memory"+c.path), `{"value":1}`).refused(http.StatusConflict, "TaskConflict", "switched off")
		s.do(c.method, agent("nobody", "/working-memory"+c.path), `{"value":1}`).absent()
	}
}

// TestWorkingMemoryTenants: another project finds neither agent nor keys.
func TestWorkingMemoryTenants(t *testing.T) {
	t.Parallel()
	s := start(t, twoTenants)
	alice, bob := []string{"Authorization", basic("alice", "wonder")}, []string{"Authorization", basic("bob", "builder")}
	id := s.joinWorking("ann", "", alice...)
	s.do(http.MethodPut, working(id, "k"), `{"value":"alice's"}`, alice...).ok(nil)
	for _, c := range []struct{ method, path string }{{"PUT", "/k"}, {"GET", "/k"}, {"DELETE", "/k"}, {"GET", ""}, {"DELETE", ""}} {
		s.do(c.method, agent(id, "/working-memory"+c.path), `{"value":1}`, bob...).absent()
		s.do(c.method, agent(id, "/working-memory"+c.path), `{"value":1}`).refused(http.StatusUnauthorized, "InvalidPermission")
	}
	if got := s.get(working(id, "k"), alice...).ok(nil); !strings.Contains(string(got.body), "alice's") {
		t.Errorf("after bob's calls: %s", got.body)
	}
}

// TestMemoryModelWorkingMemory: join accepts the working memory that the check of a document
// returns.
//
// Rules: 004-6
func TestMemoryModelWorkingMemory(t *testing.T) {
	t.Parallel()
	s := start(t)
	var r modelReport
	s.post(validatePath, `{"part":"short_term.working_memory","document":{"max_size_mb":3,"ttl_seconds":120}}`).ok(&r)
	id := s.joinWorking("ann", string(r.WorkingMemory))
	var page workingList
	s.get(agent(id, "/working-memory")).ok(&page)
	e := s.putWorking(id, "k", `{"value":[]}`)
	if page.MaxBytes != 3<<20 || e.life() != 2*time.Minute {
		t.Errorf("%+v, %+v", page, e)
	}
	s.post(validatePath, `{"part":"short_term","document":{"enabled":false}}`).ok(&r)
	s.get(agent(s.joinWorking("off", string(r.WorkingMemory)), "/working-memory")).refused(http.StatusConflict, "TaskConflict")
}
