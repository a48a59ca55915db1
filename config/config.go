// Package config reads the server's settings from the environment.
package config

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory/window"
)

// Credential lets its holder into one project.
type Credential struct {
	Project string
	ID      string
	Secret  secret.String
}

// Config is the whole of the settings. The comments name the environment variables; Settings describes them.
type Config struct {
	Addr           string        // HEARDLOG_ADDR
	Loopback       bool          // Addr serves this machine only
	StorePath      string        // HEARDLOG_STORE of an SQLite file, without its scheme
	StoreURL       secret.String // HEARDLOG_STORE of a PostgreSQL database, which may hold a password; else ""
	Credentials    []Credential
	DefaultProject string // HEARDLOG_DEFAULT_PROJECT

	LLM         LLM
	AutoJoin    bool      // HEARDLOG_AUTO_JOIN
	PassThrough []string  // HEARDLOG_PASSTHROUGH
	Profiles    []Profile // HEARDLOG_PROFILES
	NoKey       string    // HEARDLOG_NO_KEY

	WebhookURL    string        // HEARDLOG_WEBHOOK_URL; "" = none
	WebhookSecret secret.String // HEARDLOG_WEBHOOK_SECRET

	WebhookProxy        secret.String // HEARDLOG_WEBHOOK_PROXY, a URL that may hold a password; "" = none
	WebhookParkAfter    int           // HEARDLOG_WEBHOOK_PARK_AFTER; 0 = never
	WebhookDisableAfter time.Duration // HEARDLOG_WEBHOOK_DISABLE_AFTER; 0 = never
	WebhookRetention    time.Duration // HEARDLOG_WEBHOOK_RETENTION; 0 = as long as the agent

	Ingest []IngestSecret // HEARDLOG_INGEST_SECRETS

	PublicURL string // HEARDLOG_PUBLIC_URL; "" = not known

	OutboundAllow []netip.Prefix // HEARDLOG_OUTBOUND_ALLOW
	SecretKey     secret.String  // HEARDLOG_SECRET_KEY; "" = secrets are stored as they are

	IdleTimeout       time.Duration // HEARDLOG_IDLE_TIMEOUT
	MaxAgents         int           // HEARDLOG_MAX_AGENTS; 0 = no limit
	OverMaxAgents     string        // HEARDLOG_OVER_MAX_AGENTS: refuse or drop_idle
	Summaries         int           // HEARDLOG_SUMMARIES; 0 = none are made
	ItemLimit         int           // HEARDLOG_MAX_MEMORIES; 0 = no limit
	MessageLimit      int           // HEARDLOG_MAX_MESSAGES; 0 = no limit
	Policy            window.Policy // HEARDLOG_POLICY; the zero value is the default preset
	ConversationLimit int           // HEARDLOG_MAX_CONVERSATIONS; 0 = no limit
	WorkingMB         int           // HEARDLOG_MAX_WORKING_MB, of one agent
	Retention         time.Duration // HEARDLOG_RETENTION; 0 = for ever
	RateLimit         int           // HEARDLOG_RATE_LIMIT, requests a second and project; 0 = no limit
	TailLimit         int           // HEARDLOG_TAIL_READERS
	AgentTailLimit    int           // HEARDLOG_TAIL_AGENT_READERS
	MaxBody           int64         // HEARDLOG_MAX_BODY, bytes
	ShutdownTimeout   time.Duration // HEARDLOG_SHUTDOWN_TIMEOUT
	LogLevel          string        // HEARDLOG_LOG_LEVEL
	LogFormat         string        // HEARDLOG_LOG_FORMAT

	Tracing Tracing // OTEL_…
}

// LLM is what agents get that bring no settings of their own, and the limits of a call.
type LLM struct {
	URL          string        // HEARDLOG_LLM_URL
	APIKey       secret.String // HEARDLOG_LLM_API_KEY
	Model        string        // HEARDLOG_LLM_MODEL
	Vendor       string        // HEARDLOG_LLM_VENDOR
	Connect      time.Duration
	FirstToken   time.Duration
	Idle         time.Duration
	Total        time.Duration
	OnDisconnect string        // HEARDLOG_LLM_ON_DISCONNECT
	Duplicates   string        // HEARDLOG_LLM_DUPLICATES
	Fallbacks    []Upstream    // HEARDLOG_LLM_FALLBACKS
	Retry        int           // HEARDLOG_LLM_RETRIES
	RetryBudget  time.Duration // HEARDLOG_LLM_RETRY_BUDGET
}

// Upstream is an LLM to fall back to.
type Upstream struct {
	Name     string // letters, digits, dot, dash and underscore, at most 64; never empty, unique
	URL      string
	APIKey   secret.String
	Model    string // in place of any other; "" leaves it alone
	Vendor   string
	Headers  map[string]secret.String
	Projects []string // whose agents it serves; empty = all
}

// Profile is a header or a path into request bodies by which a project's calls are told apart.
type Profile struct {
	Project string `json:"project"` // "" = every project
	Name    string `json:"name"`
	Header  string `json:"header"`
	Path    string `json:"path"`
}

// Setting describes one environment variable.
type Setting struct {
	Name    string
	Default string // as it would be written; "" = none
	Help    string // one sentence
	set     func(c *Config, value string) error
}

// Load reads the settings. The error lists every mistake there is, one a line, each with the variable's name.
func Load(getenv func(string) string) (Config, error) {
	var c Config
	var errs []error
	for _, s := range Settings() {
		v := getenv(s.Name)
		if v == "" {
			v = s.Default
		}
		if err := s.set(&c, v); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Name, err))
		}
	}
	errs = append(errs, c.together()...)
	return c, errors.Join(errs...)
}

// Unknown gives the names in environ (as of os.Environ) that look like settings and are none: misspelt ones, most likely.
func Unknown(environ []string) []string {
	known := map[string]bool{}
	for _, s := range Settings() {
		known[s.Name] = true
	}
	var out []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "HEARDLOG_") && !known[name] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// together checks what no single setting can tell.
func (c *Config) together() []error {
	var errs []error
	if len(c.Credentials) == 0 && !c.Loopback && c.Addr != "" {
		errs = append(errs, fmt.Errorf("HEARDLOG_CREDENTIALS: is required to serve %s: without credentials the server is open, and then serves only a loopback address such as 127.0.0.1:8080", c.Addr))
	}
	if c.DefaultProject == "" {
		c.DefaultProject = "default"
		if len(c.Credentials) > 0 {
			c.DefaultProject = c.Credentials[0].Project
		}
	}
	errs = append(errs, c.ingestReadable()...)
	if c.WebhookSecret != "" && c.WebhookURL == "" {
		errs = append(errs, errors.New("HEARDLOG_WEBHOOK_SECRET: is set without HEARDLOG_WEBHOOK_URL"))
	}
	if len(c.LLM.Fallbacks) > 0 && c.LLM.URL == "" {
		errs = append(errs, errors.New("HEARDLOG_LLM_FALLBACKS: wants HEARDLOG_LLM_URL, which it stands behind"))
	}
	if c.AutoJoin && c.LLM.URL == "" {
		errs = append(errs, errors.New("HEARDLOG_AUTO_JOIN: wants HEARDLOG_LLM_URL, which agents that join by themselves talk to"))
	}
	return errs
}

// Usage writes the settings for people.
func Usage(w io.Writer) error {
	_, err := io.WriteString(w, "Heardlog keeps the memory of voice agents. Without arguments it serves; verify, doctor, export, import, migrate, backup, restore, compact, erase, simulate and healthcheck are subcommands, each with -h. Its settings are environment variables:\n\n")
	for _, s := range Settings() {
		def := ""
		if s.Default != "" {
			def = " (default " + s.Default + ")"
		}
		if err == nil {
			_, err = fmt.Fprintf(w, "  %s%s\n        %s\n", s.Name, def, s.Help)
		}
	}
	return err
}
