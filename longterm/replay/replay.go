// Package replay asks the stored requests of past turns again, with another model, prompt or
// upstream, and keeps the new answers beside the old ones. Plan says what that costs, Start has a
// job do it. Nothing of it enters the ledger of a call.
package replay

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/store/record"
)

// Limits of replays.
const (
	MaxRequests  = 200      // of a replay
	MaxBytes     = 16 << 20 // of their bodies together
	MaxCalls     = 100      // that a filter selects
	MaxTurns     = 50       // of each call of a filter
	MaxSystem    = 64 << 10 // of a prompt, in bytes
	MaxParams    = 16 << 10 // of Change.Params, in bytes
	Keep         = 30 * 24 * time.Hour
	maxUnended   = 10 // of a project
	maxKept      = 100
	maxText      = 64 << 10 // of an answer that is kept, in bytes
	atOnce       = 4        // requests of a replay
	slice        = 30 * time.Second
	pruneEvery   = 24 * time.Hour
	startFor     = time.Minute // how long it may take to store a replay
	maxFindPages = 20
)

// The states of a replay.
const (
	Running = "running" // or waiting for its turn
	Done    = "done"
)

// LLM is another upstream.
type LLM struct {
	URL    string `json:"url"` // without secrets
	Vendor string `json:"vendor,omitempty"`
	Sealed []byte `json:"sealed,omitempty"` // see Service.Seal; dropped when the replay has ended
}

// Change is how requests are changed before they are asked again. Zero fields change nothing.
type Change struct {
	Model  string          `json:"model,omitempty"`
	LLM    *LLM            `json:"llm,omitempty"`
	System *string         `json:"system,omitempty"` // in place of the first system message
	Params json.RawMessage `json:"params,omitempty"` // members of the body
}

// Target is a request that is asked again: that for the answer Seq of an agent.
type Target struct {
	Agent string `json:"agent"`
	Turn  int64  `json:"turn"`
	Seq   int64  `json:"seq"`
}

// Estimate is what a replay will take.
type Estimate struct {
	Requests int          `json:"requests"`
	Skipped  int          `json:"skipped,omitempty"` // requests that are not stored to the byte
	Input    int64        `json:"input"`             // tokens
	Output   int64        `json:"output"`            // tokens, if the new answers are as long as the old ones
	Cost     *memory.Cost `json:"cost,omitempty"`    // nil if a model has no price
}

// Replay is a set of requests that are asked again.
type Replay struct {
	ID string `json:"-"`
	Estimate
	Change
	State     string   `json:"state"`
	Targets   []Target `json:"targets"`
	Done      int      `json:"done"`             // of Targets, the failed ones included
	Failed    int      `json:"failed,omitempty"` // have no answer
	Spent     int64    `json:"spent,omitempty"`  // what the answers cost, in billionths of a US dollar
	Hash      string   `json:"hash,omitempty"`   // of a request with an Idempotency-Key
	CreatedMS int64    `json:"created_ms"`
	EndedMS   int64    `json:"ended_ms,omitempty"`
}

// ExpiresMS returns when the replay is deleted.
func (r *Replay) ExpiresMS() int64 { return r.CreatedMS + Keep.Milliseconds() }

// Answer is what an upstream answered.
type Answer struct {
	Text, Finish string
	Model        string
	ToolCalls    json.RawMessage
	Usage        json.RawMessage
	Took         time.Duration
	Failure      *memory.Failure
}

// Config is what a Service needs. All fields are required.
type Config struct {
	Records record.Store
	Memory  *agents.Service
	// Ask sends a body to an LLM. It fails only if ctx ends.
	Ask    func(ctx context.Context, llm memory.LLMSettings, body []byte) (Answer, error)
	Count  func(family string) (window.Counter, error)
	Prices memory.Prices
	Now    func() time.Time
	NewID  func() string
	Key    []byte // seals addresses and API keys
}

// Service plans, runs and keeps replays. Its methods are safe for concurrent use.
type Service struct {
	cfg     Config
	replays record.Map[Replay]
	queue   *job.Queue
}

// New returns a Service whose replays the jobs run.
func New(jobs *job.Runner, c Config) *Service {
	s := &Service{cfg: c, replays: record.Map[Replay]{Store: c.Records, Noun: "replay", Fill: func(v *Replay, r *record.Record) { v.ID = r.ID }}}
	s.queue = jobs.Handle(job.Kind{Name: job.Replay, Stored: true, Do: s.run, Timeout: 5 * time.Minute, Places: 2, Frequent: true})
	return s
}

func (s *Service) nowMS() int64 { return s.cfg.Now().UnixMilli() }

func space(project string) record.Space { return record.Space{Project: project, Name: "replay"} }

// resultSpace has the results of a call, which are erased with it.
func resultSpace(project, agent string) record.Space {
	return record.Space{Project: project, Name: "replay.result/" + agent}
}

func resultID(replay string, i int) string { return fmt.Sprintf("%s/%04d", replay, i) }

// Start stores a replay of the targets that Plan has returned. When it returns, the replay is on
// disk and goes on after a restart. One replay of a project runs at a time on each server. It fails
// with fault.Quota if too many wait. A repeat with the same key, unless it is "", and the same
// request returns the first replay; with another request it fails with fault.Conflict.
func (s *Service) Start(ctx context.Context, project, key, request string, p *Plan) (Replay, error) {
	list, err := s.List(ctx, project)
	if err != nil {
		return Replay{}, err
	}
	id, hash := s.cfg.NewID(), ""
	if key != "" {
		id, hash = hashOf("key", key), hashOf("request", request)
	}
	if i := slices.IndexFunc(list, func(r Replay) bool { return r.ID == id }); i >= 0 {
		if list[i].Hash != hash {
			return Replay{}, fault.At(fault.Conflict, "Idempotency-Key", "was used for another replay")
		}
		return list[i], nil
	}
	unended := 0
	for i := range list {
		if list[i].State == Running {
			unended++
		} else if i >= maxKept {
			if err := s.Delete(ctx, project, list[i].ID); err != nil {
				return Replay{}, err
			}
		}
	}
	if unended >= maxUnended {
		return Replay{}, fault.New(fault.Quota, "%d replays are running or waiting; at most %d are allowed; wait for one", unended, maxUnended)
	}
	k := job.Key{Project: project, ID: id}
	// The job comes first, so that a replay without one cannot be left behind.
	if err := s.queue.Put(ctx, k, startFor); err != nil {
		return Replay{}, twice(err)
	}
	r := Replay{ID: id, Estimate: p.Estimate, Change: p.Change, State: Running, Targets: p.Targets, Hash: hash, CreatedMS: s.nowMS()}
	if _, err := s.put(ctx, project, &r, record.Absent); err != nil {
		return Replay{}, twice(err)
	}
	_ = s.queue.Start(ctx, k) // if this fails, it begins after startFor
	return r, nil
}

func hashOf(kind, s string) string {
	sum := sha256.Sum256([]byte(kind + "\x00" + s))
	return hex.EncodeToString(sum[:16])
}

func twice(err error) error {
	if errors.Is(err, record.ErrStale) {
		return fault.New(fault.Unavailable, "another call with this Idempotency-Key is starting the replay; try again in a minute")
	}
	return err
}

// put stores a replay if its record has a revision, and returns the new one.
func (s *Service) put(ctx context.Context, project string, r *Replay, rev int64) (int64, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return 0, fault.Wrap(fault.Internal, err, "a replay could not be encoded")
	}
	state, err := s.cfg.Records.ChangeRecords(ctx, space(project), []record.Change{{ID: r.ID, Body: body, If: rev}}, record.Limit{}, nil, s.nowMS())
	return state.Rev, err
}

// List returns the replays of a project, the newest first.
func (s *Service) List(ctx context.Context, project string) ([]Replay, error) {
	list, _, err := s.replays.List(ctx, space(project), "", record.MaxChanges)
	slices.SortFunc(list, func(a, b Replay) int {
		return cmp.Or(cmp.Compare(b.CreatedMS, a.CreatedMS), cmp.Compare(b.ID, a.ID))
	})
	return list, err
}

// Get returns a replay, or fault.NotFound.
func (s *Service) Get(ctx context.Context, project, id string) (Replay, error) {
	return s.replays.Get(ctx, space(project), id)
}

// Delete ends a replay and deletes it with its results. Requests that are under way are not stored.
func (s *Service) Delete(ctx context.Context, project, id string) error {
	r, err := s.Get(ctx, project, id)
	if err != nil {
		return err
	}
	if err := s.replays.Delete(ctx, space(project), id, s.nowMS()); err != nil {
		return err
	}
	if err := s.deleteResults(ctx, project, &r, 0, len(r.Targets)); err != nil {
		return err
	}
	return s.queue.Forget(ctx, job.Key{Project: project, ID: id})
}

// deleteResults deletes the results of some targets.
func (s *Service) deleteResults(ctx context.Context, project string, r *Replay, from, to int) error {
	byAgent := map[string][]record.Change{}
	for i := from; i < to; i++ {
		at := r.Targets[i].Agent
		byAgent[at] = append(byAgent[at], record.Change{ID: resultID(r.ID, i), If: record.Any})
	}
	for agent, changes := range byAgent {
		if _, err := s.cfg.Records.ChangeRecords(ctx, resultSpace(project, agent), changes, record.Limit{}, nil, s.nowMS()); err != nil {
			return err
		}
	}
	return nil
}

// Forget deletes the results of a call that is erased from a store.
func Forget(ctx context.Context, records record.Store, project, agent string, nowMS int64) error {
	at := resultSpace(project, agent)
	list, err := records.RecordSpaces(ctx, project, at.Name, record.Space{}, 1)
	if err != nil || len(list) == 0 || list[0].Name != at.Name {
		return err // nearly every call has none
	}
	return record.EraseSpace(ctx, records, at, nowMS)
}
