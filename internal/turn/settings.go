package turn

import (
	"maps"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// checkLLM refuses an agent without an LLM, or with one that has another API than OpenAI's. Such an
// agent has history, turns and webhooks, but no proxy.
func (r *Runner) checkLLM(l memory.LLMSettings) error {
	switch {
	case l.Style != "" && l.Style != "openai":
		return fault.At(fault.Unsupported, "llm.style", "%q: only the style openai can be called", l.Style)
	case l.URL == "" && r.cfg.Defaults.URL == "":
		return fault.At(fault.Missing, "llm.url", "is not set for this agent, and the server has no default")
	}
	return nil
}

// settings completes an agent's settings with the server's defaults.
func (r *Runner) settings(a memory.LLMSettings) memory.LLMSettings {
	d := r.cfg.Defaults
	if a.URL == "" {
		a.URL = d.URL
		if len(d.Headers) > 0 {
			own := a.Headers
			a.Headers = maps.Clone(d.Headers)
			maps.Copy(a.Headers, own)
		}
		setDefault(&a.APIKey, d.APIKey)
		setDefault(&a.Vendor, d.Vendor)
	}
	setDefault(&a.Model, d.Model)
	setDefault(&a.OnDisconnect, d.OnDisconnect)
	setDefault(&a.FailureMessage, d.FailureMessage)
	setDefault(&a.ConnectTimeoutMS, d.ConnectTimeoutMS)
	setDefault(&a.FirstTokenTimeoutMS, d.FirstTokenTimeoutMS)
	setDefault(&a.IdleTimeoutMS, d.IdleTimeoutMS)
	setDefault(&a.TotalTimeoutMS, d.TotalTimeoutMS)
	return a
}

// setDefault sets *v to def if it has its zero value.
func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// limitsOf returns the time limits of a call.
func limitsOf(l *memory.LLMSettings) llmadapter.Limits {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	return llmadapter.Limits{
		Connect: ms(l.ConnectTimeoutMS), FirstToken: ms(l.FirstTokenTimeoutMS),
		Idle: ms(l.IdleTimeoutMS), Total: ms(l.TotalTimeoutMS),
	}
}

// reveal returns headers with their secrets in clear.
func reveal(m map[string]secret.String) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = v.Reveal()
	}
	return out
}
