package recall

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/breaker"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/longterm/resident"
)

// Embedder makes embeddings with one model.
type Embedder interface {
	// ModelID returns the ID of the model, or "" if it is not known yet.
	ModelID() string
	// EmbedTexts returns the embeddings of at most 64 texts, nil for those that the model refuses,
	// and the ID of the model. With an error it returns those of the first texts, if any.
	EmbedTexts(ctx context.Context, texts []string) (list [][]float32, model string, err error)
	// EmbedQuery returns the embedding of a query and the ID of its model, or nil if it takes
	// longer than within or fails.
	EmbedQuery(ctx context.Context, query string, within time.Duration) (embedding []float32, model string)
}

const (
	embedTexts   = 64 // in one call
	embedTimeout = 90 * time.Second
	maxEmbedded  = 8000 // bytes of a query
	// embedWithin is how long a search waits for the embedding of its query, but never longer than
	// half of its deadline.
	embedWithin = 30 * time.Millisecond
)

// embedBreaker leaves an endpoint alone that is too slow for searches, which otherwise would wait
// for it in vain.
var embedBreaker = breaker.Settings{Failures: 3, Pause: time.Second, Longest: 30 * time.Second, Doubling: true}

// Embed makes the jobs embed the turns of callers whose indexes are in memory. Embeddings stand in
// the index alone, so that none outlives its words. Embed must be called before the first search,
// and only with an Embedder.
func (s *Service) Embed(jobs *job.Runner) {
	s.embeds = jobs.Handle(job.Kind{
		Name: job.TurnEmbedding, Do: s.embedJob, Places: 2, Timeout: embedTimeout,
		First: time.Second, Longest: time.Minute, Frequent: true,
		Due: func(context.Context, job.Key) (bool, job.Result, error) {
			return s.cfg.Embedder.ModelID() != "", job.Again(time.Second), nil
		},
	})
}

// embedTurns has the turns of a caller embedded that have no embedding. Logs show the ID of the
// job, so it does not name the caller.
func (s *Service) embedTurns(c *caller) {
	if s.embeds == nil {
		return
	}
	c.mu.Lock()
	wanted := s.mayEmbed(c) && c.index.embedded < c.index.live
	c.mu.Unlock()
	if !wanted {
		return
	}
	sum := sha256.Sum256([]byte(c.user))
	k := job.Key{Project: c.project, ID: hex.EncodeToString(sum[:8])}
	s.unembedded.Store(k, c.user)
	s.embeds.Add(k, 0)
}

// mayEmbed reports whether the index of a caller may get embeddings: it has room for them, and has
// not had to give up others. The caller holds c.mu.
func (s *Service) mayEmbed(c *caller) bool {
	return !c.wordsOnly && c.index.Bytes() < int64(s.cfg.MaxMB)<<19
}

// embedQuery starts to embed a query for a caller whose turns have embeddings. The function that it
// returns waits for the embedding, which is nil if there is none in time.
func (s *Service) embedQuery(ctx context.Context, c *caller, query string, deadline time.Duration) func() ([]float32, string) {
	var embedding []float32
	var model string
	var wait sync.WaitGroup
	done := func() ([]float32, string) {
		wait.Wait()
		return embedding, model
	}
	if s.embeds == nil {
		return done
	}
	c.mu.Lock()
	some := c.index.embedded > 0
	if some {
		query = text.Clip(c.index.question(query), maxEmbedded)
	}
	c.mu.Unlock()
	if !some {
		return done
	}
	ticket, ok := s.breaker.Admit(s.cfg.Now())
	if !ok {
		return done
	}
	wait.Go(func() {
		embedding, model = s.cfg.Embedder.EmbedQuery(ctx, query, min(embedWithin, deadline/2))
		switch {
		case embedding != nil:
			ticket.Succeeded()
		case ctx.Err() != nil, deadline/2 < embedWithin: // it had less time than others have
			ticket.Abandoned()
		default:
			ticket.Failed(s.cfg.Now(), 0)
		}
	})
	return done
}

// embedJob embeds some turns of a caller.
func (s *Service) embedJob(ctx context.Context, k job.Key) (job.Result, error) {
	name, ok := s.unembedded.LoadAndDelete(k)
	if !ok {
		return job.Done(job.Nothing), nil
	}
	more := false
	user, names, err := s.who(ctx, k.Project, name.(string))
	if err == nil && len(names) > 0 {
		if e := s.caller(k.Project, user, names); !e.Cold() { // else the next search asks again
			more, err = s.embedSome(ctx, e)
		}
	}
	if more || err != nil { // for the next try
		s.unembedded.Store(k, name)
	}
	if more {
		return job.Again(0), nil
	}
	return job.Done(job.OK), err
}

// embedSome embeds turns that have no embedding, and reports whether there may be more.
func (s *Service) embedSome(ctx context.Context, e *resident.Entry[callerKey, *caller]) (more bool, err error) {
	c := e.Value
	c.mu.Lock()
	c.index.use(s.cfg.Embedder.ModelID())
	var turns []Turn
	if s.mayEmbed(c) {
		turns = c.index.withoutVectors(embedTexts)
	}
	c.mu.Unlock()
	if len(turns) == 0 {
		return false, nil
	}
	texts := make([]string, len(turns))
	for i := range turns {
		texts[i] = turns[i].Text
	}
	list, model, err := s.cfg.Embedder.EmbedTexts(ctx, texts)
	made := make([]vector, len(list))
	for i := range list {
		made[i] = newVector(list[i])
	}
	// Within the entry the index is only changed, and weighed again.
	if entered := e.Enter(ctx, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := range made {
			if c.index.model == model {
				c.index.setVector(turns[i].Call, turns[i].Seq, turns[i].Text, made[i])
			}
		}
		return nil
	}); entered != nil {
		return false, entered
	}
	e.Leave()
	return err == nil, err
}
