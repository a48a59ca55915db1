package tests

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/app"
	eventtype "github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/memory/kv/kvtest"
	"github.com/heardlog/heardlog/webhook"
)

// kvModel writes a memory model whose keys and values are kept by a provider.
func kvModel(t *testing.T, provider, connection, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.yaml")
	text := "apiVersion: ossa/v0.3.2\nkind: MemoryModel\nlong_term: {enabled: false}\nshort_term:\n  enabled: true\n  provider: " + provider + "\n  connection: " + connection + "\n" + more
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestKeysInRedis: a server whose model names a Redis server keeps keys and working memories there,
// answers 503 while it is away, and loses nothing.
//
// Rules: 004-18, 004-23
func TestKeysInRedis(t *testing.T) {
	t.Parallel()
	redis := kvtest.StartRedis(t)
	s := start(t, "HEARDLOG_MEMORY_MODEL="+kvModel(t, "redis", `{endpoint: "redis://`+redis.Addr+`", timeout_seconds: 5, retry_policy: {max_attempts: 5, backoff: constant, initial_delay_ms: 10}}`, ""))
	s.do(http.MethodPut, kvPath("n", "k"), `{"value":{ "x": 1 }}`).ok(nil)
	s.post(kvPath("n", "sum", "increment"), `{"delta":2.5}`).ok(nil)
	id := s.joinWorking("ann", "")
	if e := s.putWorking(id, "w", `{"value":1}`); e.life() != time.Hour {
		t.Errorf("%+v", e)
	}
	s.do(http.MethodPut, kvPath("agent:"+id, "w"), `{"value":1,"ttl_seconds":null}`).refused(http.StatusBadRequest, "InvalidFieldValue", "ttl_seconds")
	redis.Kill()
	s.get(kvPath("n", "k")).refused(http.StatusServiceUnavailable, "ServiceUnavailable")
	redis.Start(t)
	for s.get(kvPath("n", "k")).status == http.StatusServiceUnavailable {
	}
	s.value(kvPath("n", "k"), `{ "x": 1 }`)
	s.value(kvPath("n", "sum"), `2.5`)
	s.value(working(id, "w"), `1`)
	s.hold(agent(id, ""), "case 4711")
	for _, path := range []string{working(id, "w"), kvPath("agent:" + id)} {
		s.do(http.MethodDelete, path, nil).refused(http.StatusConflict, "Conflict", "case 4711")
	}
	s.value(working(id, "w"), `1`)
	s.deleted204(agent(id, "/hold"))
	s.post(agent(id, "/leave"), nil).ok(nil)
	s.do(http.MethodPut, working(id, "w"), `{"value":1}`).refused(http.StatusGone, "TaskNotFound")
	s.deleted204(agent(id, ""))
	id2 := s.joinWorking("bob", "")
	s.get(working(id2, "w")).refused(http.StatusNotFound, "TaskNotFound")
	page := string(s.get("/metrics").body)
	for _, event := range []string{"init", "error", "connection_lost", "connection_restored"} {
		if !strings.Contains(page, `heardlog_kv_provider_events_total{event="`+event+`"}`) {
			t.Errorf("no event %s is counted", event)
		}
	}
	s.stop()
	var hooks []string
	for line := range strings.Lines(s.log.String()) {
		var logged struct{ Event string }
		if json.Unmarshal([]byte(line), &logged) == nil && strings.HasPrefix(logged.Event, "on_") {
			hooks = append(hooks, logged.Event)
		}
	}
	// A connection of the pool may fail one call more after the server is back.
	order := regexp.MustCompile(`^on_init( on_error on_connection_lost( on_error)* on_connection_restored)+ on_shutdown$`)
	if got := strings.Join(hooks, " "); !order.MatchString(got) {
		t.Errorf("the hooks came as %s", got)
	}
}

// TestProviderHooks: what happens to a provider is sent to the endpoints of the operator's project
// that ask for it, and to no others, also what happens as the server stops. It holds no secret.
func TestProviderHooks(t *testing.T) {
	t.Parallel()
	redis := kvtest.StartRedis(t, "--requirepass", os.Getenv("REDIS_PASSWORD"))
	model := kvModel(t, "redis", `{endpoint: "redis://`+redis.Addr+`", credentials_ref: REDIS_PASSWORD, timeout_seconds: 5, retry_policy: {max_attempts: 1}}`, "")
	s := start(t, twoTenants, "HEARDLOG_CREDENTIAL_REFS=REDIS_PASSWORD", "HEARDLOG_MEMORY_MODEL="+model)
	alice, bob := []string{"Authorization", basic("alice", "wonder")}, []string{"Authorization", basic("bob", "builder")}
	h, other := newHook(t), newHook(t)
	s.hookTo(h, map[string]any{"events": []string{"kv.provider"}}, alice...)
	s.hookTo(other, map[string]any{"events": []string{"*"}}, bob...)
	s = s.again()
	s.do(http.MethodPut, kvPath("n", "k"), `{"value":1}`, alice...).ok(nil)
	redis.Kill()
	for range 3 { // one webhook a minute for them
		s.get(kvPath("n", "k"), alice...).refused(http.StatusServiceUnavailable, "ServiceUnavailable")
	}
	redis.Start(t)
	for s.get(kvPath("n", "k"), alice...).status == http.StatusServiceUnavailable {
	}
	got := map[string]int{}
	for len(got) < 5 {
		c := h.next(t)
		var p webhook.KVProvider
		if err := json.Unmarshal(c.Payload, &p); err != nil {
			t.Fatal(err)
		}
		if c.EventType != eventtype.KVProvider || p.Provider != "redis" || p.AtMS != c.NotifyMS || (p.Error == "") == (p.Hook == "on_error" || p.Hook == "on_connection_lost") {
			t.Errorf("%s", c.body)
		}
		if strings.Contains(string(c.body), os.Getenv("REDIS_PASSWORD")) {
			t.Errorf("the password is in %s", c.body)
		}
		got[p.Hook]++
	}
	// The first on_init may be stored after the endpoint. A connection of the pool may fail one
	// call more after the server is back: then it was lost twice.
	if got["on_error"] != 1 || got["on_connection_lost"] == 0 || got["on_connection_restored"] == 0 || got["on_shutdown"] != 1 {
		t.Errorf("%v", got)
	}
	s.stop()
	other.quiet(t)
}

// TestProviderHooksAtStop: what happened to a provider just before the server stopped is sent after
// the next start.
func TestProviderHooksAtStop(t *testing.T) {
	t.Parallel()
	const rounds = 8
	redis := kvtest.StartRedis(t)
	s := start(t, "HEARDLOG_MEMORY_MODEL="+kvModel(t, "redis", `{endpoint: "redis://`+redis.Addr+`", timeout_seconds: 5, retry_policy: {max_attempts: 1}}`, ""))
	h := newHook(t)
	s.hookTo(h, map[string]any{"events": []string{"kv.provider"}})
	for range rounds {
		redis.Kill()
		s.get(kvPath("n", "k")).refused(http.StatusServiceUnavailable, "ServiceUnavailable")
		s.stop()
		redis.Start(t)
		s = start(t, s.env...)
	}
	got := map[string]int{}
	for got["on_error"] < rounds || got["on_connection_lost"] < rounds || got["on_shutdown"] < rounds {
		var p webhook.KVProvider
		if err := json.Unmarshal(h.next(t).Payload, &p); err != nil {
			t.Fatal(err)
		}
		got[p.Hook]++
	}
}

// TestProviderAwayAtStart: a server whose Redis is away starts, serves all but keys and values, and
// takes Redis when it comes.
func TestProviderAwayAtStart(t *testing.T) {
	t.Parallel()
	redis := kvtest.StartRedis(t)
	redis.Kill()
	s := start(t, "HEARDLOG_MEMORY_MODEL="+kvModel(t, "redis", `{endpoint: "redis://`+redis.Addr+`", retry_policy: {initial_delay_ms: 10, backoff: constant}}`, ""))
	s.get(kvPath("n", "k")).refused(http.StatusServiceUnavailable, "ServiceUnavailable")
	s.join("room", nil)
	redis.Start(t)
	for s.do("PUT", kvPath("n", "k"), `{"value":1}`).status == http.StatusServiceUnavailable {
	}
	s.value(kvPath("n", "k"), "1")
}

// TestKeysInMemcached: what memcached cannot do is refused by name.
func TestKeysInMemcached(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_MEMORY_MODEL="+kvModel(t, "memcached", `{endpoint: "`+kvtest.StartMemcached(t).Addr+`", ssl: {enabled: false}}`, ""))
	s.post(kvPath("n", "sum", "increment"), `{"delta":2}`).ok(nil)
	for _, c := range []struct{ method, path, body string }{
		{"GET", v1 + "/kv", ""}, {"GET", kvPath("n"), ""}, {"POST", kvPath("n", "search"), `{"query":"x"}`}, {"POST", kvPath("n", "gc"), `{}`},
		{"PUT", kvPath("n", "k"), `{"value":1,"pinned":true}`}, {"POST", kvPath("n", "sum", "increment"), `{}`},
	} {
		s.do(c.method, c.path, c.body, "Idempotency-Key", "once").refused(http.StatusNotImplemented, "NotImplemented", "provider")
	}
	s.value(kvPath("n", "sum"), "2")
}

// TestProviderRefused: a document that cannot run stops the start, with the field at fault.
func TestProviderRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ provider, connection, more, want string }{
		"a secret that is not listed": {"redis", `{endpoint: "127.0.0.1:1", credentials_ref: PATH}`, "", `"PATH" is not listed in HEARDLOG_CREDENTIAL_REFS`},
		"no address":                  {"redis", `{endpoint: "redis://%"}`, "", "connection.endpoint"},
		"a list in memcached":         {"memcached", `{endpoint: "127.0.0.1:1"}`, "provider_interface: {required_operations: [{name: list, description: List keys}]}\n", "memcached has no list"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := config.Load(func(key string) string {
				return map[string]string{"HEARDLOG_ADDR": "127.0.0.1:0", "HEARDLOG_STORE": "memory:", "HEARDLOG_MEMORY_MODEL": kvModel(t, tt.provider, tt.connection, tt.more)}[key]
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := app.New(t.Context(), c, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v; want %q", err, tt.want)
			}
		})
	}
}
