package handlers

import (
	"encoding/json"
	"net/http"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
)

// kvKeysRequest has the keys of entries to read.
type kvKeysRequest struct {
	Keys []string `json:"keys"`
}

// getMany answers with those entries of a list of keys that are there.
func (a kvAPI) getMany(r *http.Request, in *kvKeysRequest) (any, error) {
	namespace := a.namespace(r)
	found, err := a.kv.GetMany(r.Context(), projectOf(r), namespace, in.Keys)
	if err != nil {
		return nil, err
	}
	out := struct {
		Entries []json.RawMessage `json:"entries"`
	}{[]json.RawMessage{}}
	for i := range found {
		b, err := kvEntry(&found[i])
		if err != nil {
			return nil, err
		}
		out.Entries = append(out.Entries, b)
	}
	return out, nil
}

// putMany stores a list of entries, all or none.
func (a kvAPI) putMany(w http.ResponseWriter, r *http.Request) error {
	body, err := a.readDocument(w, r, a.limit)
	if err != nil {
		return err
	}
	var in struct {
		Entries []struct {
			Key string `json:"key"`
			kvValue
		} `json:"entries"`
	}
	if err := a.unmarshal(body, &in, true); err != nil {
		return err
	}
	namespace := a.namespace(r)
	values := make([]kv.Value, len(in.Entries))
	for i, e := range in.Entries {
		values[i] = kv.Value{Key: e.Key, JSON: e.Value, TTL: e.TTLSeconds.seconds, Pinned: e.Pinned}
	}
	if err := a.redacted(r, namespace, values); err != nil {
		return err
	}
	done, err := a.kv.Set(r.Context(), projectOf(r), namespace, values...)
	if err != nil {
		return err
	}
	out := struct {
		Keys []kvKeyJSON `json:"keys"`
	}{}
	for i := range done {
		out.Keys = append(out.Keys, newKVEntryKey(&done[i]))
	}
	return encode(w, http.StatusOK, out)
}

// kvExpireRequest sets when an entry ends.
type kvExpireRequest struct {
	TTLSeconds ttlSeconds `json:"ttl_seconds"`
}

func (a kvAPI) expire(r *http.Request, in *kvExpireRequest) (any, error) {
	if in.TTLSeconds.seconds == kv.DefaultTTL {
		return nil, fault.At(fault.Missing, "ttl_seconds", "is missing; it is a number of seconds, or null for no end")
	}
	return shown(newKVEntryKey)(a.kv.Expire(r.Context(), projectOf(r), a.namespace(r), pathName(r, "key"), in.TTLSeconds.seconds))
}

func (a kvAPI) increment(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[struct {
		Delta      json.RawMessage `json:"delta"`
		TTLSeconds ttlSeconds      `json:"ttl_seconds"`
	}](a.bodies, w, r, true)
	if err != nil {
		return err
	}
	if !given(in.Delta) {
		in.Delta = json.RawMessage("1")
	}
	call, err := idempotencyKey(r, maxKey)
	if err != nil {
		return err
	}
	e, err := a.kv.Increment(r.Context(), projectOf(r), a.namespace(r), pathName(r, "key"), string(in.Delta), in.TTLSeconds.seconds, call)
	if err != nil {
		return err
	}
	return writeEntry(w, &e)
}

// The number of entries that a search answers with.
const (
	defaultKVResults = 10
	maxKVResults     = 100
)

// kvSearchRequest is a search in a namespace.
type kvSearchRequest struct {
	Query   string                     `json:"query"`
	TopK    int                        `json:"top_k" validate:"min=0,max=100"`
	Filters map[string]json.RawMessage `json:"filters" validate:"max=10"`
}

func (a kvAPI) search(r *http.Request, in *kvSearchRequest) (any, error) {
	if in.TopK == 0 {
		in.TopK = defaultKVResults
	}
	namespace := a.namespace(r)
	found, err := a.kv.Search(r.Context(), projectOf(r), namespace, in.Query, min(in.TopK, maxKVResults), in.Filters)
	if err != nil {
		return nil, err
	}
	type resultJSON struct {
		kvKeyJSON
		Score float64         `json:"score"`
		Value json.RawMessage `json:"value"`
	}
	out := struct {
		Results []resultJSON `json:"results"`
	}{[]resultJSON{}}
	for i := range found {
		out.Results = append(out.Results, resultJSON{newKVEntryKey(&found[i].Entry), found[i].Score, found[i].Value})
	}
	return out, nil
}

// maxEvictedKeys bounds the keys that an answer about an eviction names.
const maxEvictedKeys = 1000

// kvEvictRequest makes room in a namespace.
type kvEvictRequest struct {
	Strategy string `json:"strategy"`
	Max      *int   `json:"max_memory_percent"`
	Target   *int   `json:"target_memory_percent"`
	DryRun   bool   `json:"dry_run"`
}

// evict makes room in a namespace, or only answers how.
func (a kvAPI) evict(r *http.Request, in *kvEvictRequest) (any, error) {
	namespace := a.namespace(r)
	gc := memory.GC{Strategy: in.Strategy}
	for _, percent := range []struct {
		field string
		from  *int
		to    *int
	}{{"max_memory_percent", in.Max, &gc.MaxPercent}, {"target_memory_percent", in.Target, &gc.TargetPercent}} {
		if percent.from == nil {
			continue
		}
		if *percent.to = *percent.from; *percent.to < 1 {
			return nil, fault.At(fault.Invalid, percent.field, "must be from 1 to 100, not %d", *percent.to)
		}
	}
	done, err := a.kv.Evict(r.Context(), projectOf(r), namespace, gc, in.DryRun)
	if err != nil {
		return nil, err
	}
	return struct {
		Strategy    string   `json:"strategy"`
		DryRun      bool     `json:"dry_run"`
		Count       int      `json:"evicted_count"`
		Evicted     []string `json:"evicted"`
		KeysBefore  int      `json:"keys_before"`
		KeysAfter   int      `json:"keys_after"`
		BytesBefore int64    `json:"bytes_before"`
		BytesAfter  int64    `json:"bytes_after"`
		MaxBytes    int64    `json:"max_bytes"`
	}{done.Strategy, in.DryRun, len(done.Keys), append([]string{}, done.Keys[:min(len(done.Keys), maxEvictedKeys)]...), done.KeysBefore, done.KeysAfter, done.BytesBefore, done.BytesAfter, done.MaxBytes}, nil
}
