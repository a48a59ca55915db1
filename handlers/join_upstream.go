package handlers

import (
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/input"
	"github.com/heardlog/heardlog/realtime"
)

// upstreamProperties is an LLM to call if the one before it fails before its answer begins.
type upstreamProperties struct {
	Name    string            `json:"name" validate:"max=64"`
	URL     string            `json:"url" validate:"required,max=2048"`
	APIKey  string            `json:"api_key" validate:"max=8192"`
	Vendor  string            `json:"vendor" validate:"max=64"`
	Model   string            `json:"model" validate:"max=256"`
	Headers map[string]string `json:"headers" validate:"max=64"`
	promptProperties
}

// realtimeProperties is the server of a speech-to-speech model.
type realtimeProperties struct {
	URL     string            `json:"url" validate:"required,max=2048"`
	APIKey  string            `json:"api_key" validate:"max=8192"`
	Headers map[string]string `json:"headers" validate:"max=64"`
}

// promptProperties is what the prompts of an LLM look like.
type promptProperties struct {
	Thoughts string `json:"thoughts" validate:"omitempty,oneof=calls all never"`
	Shape    string `json:"shape" validate:"omitempty,oneof=as_is one_system alternate"`
	Cache    string `json:"cache" validate:"omitempty,oneof=off openai anthropic"`
}

// upstreamRules checks what tags cannot.
func (p *joinProperties) upstreamRules() error {
	if u := p.Heardlog.Realtime; u != nil {
		const at = "properties.heardlog.realtime"
		if err := checkURL(at+".url", realtime.WebURL(u.URL)); err != nil {
			return err
		}
		if err := checkSent(at, u.APIKey, u.Headers); err != nil {
			return err
		}
	}
	seen := map[string]bool{turn.PrimaryUpstream: true}
	for i := range p.Heardlog.Upstreams {
		u := &p.Heardlog.Upstreams[i]
		at := "properties.heardlog.upstreams[" + strconv.Itoa(i) + "]"
		name := u.named(i)
		if !input.AgentID(name) {
			return fault.At(fault.Invalid, at+".name", "must consist of letters, digits, dot, dash and underscore")
		}
		if seen[name] {
			return fault.At(fault.Invalid, at+".name", "%q is used already; names must be unique, and %s is that of llm.url", name, turn.PrimaryUpstream)
		}
		seen[name] = true
		if err := checkURL(at+".url", u.URL); err != nil {
			return err
		}
		if err := checkSent(at, u.APIKey, u.Headers); err != nil {
			return err
		}
	}
	return nil
}

func (u *upstreamProperties) named(i int) string {
	if u.Name == "" {
		return "fallback-" + strconv.Itoa(i+1)
	}
	return u.Name
}

// upstreams returns the list as the domain takes it.
func (p *joinProperties) upstreams() []memory.Upstream {
	var out []memory.Upstream
	for i := range p.Heardlog.Upstreams {
		u := &p.Heardlog.Upstreams[i]
		out = append(out, memory.Upstream{
			Name: u.named(i), URL: u.URL, APIKey: secret.String(u.APIKey), Vendor: u.Vendor, Model: u.Model, Headers: secret.Map(u.Headers),
			Thoughts: u.Thoughts, Shape: u.Shape, Cache: u.Cache,
		})
	}
	return out
}

// realtime returns the server of the speech-to-speech model as the domain takes it.
func (p *joinProperties) realtime() *memory.Upstream {
	u := p.Heardlog.Realtime
	if u == nil {
		return nil
	}
	return &memory.Upstream{URL: u.URL, APIKey: secret.String(u.APIKey), Headers: secret.Map(u.Headers)}
}

// checkSent checks that a header can carry the key and the headers.
func checkSent(at, key string, headers map[string]string) error {
	for name, value := range headers {
		if !headerName(name) {
			return fault.At(fault.Invalid, at+".headers", "must hold header names; %q is not one", text.Clip(name, 60))
		}
		if strings.IndexFunc(value, func(r rune) bool { return (r < 0x20 && r != '\t') || r == 0x7f }) >= 0 {
			return fault.At(fault.Invalid, at+".headers."+name, "must not contain a control character")
		}
	}
	if strings.ContainsAny(key, "\r\n\x00") {
		return fault.At(fault.Invalid, at+".api_key", "must not contain a line break or NUL")
	}
	return nil
}
