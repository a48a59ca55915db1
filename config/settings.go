package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory/window"
)

// Bounds of the settings.
const (
	minBody, maxBody   = 1 << 10, 64 << 20
	maxCredentials     = 10_000
	maxCredentialsFile = 4 << 20
	minSecretKey       = 16
)

// Settings lists every setting in the order in which they are documented.
func Settings() []Setting { return append(ownSettings(), tracingSettings()...) }

// ownSettings lists those that nobody else has.
func ownSettings() []Setting {
	return []Setting{
		{"HEARDLOG_ADDR", "127.0.0.1:8080", "host:port to serve; port 0 takes any free one.", setAddr},
		{"HEARDLOG_STORE", "sqlite:data/heardlog.db", "Where the memory is kept: sqlite:PATH, or postgres://USER:PASSWORD@HOST/DATABASE for several servers.", setStore},
		{"HEARDLOG_CREDENTIALS", "", "Who may come in: project=id:secret, comma separated, or the path of a file with one a line. Without any the server is open and serves a loopback address only.", setCredentials},
		{"HEARDLOG_DEFAULT_PROJECT", "", "The project of the webhook endpoint below and, on an open server, of /v1; unset, the project of the first credential, or default.", setProject},
		{"HEARDLOG_LLM_URL", "", "OpenAI-compatible upstream for agents that bring no llm.url: a base URL such as https://llm.example/v1, or the whole chat completions URL.", urlInto(func(c *Config) *string { return &c.LLM.URL })},
		{"HEARDLOG_LLM_API_KEY", "", "Key sent to that upstream as a bearer token.", func(c *Config, v string) error { c.LLM.APIKey = secret.String(v); return oneLine(v) }},
		{"HEARDLOG_LLM_MODEL", "", "Model asked for when neither the agent nor the request names one.", func(c *Config, v string) error { c.LLM.Model = v; return oneLine(v) }},
		{"HEARDLOG_LLM_VENDOR", "", "Vendor of that upstream; custom passes every message field on, any other value role and content only; azure sends the key as Azure OpenAI wants it, which its own hosts get in any case.", func(c *Config, v string) error { c.LLM.Vendor = v; return oneLine(v) }},
		{"HEARDLOG_LLM_CONNECT_TIMEOUT", "5s", "How long reaching an upstream may take.", durationInto(func(c *Config) *time.Duration { return &c.LLM.Connect }, 10*time.Millisecond, time.Minute)},
		{"HEARDLOG_LLM_FIRST_TOKEN_TIMEOUT", "30s", "How long an upstream may take to its first data.", durationInto(func(c *Config) *time.Duration { return &c.LLM.FirstToken }, 10*time.Millisecond, time.Hour)},
		{"HEARDLOG_LLM_IDLE_TIMEOUT", "30s", "How long an upstream may pause between two pieces of data.", durationInto(func(c *Config) *time.Duration { return &c.LLM.Idle }, 10*time.Millisecond, time.Hour)},
		{"HEARDLOG_LLM_TOTAL_TIMEOUT", "10m", "How long one answer may take.", durationInto(func(c *Config) *time.Duration { return &c.LLM.Total }, 10*time.Millisecond, 24*time.Hour)},
		{"HEARDLOG_LLM_ON_DISCONNECT", "cancel", "What becomes of the upstream call when the client goes away: cancel, or drain it to learn the whole answer.", oneOf(func(c *Config) *string { return &c.LLM.OnDisconnect }, "cancel", "drain")},
		{"HEARDLOG_LLM_FALLBACKS", "", "Upstreams to ask when that one fails before its first data: a JSON array of {name, url, api_key, model, vendor, headers, projects}, or the path of a file with one.", setFallbacks},
		{"HEARDLOG_LLM_RETRIES", "1", "How often upstreams that cannot be reached, or answer 429 or 5xx, are asked again when all have failed.", intInto(func(c *Config) *int { return &c.LLM.Retry }, 0, 5)},
		{"HEARDLOG_LLM_RETRY_BUDGET", "1s", "How long after a call's first attempt another may still begin; a longer Retry-After is passed on instead.", durationInto(func(c *Config) *time.Duration { return &c.LLM.RetryBudget }, 0, time.Minute)},
		{"HEARDLOG_PASSTHROUGH", "", "Paths that go through to the upstream with its key, without any memory, comma separated: such as /v1/embeddings, /v1/audio/* for all beneath, or * for all that are not Heardlog's own.", setPassThrough},
		{"HEARDLOG_LLM_DUPLICATES", "supersede", "What becomes of a request that is identical to one still being answered: supersede replaces the first, join gives both the same answer.", oneOf(func(c *Config) *string { return &c.LLM.Duplicates }, "supersede", "join")},
		{"HEARDLOG_AUTO_JOIN", "false", "Whether a chat completion for an agent id, or with a call's key, that is not known makes a text agent of that name.", func(c *Config, v string) (err error) {
			if c.AutoJoin, err = strconv.ParseBool(v); err != nil {
				return fmt.Errorf("%q is not true or false", v)
			}
			return nil
		}},
		{"HEARDLOG_PROFILES", "", "Keys of your own by which calls are told apart, a JSON array of {project, name, header} or {project, name, path}; without project for every one.", setProfiles},
		{"HEARDLOG_NO_KEY", "refuse", "What becomes of a chat completion that names neither an agent nor a call: refuse it, or tell calls apart by their first words, which two calls may share.", oneOf(func(c *Config) *string { return &c.NoKey }, "refuse", "words")},
		{"HEARDLOG_WEBHOOK_URL", "", "Where the default project's events are sent.", urlInto(func(c *Config) *string { return &c.WebhookURL })},
		{"HEARDLOG_WEBHOOK_SECRET", "", "Secret that signs them: whsec_ and base64, or any text.", func(c *Config, v string) error { c.WebhookSecret = secret.String(v); return oneLine(v) }},
		{"HEARDLOG_INGEST_SECRETS", "", "Secrets that sign Agora's own notifications to /v1/ingest/agora: project=secret, comma separated, or the path of a file with one a line; at most 4 of a project.", setIngest},
		{"HEARDLOG_PUBLIC_URL", "", "This server's address as webhook receivers reach it, such as https://heardlog.example; thin events hold fetch URLs under it. Unset, a server that serves a loopback address uses that, and any other sends every event whole.", setPublicURL},
		{"HEARDLOG_WEBHOOK_PROXY", "", "Forward proxy that all webhooks go through: http, https or socks5. It, and not Heardlog, then keeps them from addresses that are not public.", setWebhookProxy},
		{"HEARDLOG_WEBHOOK_PARK_AFTER", "3", "After how many attempts a delivery is given up whose receiver says that the request itself is wrong (400, 401, 403, 404, 405, 422); 0 = as late as any other.", intInto(func(c *Config) *int { return &c.WebhookParkAfter }, 0, 100)},
		{"HEARDLOG_WEBHOOK_DISABLE_AFTER", "5d", "After how long without one success an endpoint is disabled; 0 = never.", durationInto(func(c *Config) *time.Duration { return &c.WebhookDisableAfter }, 0, 365*24*time.Hour)},
		{"HEARDLOG_WEBHOOK_RETENTION", "30d", "How long deliveries that ended are kept with their attempts and events; 0 = as long as their agent, or HEARDLOG_RETENTION where they tell of none.", durationInto(func(c *Config) *time.Duration { return &c.WebhookRetention }, 0, 100*365*24*time.Hour)},
		{"HEARDLOG_OUTBOUND_ALLOW", "", "Addresses in CIDR form, comma separated, that outgoing calls may reach although they are not public. While the server itself serves a loopback address only, loopback is allowed.", setAllow},
		{"HEARDLOG_SECRET_KEY", "", "Key that encrypts stored secrets (LLM keys, tokens, webhook secrets): 32 bytes in base64, or a text of at least 16 characters. Without it they are stored as they are.", setSecretKey},
		{"HEARDLOG_IDLE_TIMEOUT", "30m", "After how long without a request an agent that brings no idle_timeout is stopped; 0 = never.", secondsInto(func(c *Config) *time.Duration { return &c.IdleTimeout }, 72*time.Hour)},
		{"HEARDLOG_MAX_AGENTS", "0", "How many agents one project may run at a time; 0 = no limit.", intInto(func(c *Config) *int { return &c.MaxAgents }, 0, 10_000_000)},
		{"HEARDLOG_OVER_MAX_AGENTS", "refuse", "What becomes of an agent that would be one too many: refuse it, or drop_idle, which ends the project's agent that nobody has asked for longest.", oneOf(func(c *Config) *string { return &c.OverMaxAgents }, "refuse", "drop_idle")},
		{"HEARDLOG_MAX_CONVERSATIONS", "100000", "How many saved conversations one project may hold; 0 = no limit.", intInto(func(c *Config) *int { return &c.ConversationLimit }, 0, 10_000_000)},
		{"HEARDLOG_MAX_WORKING_MB", "64", "How many megabytes one agent's working memory may hold, whatever the agent says.", intInto(func(c *Config) *int { return &c.WorkingMB }, 1, 1024)},
		{"HEARDLOG_MAX_MEMORIES", "1000000", "How many memories one project may hold that stand in no agent's ledger, cleared ones not counted; 0 = no limit. Past it new ones are refused.", intInto(func(c *Config) *int { return &c.ItemLimit }, 0, 100_000_000)},
		{"HEARDLOG_MAX_MESSAGES", "100000", "How many messages of every role one agent may have; 0 = no limit. Past it new ones are refused, and answers to earlier ones still stored.", intInto(func(c *Config) *int { return &c.MessageLimit }, 0, 100_000_000)},
		{"HEARDLOG_SUMMARIES", "8", "How many summaries of long conversations are made at a time, for agents whose policy wants them; 0 = none are made.", intInto(func(c *Config) *int { return &c.Summaries }, 0, 1000)},
		{"HEARDLOG_POLICY", "agora", "What an LLM is given of an agent's memory, where the agent does not say: the name of a preset (agora, ovos, orbiter, lauren, ossa, full), or a JSON object; see GET /v1/policies.", setPolicy},
		{"HEARDLOG_RETENTION", "90d", "How long a stopped agent is kept; 0 = for ever.", durationInto(func(c *Config) *time.Duration { return &c.Retention }, 0, 100*365*24*time.Hour)},
		{"HEARDLOG_RATE_LIMIT", "0", "Requests a second that one project may make; 0 = no limit.", intInto(func(c *Config) *int { return &c.RateLimit }, 0, 1_000_000)},
		{"HEARDLOG_TAIL_READERS", "10000", "How many live tails may be open at a time; one takes about 20 KB.", intInto(func(c *Config) *int { return &c.TailLimit }, 1, 1_000_000)},
		{"HEARDLOG_TAIL_AGENT_READERS", "2000", "How many of them may be one agent's.", intInto(func(c *Config) *int { return &c.AgentTailLimit }, 1, 1_000_000)},
		{"HEARDLOG_MAX_BODY", "1048576", "Largest request body in bytes.", func(c *Config, v string) error {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil || n < minBody || n > maxBody {
				return fmt.Errorf("%q is not a number from %d to %d", v, minBody, maxBody)
			}
			c.MaxBody = n
			return nil
		}},
		{"HEARDLOG_SHUTDOWN_TIMEOUT", "20s", "How long running requests and streams may go on after SIGTERM.", durationInto(func(c *Config) *time.Duration { return &c.ShutdownTimeout }, 0, time.Hour)},
		{"HEARDLOG_LOG_LEVEL", "info", "debug, info, warn or error.", oneOf(func(c *Config) *string { return &c.LogLevel }, "debug", "info", "warn", "error")},
		{"HEARDLOG_LOG_FORMAT", "auto", "json, console, or auto: console on a terminal.", oneOf(func(c *Config) *string { return &c.LogFormat }, "auto", "json", "console")},
	}
}

func setAddr(c *Config, v string) error {
	host, port, err := net.SplitHostPort(v)
	if err != nil {
		return fmt.Errorf("%q is not host:port", v)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	c.Addr = v
	ip, err := netip.ParseAddr(host)
	c.Loopback = host == "localhost" || (err == nil && ip.Unmap().IsLoopback())
	return nil
}

func setStore(c *Config, v string) error {
	if strings.HasPrefix(v, "postgres://") || strings.HasPrefix(v, "postgresql://") {
		if u, err := url.Parse(v); err != nil || u.Hostname() == "" && u.Query().Get("host") == "" || strings.Trim(u.Path, "/") == "" {
			return errors.New("a PostgreSQL store is postgres://USER:PASSWORD@HOST:PORT/DATABASE") // its text would show the password
		}
		c.StorePath, c.StoreURL = "", secret.String(v)
		return nil
	}
	if strings.HasPrefix(v, "redis://") || strings.HasPrefix(v, "rediss://") {
		return errors.New("Redis can no longer store agents; use sqlite:PATH, or postgres://USER:PASSWORD@HOST/DATABASE for several servers")
	}
	path, ok := strings.CutPrefix(v, "sqlite:")
	if !ok || path == "" {
		scheme, _, _ := strings.Cut(v, ":") // what follows may hold a password
		return fmt.Errorf("store %q is not known; write sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE", scheme)
	}
	if strings.ContainsRune(path, 0) || strings.Contains(path, "?") {
		return errors.New("the path may hold neither NUL nor a question mark")
	}
	c.StorePath = path
	return nil
}

// ValidProject tells whether a name may be a project's: letters, digits, dot, dash and underscore, at most 128, the first a
// letter or digit. An open server asks for every request.
func ValidProject(s string) bool {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '-' || c == '_'):
		default:
			return false
		}
	}
	return s != "" && len(s) <= 128
}

func setProject(c *Config, v string) error {
	if v != "" && !ValidProject(v) {
		return fmt.Errorf("%q is not a project name: letters, digits, dot, dash and underscore, at most 128", v)
	}
	c.DefaultProject = v
	return nil
}

func setCredentials(c *Config, v string) error {
	if v == "" {
		return nil
	}
	entries := strings.Split(v, ",")
	if !strings.Contains(v, "=") { // a file
		info, err := os.Stat(v)
		if err != nil {
			return errors.New("is neither project=id:secret nor the path of a file that can be read")
		}
		if info.Size() > maxCredentialsFile {
			return fmt.Errorf("the file is larger than %d bytes", maxCredentialsFile)
		}
		b, err := os.ReadFile(v)
		if err != nil {
			return fmt.Errorf("the file cannot be read: %w", err)
		}
		entries = strings.Split(string(b), "\n")
	}
	seen, holders := map[string]bool{}, map[string]string{}
	for i, e := range entries {
		e = strings.TrimSpace(e)
		if e == "" || strings.HasPrefix(e, "#") {
			continue
		}
		project, rest, ok1 := strings.Cut(e, "=")
		id, value, ok2 := strings.Cut(rest, ":")
		// The entry itself is not shown: it may be a secret in the wrong place.
		switch {
		case !ok1 || !ok2 || id == "" || value == "":
			return fmt.Errorf("entry %d is not project=id:secret", i+1)
		case !ValidProject(project):
			return fmt.Errorf("entry %d: the project may hold letters, digits, dot, dash and underscore, at most 128", i+1)
		case len(id) > 256 || len(value) > 1024:
			return fmt.Errorf("entry %d: an id has at most 256 characters and a secret 1024", i+1)
		case seen[id]:
			return fmt.Errorf("entry %d: its id stands in an earlier entry too", i+1)
		case holders[value] != "" && holders[value] != project:
			// Sent alone, as a bearer token, it could not tell which project is meant.
			return fmt.Errorf("entry %d: its secret is that of another project too", i+1)
		case len(c.Credentials) == maxCredentials:
			return fmt.Errorf("there are more than %d entries", maxCredentials)
		}
		seen[id], holders[value] = true, project
		c.Credentials = append(c.Credentials, Credential{Project: project, ID: id, Secret: secret.String(value)})
	}
	if len(c.Credentials) == 0 {
		return errors.New("holds no entry; leave it unset for an open server on a loopback address")
	}
	return nil
}

func urlInto(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		if v == "" {
			return nil
		}
		u, err := url.Parse(v)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
			return errors.New("is not an http or https URL with a host") // not shown: it may hold a password
		}
		if u.User != nil {
			return errors.New("must not hold a user name or password")
		}
		if u.Fragment != "" {
			return errors.New("must not hold a fragment")
		}
		*field(c) = v
		return nil
	}
}

func setPublicURL(c *Config, v string) error {
	if strings.Contains(v, "?") {
		return errors.New("must not hold a query")
	}
	return urlInto(func(c *Config) *string { return &c.PublicURL })(c, v)
}

func setWebhookProxy(c *Config, v string) error {
	if v == "" {
		return nil
	}
	u, err := url.Parse(v)
	if err != nil || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) || u.Hostname() == "" || (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("is not a proxy's URL such as http://proxy.example:3128") // not shown: it may hold a password
	}
	c.WebhookProxy = secret.String(v)
	return nil
}

func setAllow(c *Config, v string) error {
	for e := range strings.SplitSeq(v, ",") {
		e = strings.TrimSpace(e)
		if e == "" {
			continue
		}
		p, err := netip.ParsePrefix(e)
		if err != nil {
			return fmt.Errorf("%q is not an address range such as 10.0.0.0/8", e)
		}
		if p != p.Masked() {
			return fmt.Errorf("%q has bits set behind its prefix; write %s", e, p.Masked())
		}
		c.OutboundAllow = append(c.OutboundAllow, p)
	}
	return nil
}

func setSecretKey(c *Config, v string) error {
	if v == "" {
		return nil
	}
	if b, err := base64.StdEncoding.DecodeString(v); err == nil && len(b) == 32 {
		c.SecretKey = secret.String(b)
		return nil
	}
	if len(v) < minSecretKey {
		return fmt.Errorf("has %d characters; at least %d are wanted, better 32 random bytes in base64", len(v), minSecretKey)
	}
	c.SecretKey = secret.String(v)
	return nil
}

func durationInto(field func(*Config) *time.Duration, low, high time.Duration) func(*Config, string) error {
	return func(c *Config, v string) error {
		d, err := parseDuration(v)
		if err != nil || d < low || d > high {
			return fmt.Errorf("%q is not a duration from %s to %s, such as 90s, 30m or 14d", v, low, high)
		}
		*field(c) = d
		return nil
	}
}

// secondsInto is durationInto for what is counted in whole seconds.
func secondsInto(field func(*Config) *time.Duration, high time.Duration) func(*Config, string) error {
	return func(c *Config, v string) error {
		if err := durationInto(field, 0, high)(c, v); err != nil {
			return err
		}
		if *field(c)%time.Second != 0 {
			return fmt.Errorf("%q is not a whole number of seconds", v)
		}
		return nil
	}
}

// parseDuration is time.ParseDuration with whole days as well, and 0 without a unit.
func parseDuration(v string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(v, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > 100*366 {
			return 0, errors.New("not a number of days")
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	return time.ParseDuration(v)
}

func intInto(field func(*Config) *int, low, high int) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < low || n > high {
			return fmt.Errorf("%q is not a number from %d to %d", v, low, high)
		}
		*field(c) = n
		return nil
	}
}

func oneOf(field func(*Config) *string, allowed ...string) func(*Config, string) error {
	return func(c *Config, v string) error {
		if !slices.Contains(allowed, v) {
			return fmt.Errorf("%q is not one of %s", v, strings.Join(allowed, ", "))
		}
		*field(c) = v
		return nil
	}
}

// oneLine refuses what could not stand in a header.
func oneLine(v string) error {
	if i := strings.IndexFunc(v, func(r rune) bool { return r < 0x20 || r == 0x7f }); i >= 0 {
		return fmt.Errorf("has a control character at byte %d", i)
	}
	return nil
}

func setPolicy(c *Config, v string) (err error) {
	c.Policy, err = window.ParseSetting("", v)
	return err
}
