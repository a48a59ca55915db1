package replay

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
	"github.com/heardlog/heardlog/memory/requests"
	"github.com/heardlog/heardlog/store/record"
)

// Result is the new answer to one request.
type Result struct {
	Content   string          `json:"content,omitempty"`
	ToolCalls json.RawMessage `json:"tool_calls,omitempty"`
	Finish    string          `json:"finish,omitempty"`
	Model     string          `json:"model,omitempty"`
	Usage     json.RawMessage `json:"usage,omitempty"`
	Cost      *memory.Cost    `json:"cost,omitempty"`
	TookMS    int64           `json:"took_ms"`
	Error     string          `json:"error,omitempty"` // why there is no answer
	Status    int             `json:"status,omitempty"`
}

// Item is a request with its old answer and its new one.
type Item struct {
	Target
	Old *memory.Message // nil if the answer or its request is gone; Result is nil then, too
	*Result
}

// errSealed means that the store is not the one that the replay was started with.
var errSealed = fault.New(fault.Invalid, "the address and the API key cannot be read by this server")

// errGone means that a request is no longer stored.
var errGone = fault.New(fault.NotFound, "the request is no longer stored")

// answer returns the stored answer of a target, or errGone.
func (s *Service) answer(ctx context.Context, project string, t *Target) (memory.Message, error) {
	msgs, err := s.cfg.Memory.Messages.Page(ctx, project, t.Agent, memory.MessageQuery{AfterSeq: t.Seq - 1, Limit: 1})
	if fault.Is(err, fault.NotFound) || err == nil && (len(msgs) == 0 || msgs[0].Seq != t.Seq || msgs[0].Made().Request == nil) {
		return memory.Message{}, errGone
	}
	if err != nil {
		return memory.Message{}, err
	}
	return msgs[0], nil
}

// Items returns items of a replay, from the one with index after on, limit at most.
func (s *Service) Items(ctx context.Context, project string, r *Replay, after, limit int) ([]Item, error) {
	out := []Item{}
	for i := after; i < min(after+limit, len(r.Targets)); i++ {
		item := Item{Target: r.Targets[i]}
		m, err := s.answer(ctx, project, &item.Target)
		if err != nil && !errors.Is(err, errGone) {
			return nil, err
		}
		if err == nil {
			item.Old = &m
			if item.Result, err = s.result(ctx, project, r, i); err != nil {
				return nil, err
			}
		}
		out = append(out, item)
	}
	return out, nil
}

// result returns a stored result, nil if there is none.
func (s *Service) result(ctx context.Context, project string, r *Replay, i int) (*Result, error) {
	got, err := s.cfg.Records.Record(ctx, resultSpace(project, r.Targets[i].Agent), resultID(r.ID, i))
	if fault.Is(err, fault.NotFound) {
		return nil, nil //nolint:nilnil // none is not a failure
	}
	if err != nil {
		return nil, err
	}
	var out Result
	if err := json.Unmarshal(got.Body, &out); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "a result cannot be read")
	}
	return &out, nil
}

// run is the job of a replay. It asks what is left. A replay that has ended keeps its job, which
// deletes what was erased of its calls, and at last the replay.
func (s *Service) run(ctx context.Context, k job.Key) (job.Result, error) {
	got, err := s.cfg.Records.Record(ctx, space(k.Project), k.ID)
	if fault.Is(err, fault.NotFound) { // it was deleted, or was never answered
		return job.Done(job.OK), nil
	}
	if err != nil {
		return job.Result{}, err
	}
	r := Replay{ID: k.ID}
	if err := json.Unmarshal(got.Body, &r); err != nil {
		return job.Result{}, fault.Wrap(fault.Internal, err, "a replay cannot be read")
	}
	if r.State != Running {
		return s.keep(ctx, k.Project, &r)
	}
	rev := got.Rev
	for began := s.cfg.Now(); r.Done < len(r.Targets); {
		if ctx.Err() != nil || s.cfg.Now().Sub(began) > slice {
			return job.Again(0), nil
		}
		from, to := r.Done, min(r.Done+atOnce, len(r.Targets))
		if err := s.batch(ctx, k.Project, &r, from, to); err != nil {
			return job.Result{}, err
		}
		if rev, err = s.save(ctx, k.Project, &r, rev, to); err != nil {
			if !errors.Is(err, record.ErrStale) {
				return job.Result{}, err
			}
			// Another server has it, or it was deleted.
			if _, err := s.Get(ctx, k.Project, k.ID); fault.Is(err, fault.NotFound) {
				return job.Done(job.OK), s.deleteResults(ctx, k.Project, &r, from, to)
			}
			return job.Again(time.Second), nil
		}
	}
	return job.Again(pruneEvery), nil
}

// save notes that the targets before an index are done.
func (s *Service) save(ctx context.Context, project string, r *Replay, rev int64, done int) (int64, error) {
	if r.Done = done; done == len(r.Targets) {
		r.State, r.EndedMS = Done, s.nowMS()
		if r.LLM != nil {
			r.LLM.Sealed = nil
		}
	}
	return s.put(ctx, project, r, rev)
}

// batch asks some requests at the same time.
func (s *Service) batch(ctx context.Context, project string, r *Replay, from, to int) error {
	results := make([]*Result, to-from)
	group, within := errgroup.WithContext(ctx)
	for i := from; i < to; i++ {
		group.Go(func() (err error) {
			results[i-from], err = s.one(within, project, r, i)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, got := range results {
		if got == nil || got.Error != "" {
			r.Failed++
		} else if got.Cost != nil {
			r.Spent += got.Cost.In + got.Cost.Out
		}
	}
	return nil
}

// one asks one request, unless a result is stored already. It returns nil if the request is gone.
func (s *Service) one(ctx context.Context, project string, r *Replay, i int) (*Result, error) {
	if got, err := s.result(ctx, project, r, i); got != nil || err != nil {
		return got, err
	}
	t := &r.Targets[i]
	m, err := s.answer(ctx, project, t)
	if errors.Is(err, errGone) {
		return nil, nil //nolint:nilnil // see above
	}
	if err != nil {
		return nil, err
	}
	told, err := requests.ForAnswer(ctx, s.cfg.Memory.Messages, project, t.Agent, m)
	if err == nil && (!told.Exact || !valid(told.Body)) {
		err = errGone
	}
	if fault.Is(err, fault.NotFound) {
		return nil, nil //nolint:nilnil // see above
	}
	if err != nil {
		return nil, err
	}
	out, err := s.ask(ctx, project, t, r, r.apply(told.Body))
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(out)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "a result could not be encoded")
	}
	at := resultSpace(project, t.Agent)
	if _, err := s.cfg.Records.ChangeRecords(ctx, at, []record.Change{{ID: resultID(r.ID, i), Body: body, If: record.Any}}, record.Limit{}, nil, s.nowMS()); err != nil {
		return nil, err
	}
	// The call may have been erased while it was asked.
	if _, err := s.answer(ctx, project, t); errors.Is(err, errGone) {
		return nil, s.deleteResults(ctx, project, r, i, i+1)
	}
	return out, nil
}

// ask asks the LLM of the change, or that of the agent.
func (s *Service) ask(ctx context.Context, project string, t *Target, r *Replay, body []byte) (*Result, error) {
	h, err := s.cfg.Memory.Messages.Head(ctx, project, t.Agent)
	if err != nil {
		return nil, err
	}
	llm := h.Agent.Settings.LLM
	if r.LLM != nil {
		to, err := s.open(r.LLM.Sealed)
		if err != nil {
			return &Result{Error: errSealed.Error()}, nil //nolint:nilerr // that is the result
		}
		llm = memory.LLMSettings{URL: to.URL, Vendor: r.LLM.Vendor, APIKey: secret.String(to.APIKey)}
	}
	a, err := s.cfg.Ask(ctx, llm, body)
	if err != nil {
		return nil, err
	}
	out := &Result{TookMS: a.Took.Milliseconds()}
	var f *memory.Failure
	var m memory.Message
	err = s.cfg.Memory.Messages.Redact(ctx, h.Agent, func(r *redact.Redactor) {
		f = a.Failure.Redacted(r)
		m = memory.Message{Role: memory.Assistant, Content: a.Text, ToolCalls: a.ToolCalls}.Redacted(r)
	})
	if err != nil {
		return nil, err
	}
	if f != nil {
		out.Error, out.Status = text.Clip(f.Message, 500), f.Code
		return out, nil
	}
	out.Content, out.Finish, out.Model = text.Clip(m.Content, maxText), a.Finish, a.Model
	if len(m.ToolCalls) <= maxText {
		out.ToolCalls = m.ToolCalls
	}
	if len(a.Usage) <= maxText {
		out.Usage = a.Usage
	}
	model := a.Model
	if model == "" {
		model = peek.At(body, "model").Str()
	}
	out.Cost = s.cfg.Prices.CostOf(model, out.Usage, len(body), a.Text)
	return out, nil
}

// keep deletes a replay that has expired, and before that the results whose requests are gone.
func (s *Service) keep(ctx context.Context, project string, r *Replay) (job.Result, error) {
	if s.nowMS() >= r.ExpiresMS() {
		err := s.deleteResults(ctx, project, r, 0, len(r.Targets))
		if err == nil {
			err = s.replays.Delete(ctx, space(project), r.ID, s.nowMS())
		}
		return job.Done(job.OK), err
	}
	for i := range r.Targets {
		_, err := s.answer(ctx, project, &r.Targets[i])
		if errors.Is(err, errGone) {
			err = s.deleteResults(ctx, project, r, i, i+1)
		}
		if err != nil {
			return job.Result{}, err
		}
	}
	left := time.Duration(r.ExpiresMS()-s.nowMS()) * time.Millisecond
	return job.Again(min(pruneEvery, left)), nil
}
