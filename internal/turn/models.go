package turn

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// modelsTimeout limits a request for the upstream's models.
const modelsTimeout = 30 * time.Second

// Models answers with the upstream's list of models or, if model is not "", with that model of the
// list. agent holds the settings to use; its zero value means the server's default LLM.
func (r *Runner) Models(w http.ResponseWriter, req *http.Request, agent memory.LLMSettings, model string) error {
	call, limits, err := r.besideChat(req, agent, "/models", "")
	if err != nil {
		return err
	}
	total := modelsTimeout
	if limits.Total > 0 {
		total = min(total, limits.Total)
	}
	ctx, stop := context.WithTimeoutCause(req.Context(), total, llmadapter.ErrTotalTimeout)
	defer stop()
	res, err := r.cfg.Client.Do(ctx, call)
	if err != nil {
		return r.upstreamFault(w, err)
	}
	defer res.Body.Close()
	body, err := readWhole(res)
	if err != nil {
		return llmadapter.ReadFault(ctx, err)
	}
	if model != "" {
		if body, err = llmadapter.OneModel(body, model); err != nil {
			return err
		}
	}
	w.Header().Set("Content-Type", "application/json")
	r.newWriter(w, &timing{}).writeBody(http.StatusOK, body)
	return nil
}

// besideChat returns the call for a path beside the upstream's chat completions, and its time
// limits.
func (r *Runner) besideChat(req *http.Request, agent memory.LLMSettings, path, query string) (*llmadapter.Call, llmadapter.Limits, error) {
	llm := r.settings(agent)
	azure, limits := llmadapter.IsAzure(llm.URL, llm.Vendor), limitsOf(&llm)
	url, ok := llmadapter.BeneathChat(llmadapter.ChatURL(llm.URL, azure, agent.URL != ""), path, query)
	switch {
	case r.cfg.Client.Looped(req.Header):
		return nil, limits, fault.At(fault.Invalid, "llm.url", "points back at this server")
	case llm.URL == "":
		return nil, limits, fault.At(fault.Missing, "llm.url", "is not set for the agent, and the server has none: set HEARDLOG_LLM_URL")
	case !ok:
		return nil, limits, fault.At(fault.Unsupported, "llm.url", "does not end in /chat/completions, so that the addresses beside it are not known")
	}
	return &llmadapter.Call{
		URL: url, APIKey: llm.APIKey.Reveal(), Azure: azure, Headers: secret.RevealMap(llm.Headers), Client: req.Header, Connect: limits.Connect,
	}, limits, nil
}

// upstreamFault passes on an upstream's error. It returns any other error to the handler.
func (r *Runner) upstreamFault(w http.ResponseWriter, err error) error {
	if up, ok := errors.AsType[*llmadapter.UpstreamError](err); ok {
		r.newWriter(w, &timing{}).passError(up)
		return nil
	}
	return err
}
