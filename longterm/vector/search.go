package vector

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/record"
)

// Metric is how two embeddings are compared. A higher score is always the better one.
type Metric string

// The metrics.
const (
	Cosine    Metric = "cosine"    // from -1 to 1
	Euclidean Metric = "euclidean" // 1/(1+distance), above 0 to 1
	Dot       Metric = "dot"       // the dot product, any number
)

// Query is a search. It has a Text, which compares words, or an Embedding.
type Query struct {
	Text      string
	Embedding []float32
	Metric    Metric          // for an embedding; "" = Cosine
	K         int             // hits at most; 0 or less finds nothing
	Filter    json.RawMessage // an object; only documents whose metadata have all its members. nil = all
	MinScore  *float64
	// EmbedWithin is how long the embedding of a Text may take, if there is a model.
	EmbedWithin time.Duration
}

// Result is what a search found.
type Result struct {
	Hits     []Hit
	Degraded []string // NoEmbeddings or nothing
}

// NoEmbeddings is the value of Result.Degraded for a text that was compared by its words alone,
// although there is a model: its embedding did not come in time, or those of the documents are not
// complete.
const NoEmbeddings = "embeddings"

// The shares of a model's embeddings and of words in the score of a text.
const (
	madeShare = 0.6
	wordShare = 1 - madeShare
)

// Hit is a document with its score. Documents that share nothing with the query score 0 and are
// hits, too, behind the better ones.
type Hit struct {
	Document
	Score float64
}

const (
	// spareHits is how many documents beyond K are scored exactly: the index ranks embeddings by
	// numbers of a byte each.
	spareHits = 16
	// readers is how many hits are read from the store at a time.
	readers = 8
)

// Search returns the documents of a collection that are closest to a query, the best first. Those
// with equal scores come in the order of their insertion.
func (s *Service) Search(ctx context.Context, c Collection, q Query) (out Result, err error) {
	if err := c.check(); err != nil {
		return out, err
	}
	filter, err := q.check()
	if err != nil {
		return out, err
	}
	if q.K <= 0 || q.Embedding == nil && strings.TrimSpace(q.Text) == "" {
		return out, nil
	}
	var made queried
	var wait sync.WaitGroup
	if q.Embedding == nil && s.cfg.Embedder != nil {
		wait.Go(func() { made = s.embedQuery(ctx, q.Text, q.EmbedWithin) })
	}
	r, err := s.upToDate(ctx, c)
	wait.Wait()
	if err != nil {
		return out, err
	}
	found, degraded, err := r.find(c, q, filter, made, s.nowMS())
	if err != nil {
		return out, err
	}
	if degraded {
		out.Degraded = []string{NoEmbeddings}
		s.embedPending(c) // it does nothing if all have embeddings
	}
	out.Hits, err = s.hits(ctx, c, q, filter, found)
	return out, err
}

// late reports whether a document has been without the model's embedding for too long.
func (x *index) late(nowMS int64) bool {
	return slices.ContainsFunc(x.docs, func(e entry) bool { return e.pending && nowMS-e.updated > settle.Milliseconds() })
}

func (q *Query) check() (filter map[string]string, err error) {
	if n := utf8.RuneCountInString(q.Text); n > MaxQuery {
		return nil, fault.At(fault.Invalid, "query", "has %d characters; at most %d are allowed", n, MaxQuery)
	}
	if q.K > MaxHits {
		return nil, fault.At(fault.Invalid, "k", "is %d; at most %d are allowed", q.K, MaxHits)
	}
	if q.Metric == "" {
		q.Metric = Cosine
	}
	if err := checkVector("embedding", q.Embedding); err != nil {
		return nil, err
	}
	if len(q.Filter) == 0 || string(q.Filter) == "null" {
		return nil, nil
	}
	return members("filter", q.Filter)
}

// candidate is a document that may be a hit.
type candidate struct {
	id    string
	score float64
}

// live is the index of a collection that searches share.
type live struct {
	mu    sync.RWMutex
	index *index
}

// Bytes estimates what the index takes in memory.
func (r *live) Bytes() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.index.bytes()
}

// Take puts the documents of records into the index.
func (r *live) Take(list []record.Record, _ record.State) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range list {
		if list[i].Deleted {
			r.index.remove(list[i].ID)
			continue
		}
		d, err := document(&list[i])
		if err == nil {
			err = r.index.put(&d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// find returns the candidates for hits, the best first.
func (r *live) find(c Collection, q Query, filter map[string]string, made queried, nowMS int64) (_ []candidate, degraded bool, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	x, n := r.index, q.K
	score := func(*entry) float64 { return 0 }
	switch {
	case q.Embedding == nil:
		score = x.textScore(q.Text)
		switch {
		case x.model == "": // nothing is waited for
		case x.made != nil && made.model == x.model && len(made.vector) == x.made.dims && !x.late(nowMS):
			score = x.mixedScore(score, made.vector)
		default:
			degraded = x.made != nil || slices.ContainsFunc(x.docs, func(e entry) bool { return e.pending })
		}
	case x.rows != nil && x.rows.dims != len(q.Embedding):
		return nil, false, fault.At(fault.Invalid, "embedding", "has %d numbers, but the embeddings of collection %q have %d", len(q.Embedding), c.Name, x.rows.dims)
	case x.rows != nil:
		n += spareHits
		p := newProbe(q.Embedding)
		score = func(e *entry) float64 {
			if e.row < 0 {
				return 0
			}
			return q.Metric.similarity(x.rows.dot(p, e.row), float64(x.rows.about[e.row].square), float64(p.square))
		}
	}
	best := x.best(n, x.filter(filter), score)
	out := make([]candidate, len(best))
	for i, b := range best {
		out[i] = candidate{b.entry.id, b.score}
	}
	return out, degraded, nil
}

// mixedScore adds the cosines of the model's embeddings to scores of words.
func (x *index) mixedScore(words func(*entry) float64, query []float32) func(*entry) float64 {
	p := newProbe(query)
	return func(e *entry) float64 {
		score := wordShare * words(e)
		if e.made >= 0 {
			score += madeShare * max(0, Cosine.similarity(x.made.dot(p, e.made), float64(x.made.about[e.made].square), float64(p.square)))
		}
		return round(score)
	}
}

// hits reads candidates from the store and scores their embeddings exactly. It leaves out those
// that were deleted or changed meanwhile so that they do not match the filter.
func (s *Service) hits(ctx context.Context, c Collection, q Query, filter map[string]string, found []candidate) ([]Hit, error) {
	list := make([]Hit, len(found))
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, f := range found {
		group.Go(func() error {
			r, err := s.cfg.Store.Record(within, c.space(), f.id)
			if fault.Is(err, fault.NotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			d, err := document(&r)
			if err != nil || !d.matches(filter) {
				return err
			}
			list[i] = Hit{d, f.score}
			if len(d.Embedding) == len(q.Embedding) && q.Embedding != nil {
				list[i].Score = round(q.Metric.exact(q.Embedding, d.Embedding))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(h Hit) bool { return h.ID == "" || q.MinScore != nil && h.Score < *q.MinScore })
	slices.SortFunc(list, func(a, b Hit) int { return a.entry().before(b.entry()) })
	return list[:min(q.K, len(list))], nil
}

// entry returns the hit in the form that is ordered.
func (h *Hit) entry() scored { return scored{&entry{id: h.ID, at: h.CreatedUS}, h.Score} }

// upToDate returns the index of a collection with all that was stored before the call.
func (s *Service) upToDate(ctx context.Context, c Collection) (*live, error) {
	for {
		e, err := s.indexes.Enter(ctx, c.space())
		if err != nil {
			return nil, err
		}
		r := e.Value
		e.Leave()
		if r.index.model == s.ModelID() {
			return r, nil
		}
		s.indexes.Remove(c.space()) // it has the embeddings of another model
	}
}

// refuse refuses an index that takes too much memory.
func (s *Service) refuse(at record.Space, now record.State, size int64) error {
	if size <= int64(s.cfg.MaxMB)<<19 {
		return nil
	}
	name := strings.TrimSuffix(strings.TrimPrefix(at.Name, spacePrefix), "/")
	return fault.New(fault.Quota, "collection %q has %d documents, whose index needs more memory than half of the %d MB of HEARDLOG_VECTORS_MB", name, now.Count, s.cfg.MaxMB)
}
