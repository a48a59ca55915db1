package handlers

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/webhook"
)

// overviewAPI shows what the calls of a project did over time.
type overviewAPI struct {
	agents   *agents.Agents
	webhooks *webhook.Service
	now      func() time.Time
}

// tallyJSON counts what happened in one call.
type tallyJSON struct {
	Answers          int64            `json:"answers"`
	Interruptions    int64            `json:"interruptions"`
	Failures         int64            `json:"failures"`
	Ghosts           int64            `json:"ghosts"`
	GeneratedTokens  int64            `json:"generated_tokens"`
	UnheardTokens    int64            `json:"unheard_tokens"`
	PromptTokens     int64            `json:"prompt_tokens"`
	CompletionTokens int64            `json:"completion_tokens"`
	CachedTokens     int64            `json:"cached_tokens,omitzero"`   // of the prompts
	Cost             *costJSON        `json:"cost,omitempty"`           // nil if nothing had a price
	FirstToken       *percentileJSON  `json:"first_token_ms,omitempty"` // nil if none was measured
	FailedAt         map[string]int64 `json:"failures_by_upstream,omitempty"`
	// Silence is the longest one; 0 if it is not known, or none.
	Silence         int64 `json:"longest_silence_ms,omitzero"`
	*tallyWordsJSON       // nil if they are not known
}

// tallyWordsJSON is what earlier versions have not counted.
type tallyWordsJSON struct {
	Words        int64    `json:"words"`
	UnheardWords int64    `json:"unheard_words"`
	GhostWords   int64    `json:"ghost_words"`
	UnheardShare *float64 `json:"unheard_share,omitempty"` // nil if nothing is known of what was heard
	evidenceCounts
}

// evidenceCounts are the counts that reports have, too.
type evidenceCounts struct {
	Evident   int64 `json:"answers_with_evidence"`
	ToolCalls int64 `json:"tool_calls"`
	ToolsOpen int64 `json:"tool_calls_without_result"`
}

func newTallyWords(t *memory.Tally) *tallyWordsJSON {
	out := &tallyWordsJSON{t.Words, t.UnheardWords, t.GhostWords, nil, evidenceCounts{t.Evident, t.ToolCalls, t.ToolsOpen()}}
	if share, known := t.TallyWords.UnheardShare(); known {
		out.UnheardShare = &share
	}
	return out
}

// costJSON is what answers cost, in US dollars.
type costJSON struct {
	USD       float64 `json:"usd"`
	Unheard   float64 `json:"unheard_usd"`        // the part for words that were not heard
	Estimated float64 `json:"estimated_usd"`      // the part for answers without reported tokens
	Saved     float64 `json:"saved_usd,omitzero"` // how much more it would be without prompt caches
}

// newCost converts billionths of a dollar.
func newCost(all, unheard, estimated, saved int64) *costJSON {
	return &costJSON{float64(all) / 1e9, float64(unheard) / 1e9, float64(estimated) / 1e9, float64(saved) / 1e9}
}

// costOf returns the cost of an answer, nil if it has none.
func costOf(m *memory.Message) *costJSON {
	c := m.Made().Cost
	if c == nil {
		return nil
	}
	estimated := int64(0)
	if c.Estimated {
		estimated = c.In + c.Out
	}
	return newCost(c.In+c.Out, m.UnheardCost(), estimated, c.Saved)
}

type percentileJSON struct {
	P50 int64 `json:"p50"`
	P95 int64 `json:"p95"`
	Max int64 `json:"max"`
}

// tallyOf returns the JSON of a tally, which may be nil.
func tallyOf(t *memory.Tally) tallyJSON {
	if t == nil {
		t = &memory.Tally{}
	}
	out := tallyJSON{
		Answers: t.Answers, Interruptions: t.Interruptions, Failures: t.Failures, Ghosts: t.Ghosts, GeneratedTokens: t.Generated, UnheardTokens: t.Unheard,
		PromptTokens: t.Prompt, CompletionTokens: t.Completion, CachedTokens: t.Cached, FailedAt: failedAt(t.FailedAt),
	}
	if t.Whole() {
		out.tallyWordsJSON = newTallyWords(t)
	}
	if t.Cost > 0 {
		out.Cost = newCost(t.Cost, t.UnheardCost, t.EstimatedCost, t.Saved)
	}
	if len(t.FirstToken) > 0 {
		out.FirstToken = &percentileJSON{t.Percentile(0.5), t.Percentile(0.95), t.Slowest()}
	}
	return out
}

// bucketJSON counts what happened in the calls that started in a part of the time.
type bucketJSON struct {
	StartAt string `json:"start_at"`
	Calls   int64  `json:"calls"`
	Turns   int64  `json:"turns"`
	tallyJSON
	BargeInRate *float64 `json:"barge_in_rate,omitempty"` // nil without answers
}

func bucketOf(b *memory.Bucket) bucketJSON {
	out := bucketJSON{StartAt: shownTime(b.StartMS), Calls: b.Calls, Turns: b.Turns, tallyJSON: tallyOf(&b.Tally)}
	out.BargeInRate = shareOf(b.Interruptions, b.Answers)
	if b.Counted > 0 { // of some calls, or of all
		out.tallyWordsJSON = newTallyWords(&b.Tally)
	}
	return out
}

// failedAt returns failures by the names of upstreams; nil for none.
func failedAt(list []memory.Count[string]) map[string]int64 {
	var out map[string]int64
	for _, failed := range list {
		if out == nil {
			out = map[string]int64{}
		}
		out[cmp.Or(failed.Of, "unknown")] += failed.N
	}
	return out
}

// get serves GET /v1/overview.
func (a overviewAPI) get(r *http.Request) (any, error) {
	v := r.URL.Query()
	now := a.now()
	from, to, err := spanParams(v, now)
	if err != nil {
		return nil, err
	}
	if to == 0 {
		to = now.UnixMilli()
	}
	if from == 0 {
		from = to - (24 * time.Hour).Milliseconds()
	}
	project := projectOf(r)
	over, err := a.agents.Overview(r.Context(), project, from, to)
	if err != nil {
		return nil, err
	}
	out := struct {
		Since         string       `json:"since"`
		Until         string       `json:"until"`
		BucketSeconds int64        `json:"bucket_seconds"`
		Totals        bucketJSON   `json:"totals"`
		Buckets       []bucketJSON `json:"buckets"`
		Webhooks      struct {
			Pending     int  `json:"pending"`
			PendingMore bool `json:"pending_more,omitzero"` // than Pending
			Dead        int  `json:"dead"`
			DeadMore    bool `json:"dead_more,omitzero"`
		} `json:"webhooks"`
	}{Since: shownTime(over.FromMS), Until: shownTime(to), BucketSeconds: int64(over.Width / time.Second), Totals: bucketOf(&over.Total)}
	for i := range over.Buckets {
		out.Buckets = append(out.Buckets, bucketOf(&over.Buckets[i]))
	}
	w := &out.Webhooks
	if w.Pending, w.PendingMore, err = a.deliveries(r.Context(), project, webhook.Pending); err != nil {
		return nil, err
	}
	if w.Dead, w.DeadMore, err = a.deliveries(r.Context(), project, webhook.Dead); err != nil {
		return nil, err
	}
	return out, nil
}

// deliveries counts the deliveries of a project in a state, up to webhook.MaxPage, and reports
// whether there are more.
func (a overviewAPI) deliveries(ctx context.Context, project string, state webhook.DeliveryState) (n int, more bool, err error) {
	page, err := a.webhooks.Store.Deliveries(ctx, webhook.DeliveryQuery{Project: project, States: []webhook.DeliveryState{state}, Limit: webhook.MaxPage})
	return len(page.Deliveries), page.Next != "", err
}
