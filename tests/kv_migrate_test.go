package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/app"
	"github.com/heardlog/heardlog/memory/kv/kvtest"
)

// migrates returns a memory model that moves keys and values between providers, one of which is at
// the endpoint.
func migrates(t *testing.T, source, target, endpoint string) string {
	t.Helper()
	return "HEARDLOG_MEMORY_MODEL=" + kvModel(t, target, `{endpoint: "`+endpoint+`", ssl: {enabled: false}}`,
		"lifecycle: {migration: {enabled: true, source_provider: "+source+", target_provider: "+target+", batch_size: 100}}\n")
}

// TestMigrateKeys: keys and values move to Redis and back, with their times, once, before the
// server accepts requests. The source is empty then.
func TestMigrateKeys(t *testing.T) {
	t.Parallel()
	redis := kvtest.StartRedis(t)
	endpoint := "redis://" + redis.Addr
	s := start(t, "HEARDLOG_SECRET_KEY=a long enough secret")
	for i := range 250 {
		s.do(http.MethodPut, kvPath("n", fmt.Sprintf("k%03d", i)), fmt.Sprintf(`{"value":{ "n": %d }}`, i)).ok(nil)
	}
	s.do(http.MethodPut, kvPath("a/é", "k"), `{"value":"x","ttl_seconds":6000}`).ok(nil)
	s.do(http.MethodPut, v1+"/conversations/c", `[]`)
	id, ended := s.joinWorking("ann", ""), s.joinWorking("bob", "")
	s.do(http.MethodPut, kvPath("agent:"+id, "w"), `{"value":1,"ttl_seconds":null}`).ok(nil)
	s.putWorking(ended, "w", `{"value":2}`)
	s.post(agent(ended, "/leave"), nil).ok(nil)
	var list, now workingList
	s.get(kvPath("n") + "?limit=1000").ok(&list)
	same := func() {
		t.Helper()
		if s.get(kvPath("n") + "?limit=1000").ok(&now); len(now.Keys) != 250 || fmt.Sprint(now) != fmt.Sprint(list) {
			t.Errorf("%d keys, and not as they were", len(now.Keys))
		}
		s.value(kvPath("n", "k249"), `{ "n": 249 }`)
		if life := s.value(kvPath("a/é", "k"), `"x"`); life != 6000*time.Second {
			t.Errorf("lives for %s", life)
		}
	}
	s = s.again(migrates(t, "local_cache", "redis", endpoint))
	same()
	if life := s.value(working(id, "w"), `1`); life > 25*time.Hour {
		t.Errorf("lives for %s", life)
	}
	s.value(working(ended, "w"), `2`)
	s.do(http.MethodPut, kvPath("n", "k000"), `{"value":"new"}`).ok(nil)
	s = s.again() // the migration is done
	s.value(kvPath("n", "k000"), `"new"`)
	redis.Kill()
	s.get(kvPath("n", "k000")).refused(http.StatusServiceUnavailable, "ServiceUnavailable")
	redis.Start(t)

	s = s.again("HEARDLOG_MEMORY_MODEL=")
	var names struct{ Namespaces []string }
	if s.get(v1 + "/kv").ok(&names); len(names.Namespaces) > 0 {
		t.Errorf("the source holds %q", names.Namespaces)
	}
	s.get(working(id, "w")).refused(http.StatusNotFound, "TaskNotFound")
	s.do(http.MethodPut, kvPath("n", "k"), `{"value":1}`).ok(nil)
	s.stop()
	if err := s.fails(migrates(t, "redis", "in_memory", endpoint)); !strings.Contains(err, "lifecycle.migration: the target holds keys") {
		t.Errorf("%s", err)
	}
	s = s.again()
	s.deleted204(kvPath("n"))
	s = s.again(migrates(t, "redis", "in_memory", endpoint))
	s.value(kvPath("n", "k000"), `"new"`)
	s.do(http.MethodPut, kvPath("n", "k000"), `{"value":{ "n": 0 }}`).ok(nil)
	s.get(kvPath("n") + "?limit=1000").ok(&list)
	same()
	s.value(working(id, "w"), `1`)
	s.get(working(ended, "w")).refused(http.StatusNotFound, "TaskNotFound")
}

// TestMigrateKeysHalf: a migration fails in the middle, since memcached takes no value above 1 MiB.
// A server that would use the target does not start. One that uses the source gives the migration
// up.
func TestMigrateKeysHalf(t *testing.T) {
	t.Parallel()
	memcached := kvtest.StartMemcached(t)
	s := start(t, "HEARDLOG_MAX_BODY=3000000")
	for i := range 150 {
		s.do(http.MethodPut, kvPath("n", fmt.Sprintf("k%03d", i)), `{"value":1}`).ok(nil)
	}
	s.do(http.MethodPut, kvPath("n", "large"), `{"value":"`+strings.Repeat("x", 2<<20)+`"}`).ok(nil)
	s.stop()
	there := "HEARDLOG_MEMORY_MODEL=" + kvModel(t, "memcached", `{endpoint: "`+memcached.Addr+`", ssl: {enabled: false}}`, "")
	if err := s.fails(migrates(t, "in_memory", "memcached", memcached.Addr)); !strings.Contains(err, "lifecycle.migration") {
		t.Errorf("%s", err)
	}
	for range 2 {
		if err := s.fails(there); !strings.Contains(err, "lifecycle.migration: the migration from in_memory to memcached at "+memcached.Addr+" has not ended") {
			t.Errorf("%s", err)
		}
	}
	s = s.again()
	s.value(kvPath("n", "k149"), `1`)
	s.stop()
	s.again(there).get(kvPath("n", "large")).refused(http.StatusNotFound, "TaskNotFound")
}

// fails starts another server on the store of s, which is stopped, and returns why it does not
// start.
func (s *server) fails(env ...string) string {
	s.t.Helper()
	settings := map[string]string{}
	for _, kv := range append(s.env, env...) {
		name, value, _ := strings.Cut(kv, "=")
		settings[name] = value
	}
	c, err := config.Load(func(name string) string { return settings[name] })
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err = app.New(s.t.Context(), c, zerolog.Nop()); err == nil {
		s.t.Fatal("the server starts")
	}
	return err.Error()
}
