package turn

import (
	"cmp"
	"maps"
	"net/http"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
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
		return fault.At(fault.Missing, "llm.url", "is not set for the agent, and the server has none: set HEARDLOG_LLM_URL")
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
			for name, v := range own {
				a.Headers[http.CanonicalHeaderKey(name)] = v
			}
		}
		a.APIKey = cmp.Or(a.APIKey, d.APIKey)
		a.Vendor = cmp.Or(a.Vendor, d.Vendor)
		a.Thoughts, a.Shape, a.Cache = cmp.Or(a.Thoughts, d.Thoughts), cmp.Or(a.Shape, d.Shape), cmp.Or(a.Cache, d.Cache)
		if a.Members == nil {
			a.Members = d.Members
		}
	}
	a.Model = cmp.Or(a.Model, d.Model)
	a.OnDisconnect = cmp.Or(a.OnDisconnect, d.OnDisconnect)
	a.FailureMessage = cmp.Or(a.FailureMessage, d.FailureMessage)
	a.ConnectTimeoutMS = cmp.Or(a.ConnectTimeoutMS, d.ConnectTimeoutMS)
	a.FirstTokenTimeoutMS = cmp.Or(a.FirstTokenTimeoutMS, d.FirstTokenTimeoutMS)
	a.IdleTimeoutMS = cmp.Or(a.IdleTimeoutMS, d.IdleTimeoutMS)
	a.TotalTimeoutMS = cmp.Or(a.TotalTimeoutMS, d.TotalTimeoutMS)
	return a
}

// limitsOf returns the time limits of a call.
func limitsOf(l *memory.LLMSettings) llmadapter.Limits {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	return llmadapter.Limits{Connect: ms(l.ConnectTimeoutMS), FirstToken: ms(l.FirstTokenTimeoutMS), Idle: ms(l.IdleTimeoutMS), Total: ms(l.TotalTimeoutMS)}
}
