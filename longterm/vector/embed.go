package vector

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/store/record"
)

const (
	embedTexts   = 64   // in one call
	embedBytes   = 8000 // of a document's content that are embedded
	embedTimeout = 30 * time.Second
	// settle is how long a document may be without an embedding before its collection counts as
	// incomplete.
	settle = time.Minute
	// identifyEvery is how often the endpoint is asked which model it is.
	identifyEvery = time.Hour
)

// handle makes the jobs embed documents, and ask the endpoint now and then which model it is.
func (s *Service) handle(jobs *job.Runner) {
	s.queue = jobs.Handle(job.Kind{
		Name: job.Embedding, Do: s.embedJob, Due: s.embeds, Places: 2, Timeout: 3 * embedTimeout,
		First: time.Second, Longest: time.Minute, Frequent: true,
	})
	if s.cfg.Embedder != nil {
		jobs.Handle(job.Kind{
			Name: job.EmbeddingModel, Every: identifyEvery, Find: job.One, First: time.Second, Longest: time.Minute, Frequent: true,
			Do: func(ctx context.Context, _ job.Key) (job.Result, error) { return job.Done(job.OK), s.identify(ctx) },
		})
	}
}

// embedPending has the documents of a collection embedded that have no embedding.
func (s *Service) embedPending(c Collection) {
	if s.cfg.Embedder != nil {
		s.queue.Add(job.Key{Project: c.Project, ID: c.Name + "/" + c.User}, 0)
	}
}

// embeds reports whether it is known which model there is.
func (s *Service) embeds(context.Context, job.Key) (bool, job.Result, error) {
	return s.model.Load() != nil, job.Again(time.Second), nil
}

func (s *Service) embedJob(ctx context.Context, k job.Key) (job.Result, error) {
	c := Collection{Project: k.Project}
	c.Name, c.User, _ = strings.Cut(k.ID, "/")
	more, err := s.embedSome(ctx, c)
	switch {
	case err != nil: // it may be the endpoint
		return job.Result{}, errors.Join(err, s.identify(ctx))
	case more:
		return job.Again(0), nil
	}
	return job.Done(job.OK), nil
}

// embedSome embeds some documents of a collection and reports whether there are more. An index that
// does not fit into memory has no embeddings.
func (s *Service) embedSome(ctx context.Context, c Collection) (more bool, err error) {
	r, err := s.upToDate(ctx, c)
	if fault.Is(err, fault.Quota) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ids, model := r.pending(embedTexts)
	var docs []Document
	var texts []string
	var revs []int64
	for _, id := range ids {
		rec, err := s.cfg.Store.Record(ctx, c.space(), id)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return false, err
		}
		d, err := document(&rec)
		if err != nil {
			return false, err
		}
		if d.Embedding == nil && strings.TrimSpace(d.Content) != "" {
			docs, texts, revs = append(docs, d), append(texts, d.Content), append(revs, rec.Rev)
		}
	}
	if len(docs) == 0 {
		return false, nil
	}
	list, made, failed := s.embedTexts(ctx, texts)
	for i := range list {
		if made != model { // the index still has the embeddings of another one
			break
		}
		if err := s.storeMade(ctx, c, &docs[i], revs[i], model, list[i]); err != nil {
			return false, err
		}
	}
	return failed == nil, failed
}

// refused reports whether an error of the Embedder says that the model may not take a text.
func refused(err error) bool {
	var e interface{ Refused() bool }
	return errors.As(err, &e) && e.Refused()
}

func (s *Service) embed(ctx context.Context, texts []string) ([][]float32, error) {
	within, stop := context.WithTimeout(ctx, embedTimeout)
	defer stop()
	return s.cfg.Embedder.Embed(within, texts)
}

// embedOne embeds a text, and returns nil if the model refuses it but takes the probe.
func (s *Service) embedOne(ctx context.Context, text string) ([]float32, error) {
	list, err := s.embed(ctx, []string{text})
	if err == nil {
		return list[0], nil
	}
	if refused(err) {
		return nil, s.identify(ctx)
	}
	return nil, err
}

// storeMade stores the embedding that a model made of a document, nil if it refused the content. A
// document that has changed meanwhile is still pending.
func (s *Service) storeMade(ctx context.Context, c Collection, d *Document, rev int64, model string, v []float32) error {
	d.setMade(model, v)
	body, err := d.body()
	if err != nil {
		return err
	}
	_, err = s.cfg.Store.ChangeRecords(ctx, c.space(), []record.Change{{ID: d.ID, Body: body, If: rev}}, record.Limit{}, nil, s.nowMS())
	if errors.Is(err, record.ErrStale) {
		return nil
	}
	return err
}

// pending returns the IDs of documents that have no embedding of the index's model, at most n, and
// that model.
func (r *live) pending(n int) (ids []string, model string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for i := range r.index.docs {
		if e := &r.index.docs[i]; e.pending && len(ids) < n {
			ids = append(ids, e.id)
		}
	}
	return ids, r.index.model
}

// Rebuild has the embeddings that a model made of a collection's documents made again, and returns
// how many. Until they are complete, texts are compared by their words alone on this server. It
// fails with fault.Conflict without a model.
func (s *Service) Rebuild(ctx context.Context, c Collection) (n int, err error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	if s.ModelID() == "" {
		return 0, fault.New(fault.Conflict, "there is no model for embeddings: HEARDLOG_EMBEDDINGS_URL is not set, or its endpoint has not answered yet")
	}
	r, err := s.upToDate(ctx, c)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	for i := range r.index.docs {
		e := &r.index.docs[i]
		if e.made >= 0 {
			r.index.made.remove(e.made)
		}
		if e.made >= 0 || e.refused {
			e.made, e.pending, e.refused = -1, true, false
		}
		if r.index.docs[i].pending {
			n++
		}
	}
	r.mu.Unlock()
	s.embedPending(c)
	return n, nil
}
