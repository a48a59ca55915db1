package knowledge

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/recall"
	"github.com/heardlog/heardlog/memory/record"
)

// Query is a search.
type Query struct {
	Text     string
	K        int      // hits at most; 1 to MaxHits
	Tags     []string // only entries with all of them
	Document string   // only entries of this source; "" = any
}

// Hit is an entry with its score.
type Hit struct {
	Entry
	Score float64
}

const (
	// page is how many records are read at a time.
	page = 200
	// loaders is how many bases of more than a page are read from their beginning at a time.
	loaders = 2
)

// resident is the index of a base in memory.
type resident struct {
	// busy is held by the one that uses the rest. It is a channel, so that a search can give up
	// waiting.
	busy    chan struct{}
	state   record.State // up to which the base is known
	read    bool         // all of the base was read once
	tooBig  record.State // in which the index was too large
	index   *recall.Index
	entries map[string]place // by ID
	named   map[recallKey]*place
}

// bytes estimates what the index takes in memory. The caller holds busy.
func (r *resident) bytes() int64 { return r.index.Bytes() + 1024 }

// place is what the index knows of an entry.
type place struct {
	recallKey
	id, document string
	tags         []string
}

type recallKey struct {
	call string
	seq  int64
}

// Search returns the entries of a base that answer a query, best first, and how much of the query
// they cover: recall.Strong, Weak or None. It finds everything that was stored before, on any
// server.
func (s *Service) Search(ctx context.Context, project, name string, q Query) ([]Hit, string, error) {
	b, err := s.load(ctx, project, name)
	if err != nil {
		return nil, "", err
	}
	switch n := utf8.RuneCountInString(q.Text); {
	case n > MaxQuery:
		return nil, "", fault.At(fault.Invalid, "query", "has %d characters; at most %d are allowed", n, MaxQuery)
	case strings.TrimSpace(q.Text) == "":
		return nil, "", fault.At(fault.Missing, "query", "is required")
	case q.K < 1 || q.K > MaxHits:
		return nil, "", fault.At(fault.Invalid, "k", "must be from 1 to %d, not %d", MaxHits, q.K)
	case len(q.Tags) > MaxTags:
		return nil, "", fault.At(fault.Invalid, "tags", "has %d; at most %d are allowed", len(q.Tags), MaxTags)
	}
	found, strength, err := s.find(ctx, &b, q)
	if errors.Is(err, errLarge) {
		return s.findInStore(ctx, &b, q)
	}
	if err != nil {
		return nil, "", err
	}
	out := []Hit{}
	for _, f := range found {
		r, err := s.cfg.Store.Record(ctx, b.space(), f.ID)
		if fault.Is(err, fault.NotFound) { // deleted meanwhile
			continue
		}
		if err != nil {
			return nil, "", err
		}
		e, err := read(&r)
		if err != nil {
			return nil, "", err
		}
		out = append(out, Hit{e.Entry, f.Score})
	}
	return out, strength, nil
}

// find returns the IDs and scores of hits.
func (s *Service) find(ctx context.Context, b *Base, q Query) ([]recall.Hit, string, error) {
	k := baseKey{b.Project, b.Name}
	r := s.indexes.GetOrSet(k, newResident)
	select {
	case r.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, "", fault.Wrap(fault.Canceled, context.Cause(ctx), "the call was given up")
	}
	defer func() { <-r.busy }()
	known := r.state
	err := s.catchUp(ctx, b, r)
	if r.state != known {
		s.indexes.Reweigh(k, r)
	}
	if err != nil {
		return nil, "", err
	}
	query := recall.Query{Text: q.Text, K: q.K, Now: s.cfg.Now()}
	if q.Document != "" || len(q.Tags) > 0 {
		query.Except = func(t *recall.Turn) bool {
			p := r.named[recallKey{t.Call, t.Seq}]
			return p == nil || q.Document != "" && p.document != q.Document ||
				slices.ContainsFunc(q.Tags, func(tag string) bool { return !slices.Contains(p.tags, tag) })
		}
	}
	hits, strength := r.index.Search(query)
	return hits, strength, nil
}

func newResident() *resident {
	r := &resident{busy: make(chan struct{}, 1)}
	r.reset()
	return r
}

// reset empties the index, but for what is known to be too large.
func (r *resident) reset() {
	r.state, r.read, r.index = record.State{}, false, recall.NewIndex()
	r.entries, r.named = map[string]place{}, map[recallKey]*place{}
}

// catchUp reads the changes of a base that its index does not know. It fails with errLarge if the
// base is to have no index. The caller holds r.busy.
func (s *Service) catchUp(ctx context.Context, b *Base, r *resident) error {
	if !r.read {
		_, state, err := s.cfg.Store.Records(ctx, b.space(), record.Query{Limit: 1})
		switch {
		case err != nil:
			return err
		case s.large(state):
			return errLarge
		case state.Count > page:
			select {
			case s.loads <- struct{}{}:
				defer func() { <-s.loads }()
			case <-ctx.Done():
				return fault.Wrap(fault.Canceled, context.Cause(ctx), "the call was given up")
			}
		}
	}
	err := record.Follow(ctx, s.cfg.Store, b.space(), &r.state, func(list []record.Record, now record.State) error {
		switch {
		case s.large(now):
			r.reset()
			return errLarge
		case now == r.tooBig && now.Rev > 0:
			return s.tooLarge(b, now)
		}
		for i := range list {
			if err := r.apply(&list[i]); err != nil {
				return err
			}
		}
		if r.index.Bytes() > int64(s.cfg.MaxMB)<<19 {
			r.reset()
			r.tooBig = now
			return s.tooLarge(b, now)
		}
		return nil
	}, r.reset)
	r.read = r.read || err == nil
	return err
}

// tooLarge returns the error for a base whose index takes too much memory: errLarge if the store
// can be searched.
func (s *Service) tooLarge(b *Base, state record.State) error {
	if !s.cfg.Sealed {
		return errLarge
	}
	return fault.New(fault.Quota, "knowledge base %q has %d entries of %d bytes; HEARDLOG_SECRET_KEY encrypts them, so they are searched in memory, and their index needs more than a quarter of HEARDLOG_VECTORS_MB; raise it or split the base", b.Name, state.Count, state.Bytes)
}

// apply puts a record's entry into the index, or removes it from there.
func (r *resident) apply(rec *record.Record) error {
	if p, ok := r.entries[rec.ID]; ok {
		r.index.Remove(p.call, p.seq)
		delete(r.entries, rec.ID)
		delete(r.named, p.recallKey)
	}
	if rec.Deleted {
		return nil
	}
	e, err := read(rec)
	if err != nil {
		return err
	}
	// An entry of its own is a call of its own, so that entries do not count as neighbors. The
	// pieces of a text are neighbors.
	p := place{recallKey: recallKey{"entry " + rec.ID, 1}, id: rec.ID, tags: e.Tags}
	if src := e.Source; src != nil {
		p.document = src.Document
		if src.Part > 0 {
			p.recallKey = recallKey{"document " + src.Document, int64(src.Part)}
		}
	}
	r.entries[rec.ID], r.named[p.recallKey] = p, &p
	r.index.Put(recall.Turn{Call: p.call, Seq: p.seq, ID: rec.ID, Text: e.searched(), Complete: true})
	return nil
}

// searched returns the text in which a search finds the entry.
func (e *Entry) searched() string {
	words := []string{e.Content}
	if e.Source != nil {
		words = append(words, e.Source.Heading)
	}
	return strings.Join(append(append(words, e.Tags...), valuesOf(e.Data)...), "\n")
}

// valuesOf returns the texts and numbers of an entry's data.
func valuesOf(data json.RawMessage) (out []string) {
	if len(data) == 0 {
		return nil
	}
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	var doc any
	if d.Decode(&doc) != nil {
		return nil // it was checked when it was stored
	}
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case json.Number:
			out = append(out, v.String())
		case []any:
			for _, item := range v {
				visit(item)
			}
		case map[string]any:
			for _, item := range v {
				visit(item)
			}
		}
	}
	visit(doc)
	return out
}
