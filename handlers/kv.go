package handlers

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/redact"
)

// kvAPI serves keys and values: the namespaces of a project, and the working memories of agents.
type kvAPI struct {
	bodies
	kv        *kv.Service
	memory    *agents.Service
	namespace func(*http.Request) string
	checkTTL  func(seconds int) (int, error) // what the path makes of a time to live
}

func newKVAPI(b bodies, s *kv.Service, m *agents.Service) kvAPI {
	return kvAPI{
		bodies: b, kv: s, memory: m,
		namespace: func(r *http.Request) string { return pathName(r, "namespace") },
		checkTTL:  func(ttl int) (int, error) { return ttl, nil },
	}
}

// kvKeyJSON is an entry without its value. ExpiresAt is missing if the entry has no end.
type kvKeyJSON struct {
	Key       string `json:"key"`
	Bytes     int64  `json:"bytes"`
	UpdatedAt string `json:"updated_at"`
	ExpiresAt string `json:"expires_at,omitempty"`
	Pinned    bool   `json:"pinned,omitempty"`
}

func newKVKey(k *kv.Key) kvKeyJSON {
	out := kvKeyJSON{Key: k.Key, Bytes: k.Bytes, UpdatedAt: shownTime(k.UpdatedMS), Pinned: k.Pinned}
	if k.ExpiresMS != kv.Never {
		out.ExpiresAt = shownTime(k.ExpiresMS)
	}
	return out
}

func newKVEntryKey(e *kv.Entry) kvKeyJSON {
	return newKVKey(&kv.Key{Key: e.Key, Bytes: e.Size(), UpdatedMS: e.UpdatedMS, ExpiresMS: e.ExpiresMS, Pinned: e.Pinned})
}

// kvEntry returns an entry as JSON. The value is in it as it was stored, byte for byte, which an
// encoder would not keep.
func kvEntry(e *kv.Entry) ([]byte, error) {
	b, err := marshal(newKVEntryKey(e))
	if err != nil {
		return nil, err
	}
	b = append(bytes.TrimSuffix(bytes.TrimSpace(b), []byte("}")), `,"value":`...)
	return append(append(b, e.Value...), '}'), nil
}

// ttlSeconds is a time to live in a request: missing, null for no end, or a number of seconds.
type ttlSeconds struct{ seconds int }

// UnmarshalJSON implements json.Unmarshaler.
func (t *ttlSeconds) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		t.seconds = kv.NoEnd
		return nil
	}
	if err := json.Unmarshal(b, &t.seconds); err != nil || t.seconds < 1 {
		return fault.At(fault.Invalid, "ttl_seconds", "must be a whole number from 1 to %d, or null for no end, not %s", kv.MaxTTL, text.Clip(string(b), 40))
	}
	return nil
}

// kvValue is a value to store.
type kvValue struct {
	Value      json.RawMessage `json:"value"`
	TTLSeconds ttlSeconds      `json:"ttl_seconds"`
	Pinned     bool            `json:"pinned"`
}

// redacted replaces personal data in values for a namespace.
func (a kvAPI) redacted(r *http.Request, namespace string, values []kv.Value) error {
	agent := memory.Agent{Project: projectOf(r)}
	if id, ok := strings.CutPrefix(namespace, kv.AgentPrefix); ok {
		var err error
		if agent, err = a.memory.Agents.Agent(r.Context(), projectOf(r), id); err != nil {
			return err
		}
	}
	given := slices.Clone(values)
	return a.memory.Messages.Redact(r.Context(), &agent, func(by *redact.Redactor) {
		for i := range values {
			values[i].JSON = by.JSON(given[i].JSON)
		}
	})
}

func (a kvAPI) put(w http.ResponseWriter, r *http.Request) error {
	body, err := a.readDocument(w, r, a.limit)
	if err != nil {
		return err
	}
	var in kvValue
	if err := a.unmarshal(body, &in, true); err != nil {
		return err
	}
	namespace := a.namespace(r)
	ttl, err := a.checkTTL(in.TTLSeconds.seconds)
	if err != nil {
		return err
	}
	values := []kv.Value{{Key: pathName(r, "key"), JSON: in.Value, TTL: ttl, Pinned: in.Pinned}}
	if err := a.redacted(r, namespace, values); err != nil {
		return err
	}
	done, err := a.kv.Set(r.Context(), projectOf(r), namespace, values...)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, newKVEntryKey(&done[0]))
}

func (a kvAPI) get(w http.ResponseWriter, r *http.Request) error {
	e, err := a.kv.Get(r.Context(), projectOf(r), a.namespace(r), pathName(r, "key"))
	if err != nil {
		return err
	}
	return writeEntry(w, &e)
}

func writeEntry(w http.ResponseWriter, e *kv.Entry) error {
	b, err := kvEntry(e)
	if err == nil {
		writeJSON(w, http.StatusOK, append(b, '\n'))
	}
	return err
}

func (a kvAPI) delete(r *http.Request) error {
	return a.kv.Delete(r.Context(), projectOf(r), a.namespace(r), pathName(r, "key"))
}

// kvList is a page of keys. NextCursor is "" on the last page.
type kvList struct {
	Keys       []kvKeyJSON `json:"keys"`
	Total      int         `json:"total"`
	Bytes      int64       `json:"bytes"`
	MaxBytes   int64       `json:"max_bytes"`
	NextCursor string      `json:"next_cursor,omitempty"`
}

func (a kvAPI) list(r *http.Request) (any, error) {
	after, limit, err := pageOf(r, maxPageSize, kv.MaxKey)
	if err != nil {
		return nil, err
	}
	page, most, next, err := a.kv.List(r.Context(), projectOf(r), a.namespace(r), r.URL.Query().Get("pattern"), after, limit)
	return kvList{each(page.Keys, newKVKey), page.Total, page.Bytes, most.Bytes, next}, err
}

// names lists the project's namespaces.
func (a kvAPI) names(r *http.Request) (any, error) {
	after, limit, err := pageOf(r, maxPageSize, kv.MaxKey)
	if err != nil {
		return nil, err
	}
	names, err := a.kv.Names(r.Context(), projectOf(r))
	at, found := slices.BinarySearch(names, after)
	if found {
		at++
	}
	names, next := cutPage(names[at:], limit, func(x string) string { return x })
	return struct {
		Namespaces []string `json:"namespaces"`
		NextCursor string   `json:"next_cursor,omitempty"`
	}{append([]string{}, names...), next}, err
}

func (a kvAPI) clear(r *http.Request) error {
	_, err := a.kv.Clear(r.Context(), projectOf(r), a.namespace(r))
	return err
}
