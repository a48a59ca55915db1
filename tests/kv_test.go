package tests

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func kvPath(namespace string, rest ...string) string {
	return v1 + "/kv/" + url.PathEscape(namespace) + strings.Join(append([]string{""}, rest...), "/")
}

// deleted204 wants a DELETE to succeed.
func (s *server) deleted204(path string) {
	s.t.Helper()
	if got := s.do(http.MethodDelete, path, nil); got.status != http.StatusNoContent {
		s.t.Errorf("DELETE %s: %d %s", path, got.status, got.body)
	}
}

// value wants a value under a key, and returns its lifetime.
func (s *server) value(path, want string) time.Duration {
	s.t.Helper()
	var e workingEntry
	got := s.get(path).ok(&e)
	if !strings.HasSuffix(string(got.body), `,"value":`+want+"}\n") {
		s.t.Errorf("%s holds %s, want %s", path, got.body, want)
	}
	return e.life()
}

// TestNamespaces: values come back byte for byte, over a restart, until they are deleted.
//
// Rules: 004-14, 004-15, 004-16
func TestNamespaces(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_SECRET_KEY=a long enough secret")
	var e workingEntry
	s.do(http.MethodPut, kvPath("a/b", "k"), `{"value":{ "x" : 1.50 }}`).ok(&e)
	if e.Key != "k" || e.Bytes != 15 || !e.ExpiresAt.IsZero() {
		t.Errorf("%+v", e)
	}
	s.do(http.MethodPut, kvPath("a/b", "user:1"), `{"value":"Ann","ttl_seconds":1000}`).ok(nil)
	s.do(http.MethodPut, kvPath("z", "k"), `{"value":null,"ttl_seconds":null}`).ok(nil)
	s = s.again()
	s.value(kvPath("a/b", "k"), `{ "x" : 1.50 }`)
	if life := s.value(kvPath("a/b", "user:1"), `"Ann"`); life != 1000*time.Second {
		t.Errorf("lives for %s", life)
	}
	s.value(kvPath("z", "k"), `null`)
	for key, status := range map[string]int{"k": http.StatusOK, "none": http.StatusNotFound} {
		if got := s.do(http.MethodHead, kvPath("z", key), nil); got.status != status {
			t.Errorf("HEAD of %s: %d", key, got.status)
		}
	}
	var names struct{ Namespaces []string }
	s.get(v1 + "/kv").ok(&names)
	if d := cmp.Diff([]string{"a/b", "z"}, names.Namespaces); d != "" {
		t.Error(d)
	}
	s.do(http.MethodPost, kvPath("a/b", "user:1", "expire"), `{"ttl_seconds":null}`).ok(nil)
	if life := s.value(kvPath("a/b", "user:1"), `"Ann"`); life > 0 {
		t.Errorf("lives for %s", life)
	}
	s.do(http.MethodPost, kvPath("a/b", "user:1", "expire"), `{"ttl_seconds":60}`).ok(&e)
	if e.life() != time.Minute {
		t.Errorf("%+v", e)
	}
	s.do(http.MethodPost, kvPath("a/b", "none", "expire"), `{"ttl_seconds":60}`).refused(http.StatusNotFound, "TaskNotFound", "none")
	s.deleted204(kvPath("a/b", "k"))
	s.deleted204(kvPath("a/b", "k"))
	s.get(kvPath("a/b", "k")).refused(http.StatusNotFound, "TaskNotFound")
	s.deleted204(kvPath("a/b"))
	s.get(v1 + "/kv").ok(&names)
	if d := cmp.Diff([]string{"z"}, names.Namespaces); d != "" {
		t.Error(d)
	}
}

// TestKeyLists: patterns, pages and searches.
//
// Rules: 004-16
func TestKeyLists(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, key := range []string{"a*", "user:1", "user:2", "user:33", "zz"} {
		s.do(http.MethodPut, kvPath("n", key), fmt.Sprintf(`{"value":{"name":"Value of %s","kind":%q}}`, key, key[:1])).ok(nil)
	}
	for pattern, want := range map[string]string{
		"": "a* user:1 user:2 user:33 zz", "*": "a* user:1 user:2 user:33 zz", "user:*": "user:1 user:2 user:33", "user:?": "user:1 user:2", "zz": "zz", "?z": "zz", `a\*`: "a*", "*3": "user:33", "b*": "", "[a-u]*[23]": "user:2 user:33", "user:[^1]*": "user:2 user:33",
	} {
		var got []string
		for cursor := ""; ; {
			var page workingList
			s.get(kvPath("n") + "?limit=2&pattern=" + url.QueryEscape(pattern) + "&cursor=" + url.QueryEscape(cursor)).ok(&page)
			got = append(got, page.names()...)
			if cursor = page.NextCursor; cursor == "" {
				break
			}
		}
		if d := cmp.Diff(want, strings.Join(got, " ")); d != "" {
			t.Errorf("pattern %q: %s", pattern, d)
		}
	}
	s.get(kvPath("n")+"?pattern=%5Ba").refused(http.StatusBadRequest, "InvalidFieldValue", "pattern")
	for body, want := range map[string]string{
		`{"query":"VALUE user:1"}`: "user:1 a* user:2 user:33 zz", `{"query":"zz"}`: "zz", `{"query":"nothing"}`: "", `{"filters":{"kind":"u"},"top_k":2}`: "user:1 user:2", `{"query":"value","filters":{"kind":"a"}}`: "a*",
	} {
		var out struct{ Results []struct{ Key string } }
		s.post(kvPath("n", "search"), body).ok(&out)
		var got []string
		for _, r := range out.Results {
			got = append(got, r.Key)
		}
		if d := cmp.Diff(want, strings.Join(got, " ")); d != "" {
			t.Errorf("%s: %s", body, d)
		}
	}
}

// TestKeyBatches: of a batch all or none is stored.
//
// Rules: 004-15
func TestKeyBatches(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_MAX_WORKING_MB=1")
	s.post(kvPath("n", "batch", "set"), `{"entries":[{"key":"a","value":[1]},{"key":"b","value":"x","ttl_seconds":60}]}`).ok(nil)
	var out struct{ Entries []workingEntry }
	s.post(kvPath("n", "batch", "get"), `{"keys":["b","none","a"]}`).ok(&out)
	if len(out.Entries) != 2 || out.Entries[0].Key != "b" || out.Entries[0].life() != time.Minute || out.Entries[1].Key != "a" {
		t.Errorf("%+v", out)
	}
	half := `"` + strings.Repeat("x", 600_000) + `"`
	s.do(http.MethodPut, kvPath("n", "half"), `{"value":`+half+`}`).ok(nil)
	s.post(kvPath("n", "batch", "set"), `{"entries":[{"key":"small","value":1},{"key":"more","value":`+half+`}]}`).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "1048576")
	s.get(kvPath("n", "small")).refused(http.StatusNotFound, "TaskNotFound")
	s.do(http.MethodPut, kvPath("n", "more"), `{"value":`+half+`}`).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "1048576")
	for body, words := range map[string]string{
		`{"entries":[]}`: "entries", `{"entries":[{"key":"a","value":1},{"key":"a","value":2}]}`: "twice", `{"entries":[{"key":"","value":1}]}`: "key", `{"entries":[{"key":"a","value":1},{"key":"","value":1}]}`: "entries[1].key", `{"entries":[{"key":"a","value":1,"ttl_seconds":0}]}`: "ttl_seconds",
	} {
		s.post(kvPath("n", "batch", "set"), body).refused(http.StatusBadRequest, "InvalidFieldValue", words)
	}
	s.post(kvPath("n", "batch", "set"), `{"entries":[{"key":"a","value":1},{"key":"b"}]}`).refused(http.StatusBadRequest, "MissingRequiredField", "entries[1].value")
	s.post(kvPath("n", "batch", "get"), `{"keys":["a",""]}`).refused(http.StatusBadRequest, "InvalidFieldValue", "keys[1]")
	s.post(kvPath("n", "batch", "get"), `{"keys":[]}`).refused(http.StatusBadRequest, "InvalidFieldValue", "keys")
}

// TestIncrement: sums are exact, and none of many calls is lost.
//
// Rules: 004-15, 004-16
func TestIncrement(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i, c := range []struct{ was, delta, want string }{
		{"", `{}`, "1"}, {"41", `{}`, "42"}, {"", `{"delta":-5}`, "-5"}, {"9007199254740993", `{"delta":2}`, "9007199254740995"}, {"9223372036854775806", `{"delta":1}`, "9223372036854775807"},
		{"0.1", `{"delta":0.2}`, "0.3"}, {"1", `{"delta":0.50}`, "1.50"}, {"-0.25", `{"delta":0.25}`, "0.00"}, {" 7 ", `{}`, "8"},
	} {
		path := kvPath("n", fmt.Sprint(i))
		if c.was != "" {
			s.do(http.MethodPut, path, `{"value":`+c.was+`,"ttl_seconds":60}`).ok(nil)
		}
		s.post(path+"/increment", c.delta).ok(nil)
		if life := s.value(path, c.want); c.was != "" && life > time.Minute {
			t.Errorf("%+v lives for %s", c, life)
		}
	}
	s.post(kvPath("n", "4", "increment"), `{}`).refused(http.StatusBadRequest, "InvalidFieldValue", "64 bits")
	s.do(http.MethodPut, kvPath("n", "text"), `{"value":"1"}`).ok(nil)
	s.post(kvPath("n", "text", "increment"), `{}`).refused(http.StatusConflict, "TaskConflict", "not a number")
	for _, delta := range []string{`"1"`, `1e3`, `[]`, "1" + strings.Repeat("0", 40)} {
		s.post(kvPath("n", "x", "increment"), `{"delta":`+delta+`}`).refused(http.StatusBadRequest, "InvalidFieldValue", "delta")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				s.post(kvPath("n", "sum", "increment"), `{"delta":3}`).ok(nil)
			}
		})
	}
	wg.Wait()
	s.value(kvPath("n", "sum"), "600")
}

// TestIncrementOnce: increments of a key with the same Idempotency-Key add once, over a restart,
// also in a working memory.
func TestIncrementOnce(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_SECRET_KEY=a long enough secret")
	id := s.joinWorking("ann", "")
	places := []string{kvPath("n", "sum"), working(id, "sum")}
	add := func(path, body, key string) answer {
		return s.do(http.MethodPost, strings.Replace(path, agent(id, "/working-memory"), kvPath("agent:"+id), 1)+"/increment", body, "Idempotency-Key", key)
	}
	first := map[string]string{}
	for _, path := range places {
		first[path] = string(add(path, `{"delta":0.5,"ttl_seconds":600}`, "call-1").ok(nil).body)
		add(path, `{}`, "call-2").ok(nil)
		add(strings.Replace(path, "sum", "other", 1), `{}`, "call-1").ok(nil)
		add(path, `{}`, "a b").refused(http.StatusBadRequest, "InvalidFieldValue", "Idempotency-Key")
	}
	s = s.again()
	for _, path := range places {
		if got := add(path, `{"delta":0.5,"ttl_seconds":600}`, "call-1").ok(nil); string(got.body) != first[path] {
			t.Errorf("a repeat: %s, the first time: %s", got.body, first[path])
		}
		add(path, `{"delta":0.6,"ttl_seconds":600}`, "call-1").refused(http.StatusConflict, "TaskConflict", "Idempotency-Key")
		s.value(path, "1.5")
	}
	var names struct{ Namespaces []string }
	if s.get(v1 + "/kv").ok(&names); len(names.Namespaces) != 1 {
		t.Errorf("%q", names.Namespaces)
	}
}

// TestKeysOfAgents: the working memory of an agent is the namespace agent:ID, with the same rules.
//
// Rules: 004-6
func TestKeysOfAgents(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.joinWorking("ann", `{"ttl_seconds":90}`)
	ns := "agent:" + id
	s.do(http.MethodPut, kvPath(ns, "k"), `{"value":1}`).ok(nil)
	s.putWorking(id, "l", `{"value":2}`)
	s.post(kvPath(ns, "k", "increment"), `{}`).ok(nil)
	if life := s.value(working(id, "k"), "2"); life > 90*time.Second || life < 80*time.Second {
		t.Errorf("lives for %s", life)
	}
	s.value(kvPath(ns, "l"), "2")
	var names struct{ Namespaces []string }
	if s.get(v1 + "/kv").ok(&names); len(names.Namespaces) > 0 {
		t.Errorf("%v", names)
	}
	off := "agent:" + s.joinWorking("off", `{"enabled":false}`)
	for _, c := range []struct{ method, path, body string }{
		{"GET", kvPath(off), ""}, {"DELETE", kvPath(off), ""}, {"PUT", kvPath(off, "k"), `{"value":1}`}, {"GET", kvPath(off, "k"), ""}, {"DELETE", kvPath(off, "k"), ""}, {"POST", kvPath(off, "k", "expire"), `{"ttl_seconds":1}`},
		{"POST", kvPath(off, "k", "increment"), `{}`}, {"POST", kvPath(off, "batch", "get"), `{"keys":["k"]}`}, {"POST", kvPath(off, "batch", "set"), `{"entries":[{"key":"k","value":1}]}`}, {"POST", kvPath(off, "search"), `{}`},
		{"POST", kvPath(off, "gc"), `{}`},
	} {
		s.do(c.method, c.path, c.body).refused(http.StatusConflict, "TaskConflict", "switched off")
		s.do(c.method, strings.Replace(c.path, url.PathEscape(off), "agent:nobody", 1), c.body).absent()
		if c.method != "DELETE" || c.path != kvPath(off) {
			s.do(c.method, strings.Replace(c.path, url.PathEscape(off), "%20", 1), c.body).refused(http.StatusBadRequest, "InvalidFieldValue", "namespace")
		}
	}
	if got := s.do(http.MethodHead, kvPath(off, "k"), nil); got.status != http.StatusConflict {
		t.Errorf("%+v", got)
	}
	s.do("DELETE", v1+"/kv/%20", "").refused(http.StatusBadRequest, "InvalidFieldValue", "namespace")
	s.get(kvPath(strings.Repeat("n", 128))).ok(nil)
	s.get(kvPath(strings.Repeat("n", 129))).refused(http.StatusBadRequest, "InvalidFieldValue", "namespace")
	s.post(agent(id, "/leave"), nil).ok(nil)
	s.do(http.MethodPut, kvPath(ns, "k"), `{"value":1}`).refused(http.StatusGone, "TaskNotFound")
	s.post(kvPath(ns, "k", "increment"), `{}`).refused(http.StatusGone, "TaskNotFound")
	s.post(kvPath(ns, "k", "expire"), `{"ttl_seconds":5}`).refused(http.StatusGone, "TaskNotFound")
	s.post(kvPath(ns, "batch", "set"), `{"entries":[{"key":"k","value":1}]}`).refused(http.StatusGone, "TaskNotFound")
	s.value(kvPath(ns, "k"), "2")
	s.deleted204(agent(id, ""))
	s.get(kvPath(ns, "k")).refused(http.StatusNotFound, "TaskNotFound")
}

// TestKeysOfProjects: a project sees and changes its own namespaces alone, its quota counts them,
// and they are erased with it.
func TestKeysOfProjects(t *testing.T) {
	t.Parallel()
	s := start(t, twoTenants, "HEARDLOG_MAX_PROJECT_MB=1")
	alice, bob := []string{"Authorization", basic("alice", "wonder")}, []string{"Authorization", basic("bob", "builder")}
	s.do(http.MethodPut, kvPath("n", "k"), `{"value":"alice's"}`, alice...).ok(nil)
	s.get(kvPath("n", "k"), bob...).refused(http.StatusNotFound, "TaskNotFound")
	s.do(http.MethodDelete, kvPath("n"), nil, bob...)
	s.do(http.MethodPut, kvPath("n", "k"), `{"value":"bob's"}`, bob...).ok(nil)
	big := `"` + strings.Repeat("x", 600_000) + `"`
	s.do(http.MethodPut, kvPath("m", "1"), `{"value":`+big+`}`, alice...).ok(nil)
	s.do(http.MethodPut, kvPath("m", "1"), `{"value":`+big+`}`, bob...).ok(nil)
	for path, body := range map[string]string{kvPath("m", "2"): `{"value":` + big + `}`, kvPath("m", "batch", "set"): `{"entries":[{"key":"2","value":` + big + `}]}`} {
		method := http.MethodPut
		if strings.HasSuffix(path, "set") {
			method = http.MethodPost
		}
		s.do(method, path, body, alice...).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "HEARDLOG_MAX_PROJECT_MB")
	}
}

// TestFullNamespaces: a value that outgrows its namespace is not stored, and a search does not read
// more keys than are allowed.
func TestFullNamespaces(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_MAX_WORKING_MB=1")
	text := `"` + strings.Repeat("x", 1<<20-50) + `"`
	s.do(http.MethodPut, kvPath("n", "k"), `{"value":`+text+`}`).ok(nil)
	s.post(kvPath("n", strings.Repeat("k", 200), "increment"), `{}`).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "1048576")
	for i := range 101 {
		entries := make([]string, 100)
		for j := range entries {
			entries[j] = fmt.Sprintf(`{"key":"%d","value":1}`, 100*i+j)
		}
		s.post(kvPath("many", "batch", "set"), `{"entries":[`+strings.Join(entries, ",")+`]}`).ok(nil)
	}
	s.post(kvPath("many", "search"), `{}`).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "10000")
}

// TestEvictKeys: keys go in the order of the strategy, down to the target, and pinned ones stay.
func TestEvictKeys(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_MAX_WORKING_MB=1")
	put := func(key string, size int, more string) {
		t.Helper()
		s.do(http.MethodPut, kvPath("n", key), fmt.Sprintf(`{"value":%q%s}`, strings.Repeat("x", size), more)).ok(nil)
	}
	put("pinned", 300_000, `,"pinned":true`)
	put("large", 300_000, "")
	put("small", 100_000, "")
	put("ending", 200_000, `,"ttl_seconds":1000`)
	var page struct{ Keys []struct{ Pinned bool } }
	if s.get(kvPath("n")).ok(&page); page.Keys[2].Pinned != true || page.Keys[0].Pinned {
		t.Errorf("%+v", page)
	}
	var done struct {
		Strategy   string
		DryRun     bool `json:"dry_run"`
		Evicted    []string
		KeysAfter  int   `json:"keys_after"`
		BytesAfter int64 `json:"bytes_after"`
	}
	for strategy, want := range map[string]string{"ttl": "[ending large small]", "size_based": "[large ending small]", "lru": "[large small ending]", "lfu": "[large small ending]"} {
		s.post(kvPath("n", "gc"), `{"strategy":"`+strategy+`","target_memory_percent":10,"dry_run":true}`).ok(&done)
		if got := fmt.Sprint(done.Evicted); got != want || done.Strategy != strategy || !done.DryRun || done.KeysAfter != 1 {
			t.Errorf("%+v; want %s", done, want)
		}
	}
	s.post(kvPath("n", "gc"), `{"max_memory_percent":90}`).ok(&done)
	if len(done.Evicted) != 0 || done.Strategy != "hybrid" {
		t.Errorf("%+v", done)
	}
	s.post(kvPath("n", "gc"), `{"strategy":"size_based"}`).ok(&done)
	if fmt.Sprint(done.Evicted) != "[large]" || done.BytesAfter < 600_000 {
		t.Errorf("%+v", done)
	}
	s.get(kvPath("n", "large")).refused(http.StatusNotFound, "NotFound")
	s.get(kvPath("n", "pinned")).ok(nil)
	for _, bad := range []string{`{"strategy":"fifo"}`, `{"max_memory_percent":0}`, `{"target_memory_percent":90}`, `{"dryrun":true}`} {
		s.post(kvPath("n", "gc"), bad).refused(http.StatusBadRequest, "InvalidFieldValue")
	}
}
