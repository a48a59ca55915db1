// Package config reads the settings of the server from environment variables. Load returns a
// Config, or an error that lists every mistake; Settings describes each setting.
//
// A setting is a field of Config. Its tags hold the variable (env), the default (envDefault) and
// what is allowed (validate: a rule of go-playground/validator, or one from rules.go). Its
// description is in help.go. Settings with a form of their own have a parser, named in load.go.
package config

import (
	"net/netip"
	"time"

	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/window"
)

// Config holds all settings. Settings are documented in the order of its fields. Fields without a
// tag are derived from others.
type Config struct {
	// EnvFile is read by main before the other settings, see ReadEnvFile.
	EnvFile  string `env:"HEARDLOG_ENV_FILE"`
	Addr     string `env:"HEARDLOG_ADDR" envDefault:"127.0.0.1:8080" validate:"hostport"`
	Loopback bool   // Addr serves this machine only

	// StoreURL is set for a PostgreSQL store, StorePath for a SQLite store. See InMemory for one
	// that has no file.
	StoreURL  secret.String `env:"HEARDLOG_STORE" envDefault:"sqlite:data/heardlog.db" validate:"store"`
	StorePath string
	// OnStoreFailure is RefuseTurns or PassTurns.
	OnStoreFailure string `env:"HEARDLOG_ON_STORE_FAILURE" envDefault:"refuse" validate:"oneof=refuse pass"`
	KeptFile       string `env:"HEARDLOG_KEPT_FILE" validate:"line"`

	Credentials    []Credential  `env:"HEARDLOG_CREDENTIALS"`
	Certificates   []Certificate `env:"HEARDLOG_AGORA_CERTIFICATES"`
	OIDC           OIDC
	CORSOrigins    Origins `env:"HEARDLOG_CORS_ORIGINS"`
	DefaultProject string  `env:"HEARDLOG_DEFAULT_PROJECT" validate:"omitempty,project"`
	UI             string  `env:"HEARDLOG_UI" envDefault:"on" validate:"oneof=on off"`

	LLM         LLM
	Realtime    Realtime
	PassThrough []string  `env:"HEARDLOG_PASSTHROUGH"`
	AutoJoin    *bool     `env:"HEARDLOG_AUTO_JOIN"` // nil = on an open server with an upstream
	Profiles    []Profile `env:"HEARDLOG_PROFILES"`
	// NoKey is empty for start on an open server that starts agents by itself, else refuse.
	NoKey string `env:"HEARDLOG_NO_KEY" validate:"omitempty,oneof=start refuse words"`

	WebhookURL    string         `env:"HEARDLOG_WEBHOOK_URL" validate:"omitempty,httpurl"`
	WebhookSecret secret.String  `env:"HEARDLOG_WEBHOOK_SECRET" validate:"line"`
	Ingest        []IngestSecret `env:"HEARDLOG_INGEST_SECRETS"`
	PublicURL     string         `env:"HEARDLOG_PUBLIC_URL" validate:"omitempty,publicurl"`
	WebhookProxy  secret.String  `env:"HEARDLOG_WEBHOOK_PROXY" validate:"omitempty,proxy"`

	// A zero means: never, never, as long as the agent.
	WebhookParkAfter    int           `env:"HEARDLOG_WEBHOOK_PARK_AFTER" envDefault:"3" validate:"min=0,max=100"`
	WebhookDisableAfter time.Duration `env:"HEARDLOG_WEBHOOK_DISABLE_AFTER" envDefault:"5d" validate:"min=0s,max=8760h"`
	WebhookRetention    time.Duration `env:"HEARDLOG_WEBHOOK_RETENTION" envDefault:"30d" validate:"min=0s,max=876000h"`

	OutboundAllow []netip.Prefix `env:"HEARDLOG_OUTBOUND_ALLOW"`
	SecretKey     secret.String  `env:"HEARDLOG_SECRET_KEY" validate:"omitempty,key"` // decoded
	DataKey       secret.String  `env:"HEARDLOG_DATA_KEY" validate:"omitempty,datakey"`
	TextKey       secret.String  // the 32 bytes of DataKey, once FetchDataKey has run

	// A zero means no limit, except in WorkingMB, RecallMB, VectorsMB and Summaries.
	IdleTimeout       time.Duration   `env:"HEARDLOG_IDLE_TIMEOUT" envDefault:"30m" validate:"min=0s,max=72h,seconds"`
	MaxAgents         int             `env:"HEARDLOG_MAX_AGENTS" envDefault:"0" validate:"min=0,max=10000000"`
	OverMaxAgents     string          `env:"HEARDLOG_OVER_MAX_AGENTS" envDefault:"refuse" validate:"oneof=refuse drop_idle"`
	ConversationLimit int             `env:"HEARDLOG_MAX_CONVERSATIONS" envDefault:"100000" validate:"min=0,max=10000000"`
	WorkingMB         int             `env:"HEARDLOG_MAX_WORKING_MB" envDefault:"64" validate:"min=1,max=1024"`
	RecallMB          int             `env:"HEARDLOG_RECALL_MB" envDefault:"200" validate:"min=1,max=65536"`
	RecallEmbeddings  bool            `env:"HEARDLOG_RECALL_EMBEDDINGS" envDefault:"false"`
	Remember          memory.Remember `env:"HEARDLOG_REMEMBER" envDefault:"off"`
	FactsHalfLife     time.Duration   `env:"HEARDLOG_FACTS_HALF_LIFE" envDefault:"730d" validate:"min=0s,max=876000h"`
	VectorsMB         int             `env:"HEARDLOG_VECTORS_MB" envDefault:"1024" validate:"min=1,max=65536"`
	ItemLimit         int             `env:"HEARDLOG_MAX_MEMORIES" envDefault:"1000000" validate:"min=0,max=100000000"`
	MessageLimit      int             `env:"HEARDLOG_MAX_MESSAGES" envDefault:"100000" validate:"min=0,max=100000000"`
	Embeddings        Embeddings
	Summaries         int           `env:"HEARDLOG_SUMMARIES" envDefault:"8" validate:"min=0,max=1000"`
	Policy            window.Policy `env:"HEARDLOG_POLICY" envDefault:"recent"`
	MemoryModel       string        `env:"HEARDLOG_MEMORY_MODEL" validate:"line"`
	CredentialRefs    string        `env:"HEARDLOG_CREDENTIAL_REFS" validate:"line"`
	Retention         time.Duration `env:"HEARDLOG_RETENTION" envDefault:"90d" validate:"min=0s,max=876000h"`
	Archive           string        `env:"HEARDLOG_ARCHIVE" validate:"line"`
	ArchiveAfter      time.Duration `env:"HEARDLOG_ARCHIVE_AFTER" envDefault:"0" validate:"min=0s,max=876000h"`
	Erasures          string        `env:"HEARDLOG_ERASURES" validate:"line"`
	Redact            []Redact      `env:"HEARDLOG_REDACT"`

	MessageQuota int64 `env:"HEARDLOG_MAX_PROJECT_MESSAGES" envDefault:"100000000" validate:"min=0,max=1000000000000"`
	MBQuota      int64 `env:"HEARDLOG_MAX_PROJECT_MB" envDefault:"100000" validate:"min=0,max=1000000000"`

	RateLimit       Rate          `env:"HEARDLOG_RATE_LIMIT" envDefault:"0"`
	TailLimit       int           `env:"HEARDLOG_TAIL_READERS" envDefault:"10000" validate:"min=1,max=1000000"`
	ProjectTails    int           `env:"HEARDLOG_TAIL_PROJECT_READERS" envDefault:"5000" validate:"min=1,max=1000000"`
	SocketLimit     int           `env:"HEARDLOG_SOCKETS" envDefault:"5000" validate:"min=1,max=1000000"`
	ProjectSockets  int           `env:"HEARDLOG_PROJECT_SOCKETS" envDefault:"2000" validate:"min=1,max=1000000"`
	ReadMemory      int64         `env:"HEARDLOG_READ_MEMORY" envDefault:"268435456" validate:"min=16777216,max=1099511627776"`
	MaxBody         int64         `env:"HEARDLOG_MAX_BODY" envDefault:"1048576" validate:"min=1024,max=67108864"`
	DrainDelay      time.Duration `env:"HEARDLOG_DRAIN_DELAY" envDefault:"0s" validate:"min=0s,max=1h"`
	ShutdownTimeout time.Duration `env:"HEARDLOG_SHUTDOWN_TIMEOUT" envDefault:"20s" validate:"min=0s,max=1h"`
	LogLevel        string        `env:"HEARDLOG_LOG_LEVEL" envDefault:"info" validate:"oneof=debug info warn error"`
	LogFormat       string        `env:"HEARDLOG_LOG_FORMAT" envDefault:"auto" validate:"oneof=auto json console"`

	Tracing Tracing
}

// The values of Config.OnStoreFailure: refuse calls for an answer while the store is away, or pass
// them on.
const (
	RefuseTurns = "refuse" // they get 503
	PassTurns   = "pass"   // they go on, and are stored later
)

// Embeddings is the model that makes embeddings.
type Embeddings struct {
	URL        string        `env:"HEARDLOG_EMBEDDINGS_URL" validate:"omitempty,httpurl"`
	Key        secret.String `env:"HEARDLOG_EMBEDDINGS_KEY" validate:"line"`
	Model      string        `env:"HEARDLOG_EMBEDDINGS_MODEL" validate:"line"`
	Dimensions int           `env:"HEARDLOG_EMBEDDINGS_DIMENSIONS" envDefault:"0" validate:"min=0,max=4096"`
}

// OIDC is the identity provider that people and programs sign in with.
type OIDC struct {
	Issuer       string        `env:"HEARDLOG_OIDC_ISSUER" validate:"omitempty,issuer"`
	Roles        []OIDCRole    `env:"HEARDLOG_OIDC_ROLES"`
	Claim        string        `env:"HEARDLOG_OIDC_CLAIM" envDefault:"groups" validate:"line"`
	ClientID     string        `env:"HEARDLOG_OIDC_CLIENT_ID" validate:"line"`
	ClientSecret secret.String `env:"HEARDLOG_OIDC_CLIENT_SECRET" validate:"line"`
	Scopes       Names         `env:"HEARDLOG_OIDC_SCOPES" envDefault:"openid,profile,email"`
	Audiences    Names         `env:"HEARDLOG_OIDC_AUDIENCE"`
}

// OIDCRole is the role in a project of those whose claim has a value.
type OIDCRole struct{ Value, Project, Role string }

// LLM holds the upstream of agents that bring none, and the limits of every call.
type LLM struct {
	URL          string        `env:"HEARDLOG_LLM_URL" validate:"omitempty,httpurl"`
	APIKey       secret.String `env:"HEARDLOG_LLM_API_KEY" validate:"line"`
	Model        string        `env:"HEARDLOG_LLM_MODEL" validate:"line"`
	Vendor       string        `env:"HEARDLOG_LLM_VENDOR" validate:"line"`
	Headers      Headers       `env:"HEARDLOG_LLM_HEADERS"`
	Connect      time.Duration `env:"HEARDLOG_LLM_CONNECT_TIMEOUT" envDefault:"5s" validate:"min=10ms,max=1m"`
	FirstToken   time.Duration `env:"HEARDLOG_LLM_FIRST_TOKEN_TIMEOUT" envDefault:"30s" validate:"min=10ms,max=1h"`
	Idle         time.Duration `env:"HEARDLOG_LLM_IDLE_TIMEOUT" envDefault:"30s" validate:"min=10ms,max=1h"`
	Total        time.Duration `env:"HEARDLOG_LLM_TOTAL_TIMEOUT" envDefault:"10m" validate:"min=10ms,max=24h"`
	OnDisconnect string        `env:"HEARDLOG_LLM_ON_DISCONNECT" envDefault:"cancel" validate:"oneof=cancel drain"`
	Fallbacks    []Upstream    `env:"HEARDLOG_LLM_FALLBACKS"`
	Retry        int           `env:"HEARDLOG_LLM_RETRIES" envDefault:"1" validate:"min=0,max=5"`
	RetryBudget  time.Duration `env:"HEARDLOG_LLM_RETRY_BUDGET" envDefault:"1s" validate:"min=0s,max=1m"`
	Duplicates   string        `env:"HEARDLOG_LLM_DUPLICATES" envDefault:"supersede" validate:"oneof=supersede join"`
	OnQuestion   string        `env:"HEARDLOG_LLM_ON_NEW_QUESTION" envDefault:"cut" validate:"oneof=cut keep"`
	Prices       memory.Prices `env:"HEARDLOG_LLM_PRICES"`
	Members      Names         `env:"HEARDLOG_LLM_MESSAGE_MEMBERS" envDefault:"cache_control,partial,prefix"`
	Thoughts     string        `env:"HEARDLOG_LLM_THOUGHTS" envDefault:"calls" validate:"oneof=calls all never"`
	Shape        string        `env:"HEARDLOG_LLM_SHAPE" envDefault:"as_is" validate:"oneof=as_is one_system alternate"`
	Cache        string        `env:"HEARDLOG_LLM_CACHE" envDefault:"off" validate:"oneof=off openai anthropic"`
}

// Realtime is the server of a speech-to-speech model.
type Realtime struct {
	URL    string        `env:"HEARDLOG_REALTIME_URL" validate:"omitempty,wsurl"`
	APIKey secret.String `env:"HEARDLOG_REALTIME_API_KEY" validate:"line"`
}

// Credential grants access to one project.
type Credential struct {
	Project string
	ID      string
	Secret  secret.String
}

// Certificate verifies the tokens that are made with it for an app of Agora's. The app is a
// project.
type Certificate struct {
	Project string // the app ID
	Key     secret.String
}

// Rate limits what one project may do in a second. A zero field means no limit.
type Rate struct {
	Requests int64
	Messages int64 // stored
	Bytes    int64 // of request bodies
}

// Upstream is an LLM to fall back to.
type Upstream struct {
	Name     string // letters, digits, dot, dash and underscore, at most 64; never empty, unique
	URL      string
	APIKey   secret.String
	Model    string // replaces any other; "" = no change
	Vendor   string
	Headers  map[string]secret.String
	Projects []string // that may use it; empty = all
	// As in LLM; "" is LLM's Thoughts and Shape, and no Cache.
	Thoughts, Shape, Cache string
}

// Profile names a header, or a path into request bodies, that identifies a project's calls.
type Profile struct {
	Project string `json:"project"` // "" = every project
	Name    string `json:"name"`
	Header  string `json:"header"`
	Path    string `json:"path"`
}

// InMemory reports whether everything is kept in memory only, and lost when the server stops.
func (c Config) InMemory() bool { return c.StorePath == inMemory }
