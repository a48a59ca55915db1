package turn

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// modelsTimeout limits a request for the upstream's models.
const modelsTimeout = 30 * time.Second

// Models answers with the upstream's list of models. agent holds the settings to use; its zero
// value means the server's default LLM.
func (r *Runner) Models(w http.ResponseWriter, req *http.Request, agent memory.LLMSettings) error {
	if r.cfg.Client.Looped(req.Header) {
		return fault.At(fault.Invalid, "llm.url", "points back at this server")
	}
	llm := r.settings(agent)
	if llm.URL == "" {
		return fault.At(fault.Missing, "llm.url", "is not set, and the server has no default")
	}
	azure := llmadapter.IsAzure(llm.URL, llm.Vendor)
	url, ok := llmadapter.BeneathChat(llmadapter.ChatURL(llm.URL, azure, agent.URL != ""), "/models", "")
	if !ok {
		return fault.At(fault.Unsupported, "llm.url", "does not end in /chat/completions, so that the address of its models is not known")
	}
	total := modelsTimeout
	if llm.TotalTimeoutMS > 0 {
		total = min(total, time.Duration(llm.TotalTimeoutMS)*time.Millisecond)
	}
	ctx, stop := context.WithTimeoutCause(req.Context(), total, llmadapter.ErrTotalTimeout)
	defer stop()
	res, err := r.cfg.Client.Do(ctx, &llmadapter.Call{
		URL: url, APIKey: llm.APIKey.Reveal(), Headers: reveal(llm.Headers), Client: req.Header, Azure: azure,
		Connect: time.Duration(llm.ConnectTimeoutMS) * time.Millisecond,
	})
	if err != nil {
		return r.upstreamFault(w, err)
	}
	defer res.Body.Close()
	body, err := readWhole(res)
	if err != nil {
		return llmadapter.ReadFault(ctx, err)
	}
	w.Header().Set("Content-Type", "application/json")
	r.newWriter(w, &timing{}).writeBody(http.StatusOK, body)
	return nil
}

// upstreamFault passes on an upstream's error. It returns any other error to the handler.
func (r *Runner) upstreamFault(w http.ResponseWriter, err error) error {
	if up, ok := errors.AsType[*llmadapter.UpstreamError](err); ok {
		r.newWriter(w, &timing{}).passError(up)
		return nil
	}
	return err
}
