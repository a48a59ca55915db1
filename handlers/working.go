package handlers

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/kv"
)

// workingProperties is properties.heardlog.working_memory.
type workingProperties struct {
	Enabled    *bool `json:"enabled"`
	MaxSizeMB  int   `json:"max_size_mb" validate:"omitempty,min=1,max=1024"`
	TTLSeconds int   `json:"ttl_seconds" validate:"omitempty,min=60,max=86400"`
}

func (p *workingProperties) settings() memory.WorkingSettings {
	return memory.WorkingSettings{Off: p.Enabled != nil && !*p.Enabled, MaxSizeMB: p.MaxSizeMB, TTL: p.TTLSeconds}
}

// workingAPI serves the working memory of an agent.
type workingAPI struct {
	bodies
	working *kv.Working
	memory  *agents.Service
}

// workingKeyJSON is an entry without its value.
type workingKeyJSON struct {
	Key       string `json:"key"`
	Bytes     int64  `json:"bytes"`
	UpdatedMS int64  `json:"updated_ms"`
	ExpiresMS int64  `json:"expires_ms"`
}

func newWorkingKey(e *kv.Entry) workingKeyJSON {
	return workingKeyJSON{Key: e.Key, Bytes: e.Size(), UpdatedMS: e.UpdatedMS, ExpiresMS: e.ExpiresMS}
}

// putWorkingRequest is the body of a write.
type putWorkingRequest struct {
	Value      json.RawMessage `json:"value"`
	TTLSeconds *int            `json:"ttl_seconds" validate:"omitempty,min=60,max=86400"`
}

func (a workingAPI) put(w http.ResponseWriter, r *http.Request) error {
	body, err := a.readDocument(w, r, a.limit)
	if err != nil {
		return err
	}
	var in putWorkingRequest
	if err := a.unmarshal(body, &in, true); err != nil {
		return err
	}
	key, err := pathName(r, "key")
	if err != nil {
		return err
	}
	ttl := 0
	if in.TTLSeconds != nil {
		ttl = *in.TTLSeconds
	}
	agent, err := a.memory.Agent(r.Context(), projectOf(r), chi.URLParam(r, "id"))
	if err != nil {
		return err
	}
	value := a.memory.Redactor(&agent).JSON(in.Value)
	e, err := a.working.Put(r.Context(), projectOf(r), agent.ID, key, value, ttl)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, newWorkingKey(&e))
}

func (a workingAPI) get(w http.ResponseWriter, r *http.Request) error {
	key, err := pathName(r, "key")
	if err != nil {
		return err
	}
	e, err := a.working.Get(r.Context(), projectOf(r), chi.URLParam(r, "id"), key)
	if err != nil {
		return err
	}
	b, err := marshal(newWorkingKey(&e))
	if err != nil {
		return err
	}
	// The value follows as it was stored, byte for byte, which an encoder would not keep.
	b = append(bytes.TrimSuffix(b, []byte("}")), `,"value":`...)
	writeJSON(w, http.StatusOK, append(append(b, e.Value...), "}\n"...))
	return nil
}

func (a workingAPI) delete(w http.ResponseWriter, r *http.Request) error {
	key, err := pathName(r, "key")
	if err != nil {
		return err
	}
	found, err := a.working.Delete(r.Context(), projectOf(r), chi.URLParam(r, "id"), key)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, struct {
		Deleted bool `json:"deleted"`
	}{found})
}

// Page sizes of the list of keys.
const (
	defaultWorkingPage = 100
	maxWorkingPage     = 1000
)

// workingList is a page of keys. NextCursor is the last key, "" on the last page.
type workingList struct {
	Keys       []workingKeyJSON `json:"keys"`
	Total      int              `json:"total"`
	Bytes      int64            `json:"bytes"`
	MaxBytes   int64            `json:"max_bytes"`
	NextCursor string           `json:"next_cursor,omitempty"`
}

func (a workingAPI) list(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	limit, err := intParam(query, "limit", defaultWorkingPage, 1, maxWorkingPage)
	if err != nil {
		return err
	}
	after := query.Get("cursor")
	if after != "" {
		if err := text.ValidName("cursor", after, kv.MaxWorkingKey); err != nil {
			return err
		}
	}
	page, most, err := a.working.Keys(r.Context(), projectOf(r), chi.URLParam(r, "id"), after, limit+1)
	if err != nil {
		return err
	}
	out := workingList{Keys: []workingKeyJSON{}, Total: page.Total, Bytes: page.Bytes, MaxBytes: most.Bytes}
	if len(page.Keys) > limit {
		page.Keys = page.Keys[:limit]
		out.NextCursor = page.Keys[limit-1].Key
	}
	for _, k := range page.Keys {
		out.Keys = append(out.Keys, workingKeyJSON(k))
	}
	return encode(w, http.StatusOK, out)
}

func (a workingAPI) clear(w http.ResponseWriter, r *http.Request) error {
	n, err := a.working.Clear(r.Context(), projectOf(r), chi.URLParam(r, "id"))
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, removedJSON{Removed: n})
}
