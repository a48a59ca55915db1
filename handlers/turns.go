package handlers

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/turns"
)

type turnsAnswer struct {
	AgentID        string     `json:"agent_id"`
	Name           string     `json:"name"`
	Channel        string     `json:"channel"`
	TotalTurnCount int        `json:"total_turn_count"`
	Pagination     pagination `json:"pagination"`
	Turns          []turnJSON `json:"turns"`
}

type pagination struct {
	PageIndex  int  `json:"page_index"`
	TotalPages int  `json:"total_pages"`
	IsLastPage bool `json:"is_last_page"`
}

type turnJSON struct {
	TurnID  int64    `json:"turn_id"`
	AgentID string   `json:"agent_id"`
	Channel string   `json:"channel"`
	Start   turnEdge `json:"start"`
	End     *turnEnd `json:"end,omitempty"` // absent while the turn is open
	Metrics metrics  `json:"metrics"`
}

type turnEdge struct {
	StartAt  int64          `json:"start_at"` // Unix ms
	Type     string         `json:"type"`
	Metadata map[string]any `json:"metadata"`
}

type turnEnd struct {
	EndAt    int64          `json:"end_at"` // Unix ms
	Type     string         `json:"type"`
	Metadata map[string]any `json:"metadata"`
}

type metrics struct {
	E2E       int64     `json:"e2e_latency_ms"`
	Segmented []latency `json:"segmented_latency_ms"`
}

type latency struct {
	Name    string `json:"name"`
	Latency int64  `json:"latency"`
}

// Page sizes of the turn table, as in Agora's API.
const (
	defaultTurnPage          = 50
	minTurnPage, maxTurnPage = 10, 200
)

func (a messageAPI) turns(r *http.Request) (any, error) {
	query := r.URL.Query()
	size, err := intParam(query, "page_size", defaultTurnPage, minTurnPage, maxTurnPage)
	if err != nil {
		return nil, err
	}
	page, err := intParam(query, "page_index", 1, 1, 1<<31)
	if err != nil {
		return nil, err
	}
	agent, rows, err := turns.Read(r.Context(), a.memory.Messages, projectOf(r), chi.URLParam(r, "id"))
	if err != nil {
		return nil, err
	}
	pages := max(1, (len(rows)+size-1)/size)
	out := turnsAnswer{
		AgentID: agent.ID, Name: agent.ShownName(), Channel: agent.Settings.Channel, TotalTurnCount: len(rows), Turns: []turnJSON{},
		Pagination: pagination{PageIndex: page, TotalPages: pages, IsLastPage: page >= pages},
	}
	from := min(len(rows), (page-1)*size)
	for _, row := range rows[from:min(len(rows), from+size)] {
		out.Turns = append(out.Turns, newTurnJSON(agent, row))
	}
	return out, nil
}

func newTurnJSON(a memory.Agent, row turns.Row) turnJSON {
	t := turnJSON{
		TurnID: row.TurnID, AgentID: a.ID, Channel: a.Settings.Channel,
		Start:   turnEdge{StartAt: row.StartMS, Type: row.StartType, Metadata: row.StartMetadata()},
		Metrics: metrics{E2E: row.E2EMS, Segmented: []latency{}},
	}
	for _, l := range row.Latencies() {
		t.Metrics.Segmented = append(t.Metrics.Segmented, latency{l.Name, l.MS})
	}
	if row.EndType != "" {
		t.End = &turnEnd{EndAt: row.EndMS, Type: row.EndType, Metadata: row.EndMetadata()}
	}
	return t
}
