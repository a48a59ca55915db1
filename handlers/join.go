package handlers

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/longterm/remember"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/input"
	"github.com/heardlog/heardlog/platform"
)

// joinRequest is the body of join. Unknown keys are kept in Properties and otherwise ignored, as by
// Agora.
type joinRequest struct {
	Name       string          `json:"name" validate:"required,max=256"`
	Properties json.RawMessage `json:"properties"`
	PipelineID string          `json:"pipeline_id"`
	Preset     string          `json:"preset"`
}

type joinAnswer struct {
	AgentID  string `json:"agent_id"`
	CreateTS int64  `json:"create_ts"` // Unix seconds
	Status   string `json:"status"`
	// Inherited is what the agent took over from the one before, nil for nothing.
	Inherited *inheritedJSON `json:"inherited,omitempty"`
}

// joinKind decides which fields a join requires.
type joinKind int

const (
	joinV1    joinKind = iota // the name alone
	joinAgora                 // as Agora: also channel, token, agent_rtc_uid and remote_rtc_uids
	joinCN                    // as Agora in China: without the token
)

func (a agentAPI) join(kind joinKind) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		in, err := decode[joinRequest](a.bodies, w, r, false)
		if err != nil {
			return err
		}
		agent, err := a.start(w, r, in, kind)
		if err != nil {
			return err
		}
		return encode(w, http.StatusOK, joinAnswer{AgentID: agent.ID, CreateTS: agent.StartTS(), Status: agent.Status.String(), Inherited: inheritedOf(&agent)})
	}
}

// start starts the agent of a join.
func (a agentAPI) start(w http.ResponseWriter, r *http.Request, in joinRequest, kind joinKind) (memory.Agent, error) {
	name, err := text.CleanKey("name", in.Name, 1024)
	if err != nil {
		return memory.Agent{}, err
	}
	if strings.TrimSpace(name) == "" || strings.IndexFunc(name, unicode.IsControl) >= 0 {
		return memory.Agent{}, fault.At(fault.Invalid, "name", "must not be blank or contain a control character")
	}
	if err := in.checkProperties(w, r); err != nil {
		return memory.Agent{}, err
	}
	settings, inherit, err := a.settings(r, in, kind)
	if err != nil {
		return memory.Agent{}, err
	}
	key, err := idempotencyKey(r, maxKey)
	if err != nil {
		return memory.Agent{}, err
	}
	if a.remember != nil {
		settings.Memory.Known = a.remember.Known(r.Context(), projectOf(r), &settings)
	}
	agent, err := a.memory.Agents.Join(r.Context(), agents.JoinRequest{
		Project: projectOf(r), Name: name, Settings: settings, Properties: in.Properties, Key: key, Inherit: inherit,
	})
	if err != nil {
		return memory.Agent{}, err
	}
	infoOf(r).agent = agent.ID
	if a.remember != nil {
		if err := a.remember.Joined(r.Context(), &agent); err != nil {
			return memory.Agent{}, err
		}
	}
	if err := a.joined(r.Context(), &agent); err != nil {
		return memory.Agent{}, err
	}
	a.recall.Warm(r.Context(), agent.Project, agent.Settings.Scope.UserID)
	return agent, nil
}

// joinWrap holds the properties, so that errors name the path as the caller wrote it. It is a named
// type because the validator cuts the type's name off a path.
type joinWrap struct {
	Properties joinProperties `json:"properties"`
}

// wrapped returns the properties as the JSON of a joinWrap.
func (in joinRequest) wrapped() []byte {
	return slices.Concat([]byte(`{"properties":`), in.Properties, []byte(`}`))
}

// checkProperties refuses or lists properties that are not known. Agora's own have more fields than
// joinProperties.
func (in joinRequest) checkProperties(w http.ResponseWriter, r *http.Request) error {
	if len(in.Properties) == 0 {
		return nil
	}
	return checkStrays(w, r, in.wrapped(), joinWrap{}, func(path string) bool { return !strings.HasPrefix(path, "properties.heardlog.") })
}

// settings reads and checks a join's properties.
func (a agentAPI) settings(r *http.Request, in joinRequest, kind joinKind) (memory.Settings, memory.Inherit, error) {
	var wrap joinWrap
	if len(in.Properties) > 0 && string(in.Properties) != "null" {
		if err := json.Unmarshal(in.wrapped(), &wrap); err != nil {
			return memory.Settings{}, "", input.Error(err)
		}
	} else if kind != joinV1 {
		return memory.Settings{}, "", fault.At(fault.Missing, "properties", "is required")
	}
	if err := a.check(&wrap); err != nil {
		return memory.Settings{}, "", err
	}
	p := &wrap.Properties
	if err := p.rules(); err != nil {
		return memory.Settings{}, "", err
	}
	if kind != joinV1 {
		if err := p.agoraRules(kind, in.PipelineID != "" || in.Preset != "", a.defaultLLM); err != nil {
			return memory.Settings{}, "", err
		}
	}
	out := p.settings()
	var err error
	if out.Memory.Policy, err = readPolicy(a.memory.Policies, "properties.heardlog.policy", p.Heardlog.Policy); err != nil {
		return memory.Settings{}, "", err
	}
	out.Memory.Remember, err = remember.Decode("properties.heardlog.remember", p.Heardlog.Remember, a.remembers)
	if err != nil {
		return memory.Settings{}, "", err
	}
	inherit := p.Heardlog.Session.inherit()
	model, err := a.models.ForJoin(r.Context(), projectOf(r), "properties.heardlog.memory_model", p.Heardlog.Model)
	if err != nil || model == nil {
		return out, inherit, err
	}
	inherit = model.Apply(&out, inherit)
	if on := p.Heardlog.Working.Enabled; on != nil {
		out.Memory.Working.Off = !*on
	}
	if string(p.Heardlog.Remember) == `"off"` {
		out.Memory.Remember = memory.Remember{}
	}
	return out, inherit, nil
}

// rules checks what tags cannot, under every base.
func (p *joinProperties) rules() error {
	l := &p.LLM
	if l.URL != "" {
		if err := checkURL("properties.llm.url", l.URL); err != nil {
			return err
		}
	}
	if g := l.GreetingAudioURL; g != "" {
		if err := checkURL("properties.llm.greeting_audio_url", g); err != nil {
			return err
		}
		if l.Greeting == "" {
			return fault.At(fault.Missing, "properties.llm.greeting_message", "is required with greeting_audio_url")
		}
	}
	l.Params = input.ReplaceNUL(l.Params)
	for name, v := range l.Variables {
		l.Variables[name] = withoutNUL(v)
	}
	if len(l.Params) > 0 && l.Params[0] != '{' && string(l.Params) != "null" {
		return fault.At(fault.Invalid, "properties.llm.params", "must be an object")
	}
	if err := checkSystem("properties.llm.system_messages", l.Style, l.SystemMessages); err != nil {
		return err
	}
	if strings.ContainsRune(p.Channel, 0) {
		return fault.At(fault.Invalid, "properties.channel", "must not contain a NUL character")
	}
	if err := p.keyRules(); err != nil {
		return err
	}
	if err := checkSent("properties.llm", l.APIKey, l.Headers); err != nil {
		return err
	}
	if err := p.Heardlog.Session.rules(); err != nil {
		return err
	}
	if err := p.Heardlog.Scope.setScope(new(memory.Message), "properties.heardlog.scope"); err != nil {
		return err
	}
	if err := p.upstreamRules(); err != nil {
		return err
	}
	if err := p.Heardlog.Redact.Check("properties.heardlog.redact"); err != nil {
		return err
	}
	if err := p.Fillers.rules(); err != nil {
		return err
	}
	for field, said := range map[string]*string{
		"llm.greeting_message": &l.Greeting, "llm.failure_message": &l.Failure, "parameters.silence_config.content": &p.Parameters.Silence.Content,
	} {
		var err error
		if *said, err = text.Clean("properties."+field, *said, memory.MaxText); err != nil {
			return err
		}
	}
	if s := p.Parameters.Silence; s.TimeoutMS > 0 && s.Content == "" {
		return fault.At(fault.Missing, "properties.parameters.silence_config.content", "is required if timeout_ms is above 0")
	}
	if err := p.viewRules(); err != nil {
		return err
	}
	if p.Geofence != nil && p.Geofence.Exclude != "" && p.Geofence.Area != "GLOBAL" {
		return fault.At(fault.Invalid, "properties.geofence.exclude_area", "is allowed with area GLOBAL only")
	}
	return nil
}

// agoraRules checks the fields that Agora's base requires.
func (p *joinProperties) agoraRules(kind joinKind, pipeline, defaultLLM bool) error {
	missing := func(field string) error {
		return fault.At(fault.Missing, "properties."+field, "is required")
	}
	switch {
	case p.Channel == "":
		return missing("channel")
	case p.Token == nil && kind != joinCN:
		return missing("token")
	case p.AgentUID == nil:
		return missing("agent_rtc_uid")
	case len(p.RemoteUIDs) == 0:
		return missing("remote_rtc_uids")
	case p.TTS.Vendor == "" && !emptyObject(p.TTS.Params):
		return missing("tts.vendor")
	case p.TTS.Vendor != "" && len(p.TTS.Params) == 0:
		return missing("tts.params")
	case p.LLM.URL == "" && !p.MLLM.Enable && !p.Features.MLLM && !pipeline && !defaultLLM:
		return missing("llm.url")
	case p.MLLM.Enable && p.MLLM.APIKey == "" && p.MLLM.Vendor != vertexAI:
		return missing("mllm.api_key")
	}
	return p.mcpNames(kind)
}

// vertexAI is the vendor that takes credentials in mllm.params instead of a key.
const vertexAI = "vertexai"

// mcpNames checks the names of MCP servers: letters and digits, in China also dots and dashes.
func (p *joinProperties) mcpNames(kind joinKind) error {
	more, allowed := "", "letters and digits"
	if kind == joinCN {
		more, allowed = ".-", "letters, digits, dots and dashes"
	}
	for i, s := range p.LLM.MCPServers {
		for _, c := range s.Name {
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(more, c) {
				return fault.At(fault.Invalid, "properties.llm.mcp_servers["+strconv.Itoa(i)+"].name", "must consist of %s; %q is not allowed", allowed, string(c))
			}
		}
	}
	return nil
}

// emptyObject reports whether a value is what clients send for an object they do not use.
func emptyObject(b json.RawMessage) bool {
	var members map[string]json.RawMessage
	return len(b) == 0 || (json.Unmarshal(b, &members) == nil && len(members) == 0)
}

// checkSystem checks system messages: objects with a role and content or, in Gemini's style, parts.
// It replaces NUL in them.
func checkSystem(field, style string, list []json.RawMessage) error {
	for i, raw := range list {
		raw = input.ReplaceNUL(raw)
		list[i] = raw
		var m struct {
			Role    *string         `json:"role"`
			Content json.RawMessage `json:"content"`
			Parts   json.RawMessage `json:"parts"`
		}
		at := field + "[" + strconv.Itoa(i) + "]"
		if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &m) != nil {
			return fault.At(fault.Invalid, at, "must be an object with role, a string, and content")
		}
		if m.Role == nil || *m.Role == "" {
			return fault.At(fault.Missing, at+".role", "is required")
		}
		if len(m.Content) == 0 && (style != "gemini" || len(m.Parts) == 0) {
			return fault.At(fault.Missing, at+".content", "is required")
		}
	}
	return nil
}

func checkURL(field, raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return fault.At(fault.Invalid, field, "must be a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return fault.At(fault.Invalid, field, "must be an http or https URL, not %q", text.Clip(u.Scheme, 20))
	case u.Hostname() == "":
		return fault.At(fault.Invalid, field, "must have a host")
	case u.User != nil:
		return fault.At(fault.Invalid, field, "must not contain a user name or password; send a key in api_key or headers")
	}
	return nil
}

func headerName(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c <= 0x20 || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?={}`, c) >= 0 {
			return false
		}
	}
	return true
}

// settings returns the properties as the domain takes them.
func (p *joinProperties) settings() memory.Settings {
	l := &p.LLM
	s := memory.Settings{
		Channel: p.Channel, Labels: p.Labels, IdleTimeoutS: -1,
		LLM: memory.LLMSettings{
			URL: l.URL, APIKey: secret.String(l.APIKey), Vendor: l.Vendor, Style: l.Style, Model: l.Model,
			SystemMessages: l.SystemMessages, MaxHistory: l.MaxHistory,
			Greeting: l.Greeting, GreetingDelay: l.GreetingConfigs.DelayMS, FailureMessage: l.Failure, Variables: l.Variables,
			Upstreams: p.upstreams(), Realtime: p.realtime(), Mode: p.Heardlog.Mode, OnDisconnect: p.Heardlog.OnDisconnect, Duplicates: p.Heardlog.Duplicates, OnQuestion: p.Heardlog.OnQuestion,
			Members: l.Members, Thoughts: l.Thoughts, Shape: l.Shape, Cache: l.Cache,
			ConnectTimeoutMS: p.Heardlog.Timeouts.ConnectMS, FirstTokenTimeoutMS: p.Heardlog.Timeouts.FirstTokenMS,
			IdleTimeoutMS: p.Heardlog.Timeouts.IdleMS, TotalTimeoutMS: p.Heardlog.Timeouts.TotalMS,
			View: p.view(),
		},
		Silence:  memory.Silence{TimeoutMS: p.Parameters.Silence.TimeoutMS, Action: p.Parameters.Silence.Action, Content: p.Parameters.Silence.Content},
		Farewell: memory.Farewell{Graceful: p.Parameters.Farewell.Graceful, TimeoutS: 30},
	}
	s.Filler, s.Redact = p.Fillers.settings(), p.Heardlog.Redact
	s.Call = p.call()
	if scope := p.Heardlog.Scope; scope != nil {
		s.Scope = scope.scope()
		if platform.Withheld(s.Scope.UserID) { // it names no caller
			s.Scope.UserID = ""
		}
	}
	s.IdleTimeoutS = p.Heardlog.Session.idle(p.IdleTimeout)
	s.Memory.Working = p.Heardlog.Working.settings()
	if t := p.Parameters.Farewell.TimeoutS; t != nil {
		s.Farewell.TimeoutS = *t
	}
	if s.Silence.Action == "" {
		s.Silence.Action = "speak"
	}
	if string(l.Params) != "null" {
		s.LLM.Params = l.Params
	}
	s.LLM.Headers = secret.Map(l.Headers)
	return s
}
