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
	"github.com/heardlog/heardlog/memory/record"
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
	// page is how many records are read at a time.
	page = 200
	// spareHits is how many documents beyond K are scored exactly: the index ranks embeddings by
	// numbers of a byte each.
	spareHits = 16
	// loaders is how many collections are read from their beginning at a time.
	loaders = 2
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

// resident is the index of a collection in memory.
type resident struct {
	// loading is held by the one that brings the index up to date. It is a channel, so that a
	// search can give up waiting for it.
	loading chan struct{}
	state   record.State // up to which the space is known; guarded by loading
	read    bool         // all of the space was read once; guarded by loading
	// refused is the state of the space in which its index was too large; guarded by loading.
	refused record.State

	mu    sync.RWMutex
	index *index // also guarded by loading for reading
}

// bytes estimates what the index takes in memory. The caller holds loading.
func (r *resident) bytes() int64 { return r.index.bytes() + 1024 }

// find returns the candidates for hits, the best first.
func (r *resident) find(c Collection, q Query, filter map[string]string, made queried, nowMS int64) (_ []candidate, degraded bool, err error) {
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
func (s *Service) upToDate(ctx context.Context, c Collection) (*resident, error) {
	r := s.indexes.GetOrSet(c, func() *resident {
		return &resident{loading: make(chan struct{}, 1), index: newIndex(s.modelID())}
	})
	select {
	case r.loading <- struct{}{}:
	case <-ctx.Done():
		return nil, fault.Wrap(fault.Canceled, context.Cause(ctx), "the call was given up")
	}
	defer func() { <-r.loading }()
	if model := s.modelID(); model != r.index.model { // nothing else writes it
		r.reset(model)
	}
	known := r.state
	err := s.load(ctx, c, r)
	if r.state != known {
		s.indexes.Reweigh(c, r)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// load reads the changes that the index does not know. The caller holds r.loading.
func (s *Service) load(ctx context.Context, c Collection, r *resident) error {
	if !r.read {
		empty, err := s.begin(ctx, c, r)
		if empty || err != nil {
			return err
		}
		defer func() { <-s.loads }()
	}
	err := record.Follow(ctx, s.cfg.Store, c.space(), &r.state, func(list []record.Record, now record.State) error {
		fits, err := r.apply(list, int64(s.cfg.MaxMB)<<19)
		if err == nil && !fits {
			r.reset(r.index.model)
			r.refused = now
			err = s.tooLarge(c, now)
		}
		return err
	}, func() { r.reset(r.index.model) })
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read, r.index.idf = true, r.index.weights()
	return nil
}

// begin waits until all of a collection may be read, which the caller ends by taking a value from
// s.loads. It does not wait for a collection that is empty, or that was too large and has not
// changed since.
func (s *Service) begin(ctx context.Context, c Collection, r *resident) (empty bool, err error) {
	_, state, err := s.cfg.Store.Records(ctx, c.space(), record.Query{ByRev: true, Limit: 1})
	switch {
	case err != nil:
		return false, err
	case state.Rev == 0:
		return true, nil
	case state == r.refused:
		return false, s.tooLarge(c, state)
	}
	select {
	case s.loads <- struct{}{}:
		return false, nil
	case <-ctx.Done():
		return false, fault.Wrap(fault.Canceled, context.Cause(ctx), "the call was given up")
	}
}

// tooLarge returns the error for a collection whose index takes too much memory.
func (s *Service) tooLarge(c Collection, state record.State) error {
	return fault.New(fault.Quota, "collection %q has %d documents, whose index needs more memory than half of the %d MB of HEARDLOG_VECTORS_MB", c.Name, state.Count, s.cfg.MaxMB)
}

// reset empties the index. model is whose embeddings it will hold.
func (r *resident) reset(model string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index, r.state, r.read, r.refused = newIndex(model), record.State{}, false, record.State{}
}

// apply puts changes into the index, unless it then has more than limit bytes.
func (r *resident) apply(list []record.Record, limit int64) (fits bool, err error) {
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
			return false, err
		}
		if r.index.bytes() > limit {
			return false, nil
		}
	}
	return true, nil
}
