package handlers

import (
	"net/http"

	"github.com/heardlog/heardlog/internal/quota"
	"github.com/heardlog/heardlog/internal/tail"
	"github.com/heardlog/heardlog/webhook"
)

// usageAPI shows what a project uses.
type usageAPI struct {
	quota     *quota.Keeper
	tails     *tail.Hub
	webhooks  *webhook.Service
	maxAgents int
}

// amountJSON is how much of something a project has. A limit of 0 means no limit.
type amountJSON struct {
	Used  int64 `json:"used"`
	Limit int64 `json:"limit"`
}

type usageAnswer struct {
	Project   string     `json:"project"`
	Agents    amountJSON `json:"agents"` // live
	Messages  amountJSON `json:"messages"`
	Bytes     amountJSON `json:"bytes"` // of messages
	Endpoints amountJSON `json:"endpoints"`
	Tails     amountJSON `json:"tails"` // open at this server
	Rate      rateJSON   `json:"rate"`
}

// rateJSON is the limits on what a project may do in a second; 0 means no limit.
type rateJSON struct {
	Requests int64 `json:"requests"`
	Messages int64 `json:"messages"`
	Bytes    int64 `json:"bytes"`
}

func (a usageAPI) get(r *http.Request) (any, error) {
	project := projectOf(r)
	used, err := a.quota.Usage(r.Context(), project)
	if err != nil {
		return nil, err
	}
	endpoints, err := a.webhooks.Store.Endpoints(r.Context(), project, "")
	if err != nil {
		return nil, err
	}
	open, most := a.tails.Readers(project)
	rate, limit := a.quota.Limits()
	return usageAnswer{
		Project: project, Agents: amountJSON{used.Agents, int64(a.maxAgents)}, Messages: amountJSON{used.Messages, limit.Messages},
		Bytes: amountJSON{used.Bytes, limit.Bytes}, Endpoints: amountJSON{int64(len(endpoints)), webhook.MaxEndpoints},
		Tails: amountJSON{int64(open), int64(most)}, Rate: rateJSON(rate),
	}, nil
}
