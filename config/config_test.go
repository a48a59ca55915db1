package config_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/memory/window"
)

func load(env map[string]string) (config.Config, error) {
	return config.Load(func(name string) string { return env[name] })
}

// certificate has the form of an app certificate.
const certificate = "00112233445566778899aabbccddeeff"

func TestDefaults(t *testing.T) {
	t.Parallel()
	c, err := load(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{
		Addr: "127.0.0.1:8080", Loopback: true, StorePath: "data/heardlog.db", OnStoreFailure: "refuse", DefaultProject: "default", UI: "on",
		OIDC: config.OIDC{Claim: "groups", Scopes: config.Names{"openid", "profile", "email"}},
		LLM: config.LLM{
			Connect: 5 * time.Second, FirstToken: 30 * time.Second, Idle: 30 * time.Second, Total: 10 * time.Minute, OnDisconnect: "cancel", Duplicates: "supersede", OnQuestion: "cut",
			Retry: 1, RetryBudget: time.Second, Members: config.Names{"cache_control", "partial", "prefix"}, Thoughts: "calls", Shape: "as_is", Cache: "off",
		},
		WebhookParkAfter: 3, WebhookDisableAfter: 5 * 24 * time.Hour, WebhookRetention: 30 * 24 * time.Hour,
		OverMaxAgents: "refuse", Summaries: 8,
		IdleTimeout: 30 * time.Minute, Retention: 90 * 24 * time.Hour, MaxBody: 1 << 20, ReadMemory: 256 << 20, MessageLimit: 100_000, RecallMB: 200, FactsHalfLife: 2 * 365 * 24 * time.Hour, VectorsMB: 1024, ItemLimit: 1_000_000, Policy: window.Policy{Preset: "recent"}, ConversationLimit: 100_000, WorkingMB: 64, MessageQuota: 100_000_000, MBQuota: 100_000, TailLimit: 10_000, ProjectTails: 5000, SocketLimit: 5000, ProjectSockets: 2000, ShutdownTimeout: 20 * time.Second,
		LogLevel: "info", LogFormat: "auto",
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, value, want string }{
		{"HEARDLOG_ADDR", "8080", "must be host:port"},
		{"HEARDLOG_ADDR", "127.0.0.1:99999", "0 to 65535"},
		{"HEARDLOG_STORE", "mysql://u:hunter2@h/db", `not "mysql"`},
		{"HEARDLOG_STORE", "postgres://u:hunter2@h", "postgres://USER:PASSWORD@HOST:PORT/DATABASE"},
		{"HEARDLOG_STORE", "redis://u:hunter2@h/0", "agents can no longer be stored in Redis; use sqlite:PATH, or postgres://"},
		{"HEARDLOG_STORE", "rediss://u:hunter2@h:6380/1?ttl=1h", "agents can no longer be stored in Redis"},
		{"HEARDLOG_STORE", "postgres://u:hunter2@%zz/db", "postgres://USER:PASSWORD@HOST:PORT/DATABASE"},
		{"HEARDLOG_STORE", "sqlite:", "sqlite:PATH"},
		{"HEARDLOG_STORE", "memory:x", "sqlite:PATH"},
		{"HEARDLOG_CORS_ORIGINS", "https://a.example,*", "either * or a list"},
		{"HEARDLOG_CORS_ORIGINS", "a.example", "must be origins such as"},
		{"HEARDLOG_CORS_ORIGINS", "https://a.example/", "must be origins such as"},
		{"HEARDLOG_CORS_ORIGINS", "https://*.example", "must be origins such as"},
		{"HEARDLOG_CORS_ORIGINS", "null", "must be origins such as"},
		{"HEARDLOG_CORS_ORIGINS", "https://user@a.example", "must be origins such as"},
		{"HEARDLOG_CREDENTIALS", "p=id", "entry 1 must be project=id:secret"},
		{"HEARDLOG_CREDENTIALS", "p=a:hunter2,q=a:x", "entry 2: its id is used"},
		{"HEARDLOG_CREDENTIALS", "p=a:hunter2,q=b:hunter2", "entry 2: its secret is used by another project"},
		{"HEARDLOG_CREDENTIALS", "/nowhere/at/all", "neither project=id:secret nor the path"},
		{"HEARDLOG_AGORA_CERTIFICATES", "a/b=hunter2", "entry 1 must be appid=certificate"},
		{"HEARDLOG_AGORA_CERTIFICATES", "app=hunter2", "entry 1: the certificate must have 32 hexadecimal digits"},
		{"HEARDLOG_AGORA_CERTIFICATES", "app=" + certificate + ",app=" + certificate + ",app=" + certificate, "entry 3: its app has 2 certificates"},
		{"HEARDLOG_AGORA_CERTIFICATES", "hunter2", "neither appid=certificate nor the path"},
		{"HEARDLOG_AGORA_CERTIFICATES", "#a=b", "has no entry"},
		{"HEARDLOG_DEFAULT_PROJECT", "a/b", "must have 1 to 128 letters"},
		{"HEARDLOG_POLICY", "short", "recent, pairs, rounds, tokens, limits, full"},
		{"HEARDLOG_POLICY", "short", `HEARDLOG_POLICY: policy: must be one of`},
		{"HEARDLOG_POLICY", `{"max_tokens":-1}`, "max_tokens"},
		{"HEARDLOG_PROFILES", `{"name":"a"}`, "array of profiles: it, or an entry of it, has the wrong type"},
		{"HEARDLOG_PROFILES", `[{"name":1}]`, "name has the wrong type"},
		{"HEARDLOG_PROFILES", `[{"nam":"a"}]`, `unknown field "nam"; known are project, name, header and path`},
		{"HEARDLOG_POLICY", `{"max_tokens":`, "JSON object"},
		{"HEARDLOG_REDACT", "card,ssn", "card, iban, phone, email"},
		{"HEARDLOG_REDACT", `[{"project":"a/b"}]`, "project name"},
		{"HEARDLOG_REDACT", `[{"own":{"a":"("}}]`, "regular expression"},
		{"HEARDLOG_REDACT", `[{"kinds":[]}]`, "unknown field"},
		{"HEARDLOG_REDACT", `[{"detector":{}}]`, "entry 0: detector.url is required"},
		{"HEARDLOG_REDACT", `[{"detector":{"url":"ftp://x"}}]`, "detector.url must be an http or https URL"},
		{"HEARDLOG_REDACT", `[{"detector":{"url":"http://x","form":"grpc"}}]`, "presidio or plain"},
		{"HEARDLOG_REDACT", `[{"detector":{"url":"http://x","on_failure":"ajar"}}]`, "closed or open"},
		{"HEARDLOG_REDACT", `[{"detector":{"url":"http://x","timeout_ms":60000}}]`, "from 10 to 10000"},
		{"HEARDLOG_REDACT", `[{"detector":{"url":"http://x","min_score":2}}]`, "from 0 to 1"},
		{"HEARDLOG_REDACT", `[{"detector":{"url":"http://x","entities":["a b"]}}]`, "not \"a b\""},
		{"HEARDLOG_LLM_URL", "ftp://h", "must be an http or https URL"},
		{"HEARDLOG_LLM_URL", "http://u:hunter2@h/", "user name or password"},
		{"HEARDLOG_LLM_API_KEY", "hunter2\n", "control character"},
		{"HEARDLOG_LLM_FIRST_TOKEN_TIMEOUT", "soon", "must be a duration"},
		{"HEARDLOG_LLM_ON_DISCONNECT", "wait", "must be one of cancel, drain"},
		{"HEARDLOG_LLM_FALLBACKS", `[}`, "syntax error at byte 2"},
		{"HEARDLOG_LLM_FALLBACKS", `["hunter2"]`, "an entry of it, has the wrong type"},
		{"HEARDLOG_LLM_FALLBACKS", `[{"url":1}]`, "url has the wrong type"},
		{"HEARDLOG_LLM_FALLBACKS", `[{"url":"http://h","hunter2":1}]`, "unknown field"},
		{"HEARDLOG_LLM_FALLBACKS", `[{"api_key":"hunter2"}]`, "entry 1: url is required"},
		{"HEARDLOG_LLM_FALLBACKS", `[{"url":"http://u:hunter2@h"}]`, "entry 1: url: must not contain a user name"},
		{"HEARDLOG_LLM_FALLBACKS", `[{"url":"http://h","name":"a b"}]`, "entry 1: its name must consist"},
		{"HEARDLOG_LLM_FALLBACKS", `[{"url":"http://h","name":"primary"}]`, "entry 1: its name must be unique"},
		{"HEARDLOG_LLM_FALLBACKS", `[{"url":"http://h","name":"fallback-2"},{"url":"http://h"}]`, "entry 2: its name must be unique"},
		{"HEARDLOG_LLM_FALLBACKS", `[{"url":"http://h","api_key":"hunter2\n"}]`, "entry 1: api_key: must not contain a control character"},
		{"HEARDLOG_LLM_FALLBACKS", `[{"url":"http://h","headers":{"a b":"hunter2"}}]`, "entry 1: headers"},
		{"HEARDLOG_LLM_FALLBACKS", `[{"url":"http://h","projects":["a/b"]}]`, "entry 1: projects"},
		{"HEARDLOG_LLM_FALLBACKS", `[{"url":"http://h"}] hunter2`, "after its array"},
		{"HEARDLOG_LLM_FALLBACKS", `[{"url":"http://h"}]`, "requires HEARDLOG_LLM_URL"},
		{"HEARDLOG_LLM_FALLBACKS", "/nowhere/hunter2", "neither a JSON array nor the path"},
		{"HEARDLOG_LLM_HEADERS", "X-Title=hunter2", "requires HEARDLOG_LLM_URL"},
		{"HEARDLOG_LLM_HEADERS", "/nowhere/hunter2", "neither Name=value pairs nor a JSON object nor the path"},
		{"HEARDLOG_LLM_HEADERS", "X-A=hunter2,hunter2", "entry 2 must be Name=value"},
		{"HEARDLOG_LLM_HEADERS", "X-A=a,hunter 2=b", "entry 2: the name is not a valid header name"},
		{"HEARDLOG_LLM_HEADERS", "X-A=", "entry 1: the value is missing"},
		{"HEARDLOG_LLM_HEADERS", "X-A=hunter2,x-a=b", "entry 2: the name is used in an earlier entry"},
		{"HEARDLOG_LLM_HEADERS", "X-A=hunter2\x01", "entry 1: the value must not contain a control character"},
		{"HEARDLOG_LLM_HEADERS", "host=hunter2", "entry 1: Host is set by the server itself, or belongs to the connection"},
		{"HEARDLOG_LLM_HEADERS", "Content-length: hunter2", "Content-Length is set by the server"},
		{"HEARDLOG_LLM_HEADERS", `{"transfer-encoding":"hunter2"}`, "Transfer-Encoding is set by the server"},
		{"HEARDLOG_LLM_HEADERS", `{"X-Heardlog-Via":"hunter2"}`, "X-Heardlog-Via is set by the server"},
		{"HEARDLOG_LLM_HEADERS", `{"X-A":["hunter2"]}`, "must be a JSON object of strings"},
		{"HEARDLOG_LLM_HEADERS", `{"X-A":"hunter2"`, "must be a JSON object of strings"},
		{"HEARDLOG_LLM_HEADERS", `{"X-A":"hunter2"} hunter2`, "has text after its object"},
		{"HEARDLOG_LLM_RETRIES", "6", "must be a number from 0 to 5"},
		{"HEARDLOG_LLM_RETRY_BUDGET", "2m", "must be a duration"},
		{"HEARDLOG_LLM_PRICES", "gpt-4o", "neither model=input:output or model=input:output:cached nor the path"},
		{"HEARDLOG_LLM_PRICES", "a=1:2,=1:2", "entry 2 must be model=input:output"},
		{"HEARDLOG_LLM_PRICES", "llama3:8b=1", "entry 1 (llama3:8b): must have two prices"},
		{"HEARDLOG_LLM_PRICES", "a=1:2:3:4", "entry 1 (a): must have two prices"},
		{"HEARDLOG_LLM_PRICES", "a=1:NaN", `from 0 to 10000, in US dollars per million tokens, not "NaN"`},
		{"HEARDLOG_LLM_PRICES", "a=-1:2", "from 0 to 10000"},
		{"HEARDLOG_LLM_PRICES", "a=1:2,a=2:3", "entry 2: a has a price already"},
		{"HEARDLOG_LLM_PRICES", "#a=1:2", "has no entry"},
		{"HEARDLOG_PASSTHROUGH", "embeddings", "must be paths"},
		{"HEARDLOG_PASSTHROUGH", "/v1/embeddings,/v2/x", `not "/v2/x"`},
		{"HEARDLOG_PASSTHROUGH", "/v1/*", "must be paths"},
		{"HEARDLOG_PASSTHROUGH", "/v1/a/../b", "must be paths"},
		{"HEARDLOG_AUTO_JOIN", "maybe", "must be true or false"},
		{"HEARDLOG_AUTO_JOIN", "true", "requires HEARDLOG_LLM_URL"},
		{"HEARDLOG_WEBHOOK_SECRET", "hunter2", "requires HEARDLOG_WEBHOOK_URL"},
		{"HEARDLOG_PUBLIC_URL", "heardlog.example", "must be an http or https URL"},
		{"HEARDLOG_PUBLIC_URL", "https://h/?key=hunter2", "must not contain a query"},
		{"HEARDLOG_PUBLIC_URL", "https://u:hunter2@h/", "user name or password"},
		{"HEARDLOG_INGEST_SECRETS", "p=", "entry 1 must be project=secret"},
		{"HEARDLOG_INGEST_SECRETS", "p=a,a/b=hunter2", "entry 2: the platform behind the project must be one of"},
		{"HEARDLOG_INGEST_SECRETS", "p=a,p=b,p=c,p=d,p=hunter2", "entry 5: its project has 4 secrets"},
		{"HEARDLOG_INGEST_SECRETS", "p=hunter2\x01", "entry 1: the secret must have at most"},
		{"HEARDLOG_INGEST_SECRETS", "hunter2", "neither project=secret nor the path"},
		{"HEARDLOG_INGEST_SECRETS", "#p=a", "has no entry"},
		{"HEARDLOG_WEBHOOK_PROXY", "ftp://u:hunter2@proxy", "must be a proxy's URL"},
		{"HEARDLOG_WEBHOOK_PROXY", "http://proxy/hunter2", "must be a proxy's URL"},
		{"HEARDLOG_WEBHOOK_PARK_AFTER", "-1", "must be a number from 0"},
		{"HEARDLOG_WEBHOOK_DISABLE_AFTER", "never", "must be a duration"},
		{"HEARDLOG_WEBHOOK_RETENTION", "-1d", "must be a duration"},
		{"HEARDLOG_OUTBOUND_ALLOW", "10.0.0.1/8", "write 10.0.0.0/8"},
		{"HEARDLOG_OUTBOUND_ALLOW", "ten", "must be address ranges"},
		{"HEARDLOG_OUTBOUND_ALLOW", "127.0.0.1:80", "without a port"},
		{"HEARDLOG_SECRET_KEY", "hunter2", "at least 16 characters, not 7"},
		{"HEARDLOG_MAX_AGENTS", "-1", "must be a number from 0"},
		{"HEARDLOG_MAX_BODY", "12", "must be a number from 1024"},
		{"HEARDLOG_RETENTION", "1y", "must be a duration"},
		{"HEARDLOG_IDLE_TIMEOUT", "500ms", "must be a whole number of seconds"},
		{"HEARDLOG_LOG_LEVEL", "loud", "must be one of debug"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317", "must be an http or https URL"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://u:hunter2@h/", "user name or password"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://h/?key=hunter2", "must not contain a query"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://h/v1/traces?key=hunter2", "must not contain a query"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"},
		{"OTEL_TRACES_EXPORTER", "zipkin", "must be one of"},
		{"OTEL_SDK_DISABLED", "perhaps", "must be true or false"},
		{"OTEL_RESOURCE_ATTRIBUTES", "hunter2", "must be key=value"},
		{"OTEL_RESOURCE_ATTRIBUTES", strings.Repeat("a=b,", 65), "at most 64"},
		{"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "all", "must be one of span_only"},
	} {
		t.Run(tt.name+" "+tt.want, func(t *testing.T) {
			t.Parallel()
			_, err := load(map[string]string{tt.name: tt.value})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want one with %q", err, tt.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}

// TestLLMHeaders: headers are read in each form, by their names in canonical form, and only one
// setting says what Authorization is.
func TestLLMHeaders(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(file, []byte("# a comment\nX-Title: Shop, voice = good\n\nhelicone-auth=Bearer a:b=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{file, `{"x-title":"Shop, voice = good","Helicone-Auth":"Bearer a:b="}`} {
		c, err := load(map[string]string{"HEARDLOG_LLM_URL": "http://h", "HEARDLOG_LLM_HEADERS": v})
		if want := (config.Headers{"X-Title": "Shop, voice = good", "Helicone-Auth": "Bearer a:b="}); err != nil || !maps.Equal(c.LLM.Headers, want) {
			t.Errorf("%s: %d headers, %v", v, len(c.LLM.Headers), err)
		}
	}
	c, err := load(map[string]string{"HEARDLOG_LLM_URL": "http://h", "HEARDLOG_LLM_HEADERS": "HTTP-Referer=https://shop.example/a?b=c, X-Title: Shop"})
	if want := (config.Headers{"Http-Referer": "https://shop.example/a?b=c", "X-Title": "Shop"}); err != nil || !maps.Equal(c.LLM.Headers, want) {
		t.Errorf("pairs: %d headers, %v", len(c.LLM.Headers), err)
	}
	env := map[string]string{"HEARDLOG_LLM_URL": "http://h", "HEARDLOG_LLM_HEADERS": "authorization=Basic hunter2"}
	if _, err := load(env); err != nil {
		t.Error(err)
	}
	env["HEARDLOG_LLM_API_KEY"] = "k"
	if _, err := load(env); err == nil || !strings.Contains(err.Error(), "HEARDLOG_LLM_HEADERS: must not have Authorization beside HEARDLOG_LLM_API_KEY") {
		t.Errorf("two values of Authorization: %v", err)
	}
}

func TestEveryMistakeAtOnce(t *testing.T) {
	t.Parallel()
	env := map[string]string{"HEARDLOG_ADDR": "x", "HEARDLOG_MAX_AGENTS": "x", "HEARDLOG_LOG_LEVEL": "x"}
	_, err := load(env)
	for name := range env {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte("# ours\nshop=id1:s:1\n\nbank=id2:s2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []config.Credential{{Project: "shop", ID: "id1", Secret: "s:1"}, {Project: "bank", ID: "id2", Secret: "s2"}}
	for _, v := range []string{file, "shop=id1:s:1, bank=id2:s2"} {
		c, err := load(map[string]string{"HEARDLOG_CREDENTIALS": v, "HEARDLOG_ADDR": "0.0.0.0:80"})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, c.Credentials); diff != "" || c.DefaultProject != "shop" {
			t.Errorf("%s: default project %q\n%s", v, c.DefaultProject, diff)
		}
		if s := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(s, "s:1") {
			t.Errorf("printing the settings shows a secret: %s", s)
		}
	}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	got := maps.Collect(config.Unknown([]string{"HEARDLOG_ADR=x", "HEARDLOG_LISTEN=x", "HEARDLOG_ADDR=x", "PATH=x"}))
	want := map[string]string{"HEARDLOG_ADR": "did you mean HEARDLOG_ADDR?", "HEARDLOG_LISTEN": "heardlog help settings lists all"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTracing(t *testing.T) {
	t.Parallel()
	const base, whole = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	for _, tt := range []struct {
		env  map[string]string
		want string
	}{
		{nil, ""},
		{map[string]string{base: "http://c:4318/"}, "http://c:4318/v1/traces"},
		{map[string]string{base: "http://c:4318", whole: "https://d/x"}, "https://d/x"},
		{map[string]string{base: "http://c:4318", "OTEL_SDK_DISABLED": "TRUE"}, ""},
		{map[string]string{base: "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, ""},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "http://localhost:4318/v1/traces"},
	} {
		c, err := load(tt.env)
		if err != nil || c.Tracing.URL() != tt.want {
			t.Errorf("%v: %q, %v; want %q", tt.env, c.Tracing.URL(), err, tt.want)
		}
	}
	for value, want := range map[string]bool{"": false, "false": false, "no_content": false, "event_only": false, "SPAN_ONLY": true, "span_and_event": true, "true": true} {
		if c, err := load(map[string]string{"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": value}); err != nil || c.Tracing.Content != want {
			t.Errorf("%q: content %v, %v", value, c.Tracing.Content, err)
		}
	}
	c, err := load(map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "a=b%20c, d = e"})
	if diff := cmp.Diff([][2]string{{"a", "b c"}, {"d", "e"}}, c.Tracing.Attributes); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for name := range config.Unknown([]string{"OTEL_BSP_SCHEDULE_DELAY=1", "OTEL_NONSENSE=x"}) {
		t.Errorf("%s was taken for a misspelt setting of ours", name)
	}
}

func FuzzLoad(f *testing.F) {
	for _, s := range config.Settings() {
		f.Add(s.Name, s.Default)
	}
	f.Add("HEARDLOG_CREDENTIALS", "p=id:secret")
	f.Add("HEARDLOG_OUTBOUND_ALLOW", "fd00::/8,10.0.0.0/8")
	f.Fuzz(func(t *testing.T, name, value string) {
		if (name == "HEARDLOG_CREDENTIALS" || name == "HEARDLOG_INGEST_SECRETS") && !strings.Contains(value, "=") {
			return // would be read as a file's path
		}
		c, err := load(map[string]string{name: value})
		if err == nil && c.Addr == "" {
			t.Error("accepted settings without an address")
		}
	})
}

// TestIngestReadable checks that a secret of a project without credentials is refused.
func TestIngestReadable(t *testing.T) {
	t.Parallel()
	for ingest, want := range map[string]string{
		"shop=a,other=b": "", "shop=a,hunter2=b": "the project of entry 2 must have credentials",
	} {
		_, err := config.Load(func(name string) string {
			return map[string]string{"HEARDLOG_CREDENTIALS": "shop=id:secret,other=id2:secret2", "HEARDLOG_INGEST_SECRETS": ingest}[name]
		})
		if (want == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: %v", ingest, err)
		}
	}
}

// TestSettings checks that each setting is described and that names are unique, because mistakes
// are assigned to settings by name.
func TestSettings(t *testing.T) {
	t.Parallel()
	for _, s := range config.Settings() {
		if s.Help == "" {
			t.Errorf("%s is not described", s.Name)
		}
	}
	seen := map[string]bool{}
	for _, typ := range []reflect.Type{reflect.TypeFor[config.Config](), reflect.TypeFor[config.LLM](), reflect.TypeFor[config.Tracing]()} {
		for i := range typ.NumField() {
			f := typ.Field(i)
			if f.Tag.Get("env") != "" && seen[f.Name] {
				t.Errorf("two fields are named %s", f.Name)
			}
			seen[f.Name] = true
		}
	}
}
