package handlers

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/kv"
)

// kvAPI serves keys and values: the namespaces of a project, and the working memories of agents.
type kvAPI struct {
	bodies
	kv        *kv.Service
	memory    *agents.Service
	namespace func(*http.Request) (string, error)
	checkTTL  func(seconds int) (int, error) // what the path makes of a time to live
}

func newKVAPI(b bodies, s *kv.Service, m *agents.Service) kvAPI {
	return kvAPI{
		bodies: b, kv: s, memory: m,
		namespace: func(r *http.Request) (string, error) { return pathName(r, "namespace") },
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

func newKVKey(k kv.Key) kvKeyJSON {
	out := kvKeyJSON{Key: k.Key, Bytes: k.Bytes, UpdatedAt: shownTime(k.UpdatedMS), Pinned: k.Pinned}
	if k.ExpiresMS != kv.Never {
		out.ExpiresAt = shownTime(k.ExpiresMS)
	}
	return out
}

func newKVEntryKey(e *kv.Entry) kvKeyJSON {
	return newKVKey(kv.Key{Key: e.Key, Bytes: e.Size(), UpdatedMS: e.UpdatedMS, ExpiresMS: e.ExpiresMS, Pinned: e.Pinned})
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

// redactor returns what hides personal data in values of a namespace.
func (a kvAPI) redactor(r *http.Request, namespace string) (func([]byte) []byte, error) {
	agent := memory.Agent{Project: projectOf(r)}
	if id, ok := strings.CutPrefix(namespace, kv.AgentPrefix); ok {
		var err error
		if agent, err = a.memory.Agents.Agent(r.Context(), projectOf(r), id); err != nil {
			return nil, err
		}
	}
	return a.memory.Messages.Redactor(&agent).JSON, nil
}

// at returns the namespace and the key of a path.
func (a kvAPI) at(r *http.Request) (namespace, key string, err error) {
	if namespace, err = a.namespace(r); err == nil {
		key, err = pathName(r, "key")
	}
	return namespace, key, err
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
	namespace, key, err := a.at(r)
	if err != nil {
		return err
	}
	redact, err := a.redactor(r, namespace)
	if err != nil {
		return err
	}
	ttl, err := a.checkTTL(in.TTLSeconds.seconds)
	if err != nil {
		return err
	}
	done, err := a.kv.Set(r.Context(), projectOf(r), namespace, kv.Value{Key: key, JSON: redact(in.Value), TTL: ttl, Pinned: in.Pinned})
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, newKVEntryKey(&done[0]))
}

func (a kvAPI) get(w http.ResponseWriter, r *http.Request) error {
	namespace, key, err := a.at(r)
	if err != nil {
		return err
	}
	e, err := a.kv.Get(r.Context(), projectOf(r), namespace, key)
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

func (a kvAPI) delete(w http.ResponseWriter, r *http.Request) error {
	namespace, key, err := a.at(r)
	if err != nil {
		return err
	}
	return noContent(w, a.kv.Delete(r.Context(), projectOf(r), namespace, key))
}

// Page sizes of the lists of keys and of namespaces.
const (
	defaultKVPage = 100
	maxKVPage     = 1000
)

// kvPage returns the parameters of a page.
func kvPage(query url.Values) (limit int, after string, err error) {
	if limit, err = intParam(query, "limit", defaultKVPage, 1, maxKVPage); err != nil {
		return 0, "", err
	}
	if after = query.Get("cursor"); after != "" {
		err = text.ValidName("cursor", after, kv.MaxKey)
	}
	return limit, after, err
}

// kvList is a page of keys. NextCursor is "" on the last page.
type kvList struct {
	Keys       []kvKeyJSON `json:"keys"`
	Total      int         `json:"total"`
	Bytes      int64       `json:"bytes"`
	MaxBytes   int64       `json:"max_bytes"`
	NextCursor string      `json:"next_cursor,omitempty"`
}

func (a kvAPI) list(w http.ResponseWriter, r *http.Request) error {
	namespace, err := a.namespace(r)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	limit, after, err := kvPage(query)
	if err != nil {
		return err
	}
	page, most, next, err := a.kv.List(r.Context(), projectOf(r), namespace, query.Get("pattern"), after, limit)
	if err != nil {
		return err
	}
	out := kvList{Keys: []kvKeyJSON{}, Total: page.Total, Bytes: page.Bytes, MaxBytes: most.Bytes, NextCursor: next}
	for _, k := range page.Keys {
		out.Keys = append(out.Keys, newKVKey(k))
	}
	return encode(w, http.StatusOK, out)
}

// names lists the project's namespaces.
func (a kvAPI) names(w http.ResponseWriter, r *http.Request) error {
	limit, after, err := kvPage(r.URL.Query())
	if err != nil {
		return err
	}
	names, err := a.kv.Names(r.Context(), projectOf(r))
	if err != nil {
		return err
	}
	at, found := slices.BinarySearch(names, after)
	if found {
		at++
	}
	names = names[at:]
	out := struct {
		Namespaces []string `json:"namespaces"`
		NextCursor string   `json:"next_cursor,omitempty"`
	}{Namespaces: append([]string{}, names[:min(limit, len(names))]...)}
	if len(names) > limit {
		out.NextCursor = names[limit-1]
	}
	return encode(w, http.StatusOK, out)
}

func (a kvAPI) clear(w http.ResponseWriter, r *http.Request) error {
	namespace, err := a.namespace(r)
	if err != nil {
		return err
	}
	_, err = a.kv.Clear(r.Context(), projectOf(r), namespace)
	return noContent(w, err)
}
