package recall

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/breaker"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/record"
)

// Embedder makes embeddings with one model.
type Embedder interface {
	// ModelID returns the ID of the model, or "" if it is not known yet.
	ModelID() string
	// EmbedTexts returns the embeddings of at most 64 texts, nil for those that the model refuses,
	// and the ID of the model.
	EmbedTexts(ctx context.Context, texts []string) (list [][]float32, model string, err error)
	// EmbedQuery returns the embedding of a query and the ID of its model, or nil if it takes
	// longer than within or fails.
	EmbedQuery(ctx context.Context, query string, within time.Duration) (embedding []float32, model string)
}

const (
	embedTexts   = 64 // in one call
	embedTimeout = 90 * time.Second
	// embedWithin is how long a search waits for the embedding of its query, but never longer than
	// half of its deadline.
	embedWithin = 30 * time.Millisecond
)

// embedBreaker leaves an endpoint alone that is too slow for searches, which otherwise would wait
// for it in vain.
var embedBreaker = breaker.Settings{Failures: 3, Pause: time.Second, Longest: 30 * time.Second, Doubling: true}

// Embed makes the jobs embed the turns of callers whose indexes are in memory. It must be called
// before the first search, and only with an Embedder.
func (s *Service) Embed(jobs *job.Runner) {
	s.embeds = jobs.Handle(job.Kind{
		Name: job.TurnEmbedding, Do: s.embedJob, Places: 2, Timeout: embedTimeout, Claimed: true,
		First: time.Second, Longest: time.Minute, Frequent: true,
		Due: func(context.Context, job.Key) (bool, job.Result, error) {
			return s.cfg.Embedder.ModelID() != "", job.Again(time.Second), nil
		},
	})
}

// embedTurns has the turns of a caller embedded that have no embedding.
func (s *Service) embedTurns(c *caller) {
	if s.embeds == nil {
		return
	}
	c.mu.Lock()
	wanted := !s.full(c) && (c.index.embedded < c.index.live || len(c.vectors) < len(c.index.calls))
	c.mu.Unlock()
	if wanted {
		s.embeds.Add(job.Key{Project: c.project, ID: c.user}, 0)
	}
}

// full reports whether the index of a caller takes all the memory that it may: embeddings do not
// push out turns. The caller holds c.mu.
func (s *Service) full(c *caller) bool { return c.index.Bytes() >= int64(s.cfg.MaxMB)<<19 }

// embedQuery starts to embed a query for a caller whose turns have embeddings. The function that it
// returns waits for the embedding, which is nil if there is none in time.
func (s *Service) embedQuery(ctx context.Context, c *caller, text string, deadline time.Duration) func() ([]float32, string) {
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
		text = c.index.question(text)
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
		embedding, model = s.cfg.Embedder.EmbedQuery(ctx, text, min(embedWithin, deadline/2))
		switch {
		case embedding != nil:
			ticket.Succeeded()
		case ctx.Err() != nil:
			ticket.Abandoned()
		default:
			ticket.Failed(s.cfg.Now(), 0)
		}
	})
	return done
}

// madeVector is the record of a turn's embedding, by its Seq.
type madeVector struct {
	Model string `json:"model"`
	Text  uint64 `json:"text,string"`       // hash of what was embedded
	Bytes []byte `json:"numbers,omitempty"` // a number each; none if the model refused the text
}

// embeddingSpace is the prefix of the names of spaces that hold embeddings, of a call each.
const embeddingSpace = "recall.embeddings/"

func (c *caller) space(callID string) record.Space {
	return record.Space{Project: c.project, Name: embeddingSpace + callID, User: c.user}
}

// embedJob embeds some turns of a caller.
func (s *Service) embedJob(ctx context.Context, k job.Key) (job.Result, error) {
	user, names, err := s.who(ctx, k.Project, k.ID)
	if err != nil || len(names) == 0 {
		return job.Done(job.Nothing), err
	}
	e := s.caller(k.Project, user, names)
	if e.Cold() { // the next search asks again
		return job.Done(job.Nothing), nil
	}
	// Within the entry the index is only changed, and weighed again.
	change := func(f func(c *caller)) error {
		err := e.Enter(ctx, func() error {
			e.Value.mu.Lock()
			defer e.Value.mu.Unlock()
			f(e.Value)
			return nil
		})
		if err == nil {
			e.Leave()
		}
		return err
	}
	if err := s.readVectors(ctx, e.Value, s.cfg.Embedder.ModelID(), change); err != nil {
		return job.Result{}, err
	}
	more, err := s.makeVectors(ctx, e.Value, change)
	if err == nil && more {
		return job.Again(0), nil
	}
	return job.Done(job.OK), err
}

// readVectors reads the stored embeddings of calls that have turns without one, and deletes those
// of turns that are no longer there.
func (s *Service) readVectors(ctx context.Context, c *caller, model string, change func(func(*caller)) error) error {
	known := map[string]record.State{}
	err := change(func(c *caller) {
		if c.index.use(model) {
			clear(c.vectors)
		}
		for id := range c.index.calls {
			if _, read := c.vectors[id]; !read {
				known[id] = record.State{}
			}
		}
		for _, t := range c.index.withoutVectors(embedTexts) {
			known[t.Call] = c.vectors[t.Call]
		}
	})
	for id, state := range known {
		if err != nil {
			return err
		}
		var gone []record.Change
		err = record.Follow(ctx, s.cfg.Records, c.space(id), &state, func(list []record.Record, _ record.State) error {
			return change(func(c *caller) {
				for i := range list {
					if !c.take(id, &list[i], model) {
						gone = append(gone, record.Change{ID: list[i].ID, If: list[i].Rev})
					}
				}
			})
		}, func() {})
		if err == nil {
			err = change(func(c *caller) { c.vectors[id] = state })
		}
		for ; err == nil && len(gone) > 0; gone = gone[min(len(gone), record.MaxChanges):] {
			_, err = s.cfg.Records.ChangeRecords(ctx, c.space(id), gone[:min(len(gone), record.MaxChanges)], record.Limit{}, nil, s.cfg.Now().UnixMilli())
		}
	}
	return err
}

// take puts the embedding of a record into the index. It returns false if the turn is gone.
func (c *caller) take(callID string, r *record.Record, model string) bool {
	seq, err := strconv.ParseInt(r.ID, 10, 64)
	var v madeVector
	if r.Deleted || err != nil || json.Unmarshal(r.Body, &v) != nil || c.agents[callID].leftOut {
		return true
	}
	if v.Model != model {
		v.Text = 0 // of another model: only whether the turn is there counts
	}
	numbers := make([]int8, len(v.Bytes))
	for i, n := range v.Bytes {
		numbers[i] = int8(n)
	}
	return c.index.setVector(callID, seq, v.Text, stored(numbers))
}

// makeVectors embeds turns that have no embedding, and reports whether there may be more.
func (s *Service) makeVectors(ctx context.Context, c *caller, change func(func(*caller)) error) (more bool, err error) {
	c.mu.Lock()
	var turns []Turn
	if !s.full(c) {
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
	if err != nil {
		return false, err
	}
	made, changes := make([]vector, len(turns)), map[string][]record.Change{}
	for i, t := range turns {
		made[i] = newVector(list[i])
		v := madeVector{Model: model, Text: textHash(t.Text), Bytes: make([]byte, len(made[i].numbers))}
		for k, n := range made[i].numbers {
			v.Bytes[k] = byte(n)
		}
		body, err := json.Marshal(v)
		if err != nil {
			return false, err
		}
		changes[t.Call] = append(changes[t.Call], record.Change{ID: strconv.FormatInt(t.Seq, 10), Body: body, If: record.Any})
	}
	for id, list := range changes {
		if _, err := s.cfg.Records.ChangeRecords(ctx, c.space(id), list, record.Limit{}, nil, s.cfg.Now().UnixMilli()); err != nil {
			return false, err
		}
	}
	if err := s.eraseLate(ctx, c, changes); err != nil {
		return false, err
	}
	return true, change(func(c *caller) {
		if c.index.model == model {
			for i, t := range turns {
				c.index.setVector(t.Call, t.Seq, textHash(t.Text), made[i])
			}
		}
	})
}

// eraseLate erases the embeddings of calls that were erased while they were made.
func (s *Service) eraseLate(ctx context.Context, c *caller, calls map[string][]record.Change) error {
	now, err := memories.AgentsOf(ctx, s.cfg.Items, c.project, c.names)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, a := range now {
		there[a.ID] = true
	}
	for id := range calls {
		if !there[id] {
			if _, err := s.cfg.Records.EraseRecords(ctx, c.project, c.user, c.space(id).Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// ForgetAgent erases the embeddings of a call that was erased.
func (s *Service) ForgetAgent(ctx context.Context, project, id string) error {
	name := embeddingSpace + id
	list, err := s.cfg.Records.RecordSpaces(ctx, project, name, record.Space{}, 1)
	if err != nil || len(list) == 0 || list[0].Name != name {
		return err // nearly every call has none
	}
	_, err = s.cfg.Records.EraseRecords(ctx, project, "", name)
	return err
}
