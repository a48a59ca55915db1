package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"

	fastjson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
)

// EncodeAgent returns an agent's settings and properties as one blob with all secrets in clear, for
// the store to seal: the length of the settings, the settings, the properties.
func EncodeAgent(a *memory.Agent) ([]byte, error) {
	settings, err := encodeSettings(a.Settings, a.Cold)
	if err != nil {
		return nil, err
	}
	b := binary.AppendUvarint(make([]byte, 0, len(settings)+len(a.Properties)+4), uint64(len(settings)))
	return append(append(b, settings...), a.Properties...), nil
}

// DecodeAgent sets an agent's settings and properties to those that EncodeAgent wrote.
func DecodeAgent(b []byte, a *memory.Agent) (err error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || uint64(len(b)-used) < n {
		return fmt.Errorf("settings and properties: %w: cut short", ErrUnreadable)
	}
	b = b[used:]
	if a.Settings, a.Cold, err = decodeSettings(b[:n]); err != nil {
		return err
	}
	a.Properties = nil
	if p := b[n:]; len(p) > 0 {
		a.Properties = bytes.Clone(p)
	}
	return nil
}

// settings is memory.Settings with the secrets in clear.
type settings struct {
	Channel      string             `json:"channel,omitempty"`
	Labels       map[string]string  `json:"labels,omitempty"`
	IdleTimeoutS int                `json:"idle_timeout_s"`
	LLM          memory.LLMSettings `json:"llm"`
	APIKey       string             `json:"api_key,omitempty"`
	Headers      map[string]string  `json:"headers,omitempty"`
	Silence      memory.Silence     `json:"silence"`
	Farewell     memory.Farewell    `json:"farewell"`
	Call         memory.Call        `json:"call,omitzero"`
	Filler       *memory.Filler     `json:"filler,omitempty"`
	Upstreams    []upstream         `json:"upstreams,omitempty"`
	Realtime     *upstream          `json:"realtime,omitempty"`
	WarnedMS     int64              `json:"warned_ms,omitempty"`
	LeaveKey     string             `json:"leave_key,omitempty"`
	Archive      *memory.Archive    `json:"archive,omitempty"`
	Scope        memory.Scope       `json:"scope,omitzero"`
	Memory       memory.Memory      `json:"memory,omitzero"`
	Redact       redact.Rules       `json:"redact,omitzero"`
	Names        *redact.Names      `json:"names,omitempty"`
	PausedUntil  int64              `json:"paused_until,omitempty"`
	Scores       []memory.Score     `json:"scores,omitempty"`
	Checks       []string           `json:"checks,omitempty"`
	Cold         *memory.Cold       `json:"cold,omitempty"`
}

// upstream is memory.Upstream with the secrets in clear.
type upstream struct {
	Name    string            `json:"name"`
	URL     string            `json:"url"`
	APIKey  string            `json:"api_key,omitempty"`
	Vendor  string            `json:"vendor,omitempty"`
	Model   string            `json:"model,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`

	Thoughts string `json:"thoughts,omitempty"`
	Shape    string `json:"shape,omitempty"`
	Cache    string `json:"cache,omitempty"`
}

// revealed returns an upstream with its secrets in clear.
func revealed(u *memory.Upstream) upstream {
	return upstream{
		Name: u.Name, URL: u.URL, APIKey: string(u.APIKey), Vendor: u.Vendor, Model: u.Model, Headers: secret.RevealMap(u.Headers),
		Thoughts: u.Thoughts, Shape: u.Shape, Cache: u.Cache,
	}
}

// hidden returns an upstream whose secrets are not shown.
func (u *upstream) hidden() memory.Upstream {
	return memory.Upstream{
		Name: u.Name, URL: u.URL, APIKey: secret.String(u.APIKey), Vendor: u.Vendor, Model: u.Model, Headers: secret.Map(u.Headers),
		Thoughts: u.Thoughts, Shape: u.Shape, Cache: u.Cache,
	}
}

// settingsJSON leaves out every zero field, for most settings of an agent are: lists of agents and
// the start of a server spend most of their time in reading settings.
var settingsJSON = fastjson.JoinOptions(
	bodyJSON, fastjson.OmitZeroStructFields(true), fastjson.Deterministic(true), jsontext.PreserveRawStrings(true))

// EncodeSettings returns settings as JSON with all secrets in clear.
func EncodeSettings(s memory.Settings) ([]byte, error) { return encodeSettings(s, nil) }

func encodeSettings(s memory.Settings, cold *memory.Cold) ([]byte, error) {
	out := settings{
		Channel: s.Channel, Labels: s.Labels, IdleTimeoutS: s.IdleTimeoutS, LLM: s.LLM, APIKey: string(s.LLM.APIKey),
		Headers: secret.RevealMap(s.LLM.Headers), Silence: s.Silence, Farewell: s.Farewell, Call: s.Call, WarnedMS: s.WarnedMS,
		LeaveKey: s.LeaveKey, Archive: s.Archive, Scope: s.Scope, Memory: s.Memory, Redact: s.Redact, Names: s.Names,
		PausedUntil: s.PausedUntilMS, Scores: s.Scores, Checks: s.Checks, Cold: cold,
	}
	for _, u := range s.LLM.Upstreams {
		out.Upstreams = append(out.Upstreams, revealed(&u))
	}
	if u := s.LLM.Realtime; u != nil {
		shown := revealed(u)
		out.Realtime = &shown
	}
	if len(s.Filler.Phrases) > 0 {
		out.Filler = &s.Filler
	}
	out.LLM.APIKey, out.LLM.Headers, out.LLM.Upstreams, out.LLM.Realtime = "", nil, nil, nil
	return fastjson.Marshal(out, settingsJSON)
}

// DecodeSettings reads what EncodeSettings wrote.
func DecodeSettings(b []byte) (memory.Settings, error) {
	s, _, err := decodeSettings(b)
	return s, err
}

func decodeSettings(b []byte) (memory.Settings, *memory.Cold, error) {
	var in settings
	if err := fastjson.Unmarshal(b, &in, bodyJSON); err != nil {
		return memory.Settings{}, nil, fmt.Errorf("settings: %w: %w", ErrUnreadable, err)
	}
	s := memory.Settings{
		Channel: in.Channel, Labels: in.Labels, IdleTimeoutS: in.IdleTimeoutS, LLM: in.LLM, Silence: in.Silence,
		Farewell: in.Farewell, Call: in.Call, WarnedMS: in.WarnedMS, LeaveKey: in.LeaveKey, Archive: in.Archive, Scope: in.Scope,
		Memory: in.Memory, Redact: in.Redact, Names: in.Names, PausedUntilMS: in.PausedUntil, Scores: in.Scores, Checks: in.Checks,
	}
	s.LLM.APIKey, s.LLM.Headers = secret.String(in.APIKey), secret.Map(in.Headers)
	for _, u := range in.Upstreams {
		s.LLM.Upstreams = append(s.LLM.Upstreams, u.hidden())
	}
	if u := in.Realtime; u != nil {
		hidden := u.hidden()
		s.LLM.Realtime = &hidden
	}
	if in.Filler != nil {
		s.Filler = *in.Filler
	}
	if string(s.LLM.Params) == "null" { // encoding/json writes it for none
		s.LLM.Params = nil
	}
	return s, in.Cold, nil
}
