package handlers

import (
	"encoding/json"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/ossa"
	"github.com/heardlog/heardlog/ossa/model"
)

// modelAPI serves memory models of the Open Standard for Software Agents (OSSA).
type modelAPI struct {
	bodies
	models *model.Service
}

// modelRequest is an OSSA document and what is needed to read it.
type modelRequest struct {
	Document  json.RawMessage   `json:"document"`
	Part      string            `json:"part" validate:"max=256"`
	Variables map[string]string `json:"variables"`
}

// readModel reads a request, which may be YAML, or a document alone.
func (a modelAPI) readModel(w http.ResponseWriter, r *http.Request) (modelRequest, error) {
	body, err := a.readRaw(w, r)
	if err == nil {
		body, err = ossa.ToJSON(body)
	}
	if err != nil {
		return modelRequest{}, err
	}
	if jsonDepth(body) > MaxDepth {
		return modelRequest{}, fault.New(fault.BadRequest, "the document nests deeper than %d levels", MaxDepth)
	}
	if err := checkRepeated(r, body); err != nil {
		return modelRequest{}, err
	}
	if !wrapped(body) {
		return modelRequest{Document: body}, nil
	}
	var in modelRequest
	return in, a.unmarshal(body, &in, true)
}

// checkModel checks an OSSA MemoryModel document and reports which of its settings have an
// effect here. It stores nothing.
func (a modelAPI) checkModel(w http.ResponseWriter, r *http.Request) error {
	in, err := a.readModel(w, r)
	if err != nil {
		return err
	}
	report, err := ossa.Validate(ossa.Document{JSON: in.Document, Part: in.Part, Variables: in.Variables, Host: a.models.Host})
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, report)
}

// memoryModelJSON is a stored model with what it means here.
type memoryModelJSON struct {
	Name      string            `json:"name"`
	UpdatedAt timeMS            `json:"updated_at"`
	Document  json.RawMessage   `json:"document"`
	Variables map[string]string `json:"variables,omitempty"`
	ossa.Report
}

func newMemoryModelJSON(m *model.Model) memoryModelJSON {
	return memoryModelJSON{Name: m.Name, UpdatedAt: timeMS(m.UpdatedMS), Document: m.Document, Variables: m.Variables, Report: m.Report}
}

// put serves PUT /v1/memory-models/{name}.
func (a modelAPI) put(w http.ResponseWriter, r *http.Request) error {
	in, err := a.readModel(w, r)
	if err != nil {
		return err
	}
	if in.Part != "" {
		return fault.At(fault.Invalid, "part", "must be absent: a whole document is stored")
	}
	m, err := a.models.Put(r.Context(), projectOf(r), chi.URLParam(r, "name"), in.Document, in.Variables)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, newMemoryModelJSON(&m))
}

// get serves GET /v1/memory-models/{name}.
func (a modelAPI) get(r *http.Request) (any, error) {
	return shown(newMemoryModelJSON)(a.models.Get(r.Context(), projectOf(r), chi.URLParam(r, "name")))
}

// delete serves DELETE /v1/memory-models/{name}. An unknown model is not an error.
func (a modelAPI) delete(r *http.Request) error {
	return a.models.Delete(r.Context(), projectOf(r), chi.URLParam(r, "name"))
}

// memoryModelName is a model in a list.
type memoryModelName struct {
	Name      string `json:"name"`
	UpdatedAt timeMS `json:"updated_at"`
}

// list serves GET /v1/memory-models.
func (a modelAPI) list(r *http.Request) (any, error) {
	query := r.URL.Query()
	limit, err := intParam(query, "limit", model.MaxModels, 1, model.MaxModels)
	if err != nil {
		return nil, err
	}
	after := query.Get("cursor")
	if after != "" {
		if err := model.CheckName("cursor", after); err != nil {
			return nil, err
		}
	}
	page, err := a.models.List(r.Context(), projectOf(r), after, limit+1)
	page, next := cutPage(page, limit, func(x model.Model) string { return x.Name })
	return struct {
		Models     []memoryModelName `json:"memory_models"`
		NextCursor string            `json:"next_cursor,omitempty"`
	}{each(page, func(m *model.Model) memoryModelName { return memoryModelName{m.Name, timeMS(m.UpdatedMS)} }), next}, err
}

// settingsJSON is what holds for an agent with a memory model.
type settingsJSON struct {
	Policy      window.Policy      `json:"policy"`
	IdleTimeout int                `json:"idle_timeout_seconds"`
	MaxSessions int                `json:"max_sessions,omitempty"`
	Working     ossa.WorkingMemory `json:"working_memory"`
	AgentState  *ossa.AgentState   `json:"agent_state,omitempty"`
	History     *ossa.History      `json:"conversation_history,omitempty"`
}

// settingsJSON returns nil for an agent without a memory model.
func (a agentAPI) settingsJSON(g *memory.Agent) *settingsJSON {
	m := &g.Settings.Memory
	if m.Model == "" {
		return nil
	}
	out := &settingsJSON{
		Policy: a.memory.Policies.Of(g, nil), IdleTimeout: g.Settings.IdleTimeoutS, MaxSessions: m.MaxSessions,
		Working: ossa.WorkingMemory{Enabled: !m.Working.Off, MaxSizeMB: int64(m.Working.MaxSizeMB), TTLSeconds: int64(m.Working.TTL)},
	}
	if c := m.Checkpoints; c.EverySeconds > 0 {
		out.AgentState = &ossa.AgentState{IntervalSeconds: int64(c.EverySeconds), MaxCheckpoints: int64(c.Max), Compression: !c.Plain}
	}
	if k := m.Kept; k != (memory.Kept{}) {
		out.History = &ossa.History{RetentionDays: int64(k.Days), Indexing: !k.Unindexed, Summarization: k.Summarize}
	}
	return out
}

// wrapped reports whether a body holds a document as a member, instead of being one.
func wrapped(body []byte) bool {
	var keys map[string]json.RawMessage
	if json.Unmarshal(body, &keys) != nil {
		return false
	}
	_, version := keys["apiVersion"]
	_, kind := keys["kind"]
	_, document := keys["document"]
	return document && !version && !kind
}
