package knowledge

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/store/record"
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

// page is how many records are read at a time.
const page = 200

// index is the index of a base in memory.
type index struct {
	*recall.Index
	entries map[string]place // by ID
}

// place is what the index knows of an entry.
type place struct {
	call     string
	seq      int64
	document string
	tags     []string
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

// find returns the IDs and scores of hits. It fails with errLarge if the base has no index.
func (s *Service) find(ctx context.Context, b *Base, q Query) ([]recall.Hit, string, error) {
	at, err := s.indexes.Enter(ctx, b.space())
	if err != nil {
		return nil, "", err
	}
	defer at.Leave()
	query := recall.Query{Text: q.Text, K: q.K, Now: s.cfg.Now()}
	if q.Document != "" || len(q.Tags) > 0 {
		query.Except = func(t *recall.Turn) bool {
			p := at.Value.entries[t.ID]
			return q.Document != "" && p.document != q.Document ||
				slices.ContainsFunc(q.Tags, func(tag string) bool { return !slices.Contains(p.tags, tag) })
		}
	}
	hits, strength := at.Value.Search(query)
	return hits, strength, nil
}

func newIndex(record.Space) *index {
	return &index{recall.NewIndex(), map[string]place{}}
}

// refuse refuses the index of a base that is searched in the store, with errLarge, or whose index
// takes too much memory.
func (s *Service) refuse(at record.Space, now record.State, size int64) error {
	switch tooLarge := size > int64(s.cfg.MaxMB)<<19; {
	case s.large(now), tooLarge && !s.cfg.Sealed:
		return errLarge
	case tooLarge:
		name := strings.TrimSuffix(strings.TrimPrefix(at.Name, entrySpaces), "/")
		return fault.New(fault.Quota, "knowledge base %q has %d entries of %d bytes; HEARDLOG_SECRET_KEY encrypts them, so they are searched in memory, and their index needs more than a quarter of HEARDLOG_VECTORS_MB; raise it or split the base", name, now.Count, now.Bytes)
	}
	return nil
}

// Take puts the entries of records into the index.
func (r *index) Take(list []record.Record, _ record.State) error {
	for i := range list {
		if err := r.apply(&list[i]); err != nil {
			return err
		}
	}
	return nil
}

// apply puts a record's entry into the index, or removes it from there.
func (r *index) apply(rec *record.Record) error {
	if p, ok := r.entries[rec.ID]; ok {
		r.Remove(p.call, p.seq)
		delete(r.entries, rec.ID)
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
	p := place{call: "entry " + rec.ID, seq: 1, tags: e.Tags}
	if src := e.Source; src != nil {
		p.document = src.Document
		if src.Part > 0 {
			p.call, p.seq = "document "+src.Document, int64(src.Part)
		}
	}
	r.entries[rec.ID] = p
	r.Put(recall.Turn{Call: p.call, Seq: p.seq, ID: rec.ID, Text: e.searched(), Complete: true})
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
