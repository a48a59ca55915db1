// Package checkpoint saves the memories of agents and brings them back. A Service makes a
// Checkpoint on demand, and by itself for agents whose settings ask for it; Restore replaces a
// memory by one.
package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/memory"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/record"
)

// Bounds of checkpoints.
const (
	DefaultMax = 10                       // of an agent whose settings do not say
	MaxMax     = 100                      // of any agent
	MaxBytes   = record.MaxBytes - 64<<10 // of one, as it is stored
	maxPlain   = 256 << 20                // of one, before it was compressed
)

// Checkpoint describes a saved memory: what an agent remembered at a moment, kept so that this
// agent or another one can go on from there. Agents save one when they are told to, or at
// intervals; the oldest is dropped when there are too many. It is erased with its agent.
type Checkpoint struct {
	ID         int64 `json:"-"` // higher for later ones of the agent; numbers may be missing
	CreatedMS  int64 `json:"-"` // Unix ms
	Rev        int64 `json:"rev"`
	Messages   int   `json:"messages"`
	Bytes      int   `json:"bytes"` // as it is stored
	Compressed bool  `json:"compressed,omitempty"`
}

// saved is a memory in the form that is stored.
type saved struct {
	Messages     []string       `json:"messages"` // each as package codec encodes it
	Summary      string         `json:"summary,omitempty"`
	ToolExchange string         `json:"tool_exchange,omitempty"`
	Policy       *window.Policy `json:"policy,omitempty"`
}

// Config is what a Service needs. All fields are required.
type Config struct {
	Records record.Store
	Ledger  memory.Ledger
	Memory  *memctx.Service
	// First is called before the first checkpoint of an agent is stored, and fails it.
	First func(ctx context.Context, a *memory.Agent) error
	Now   func() time.Time
}

// Service makes and restores checkpoints. Its methods are safe for concurrent use.
type Service struct {
	cfg   Config
	enc   *zstd.Encoder
	dec   *zstd.Decoder
	queue *job.Queue
}

// New returns a Service whose jobs save what has changed.
func New(jobs *job.Runner, c Config) (*Service, error) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxPlain))
	s := &Service{cfg: c, enc: enc, dec: dec}
	s.queue = jobs.Handle(s.kind())
	return s, err
}

// A checkpoint is two records, which are stored and deleted together: its description under
// headPrefix and its memory under bodyPrefix. So lists read no memories.
const (
	bodyPrefix = "b/"
	headPrefix = "h/"
)

func space(project, agent string) record.Space {
	return record.Space{Project: project, Name: "checkpoint/" + agent}
}

func recordID(prefix string, id int64) string { return fmt.Sprintf("%s%016d", prefix, id) }

// Save stores a checkpoint of an agent's memory and deletes the oldest ones beyond the agent's
// limit. It is on disk when Save returns. It fails with fault.Stopped if the agent has ended, and
// with fault.TooLarge if the memory is too long.
func (s *Service) Save(ctx context.Context, project, id string) (Checkpoint, error) {
	return s.save(ctx, project, id, false)
}

// save is Save. With changed, it stores nothing if the agent is as in its newest checkpoint.
func (s *Service) save(ctx context.Context, project, id string, changed bool) (c Checkpoint, err error) {
	snap, err := s.cfg.Memory.Snapshot(ctx, project, id)
	if err == nil {
		err = snap.Agent.MustBeActive(fault.Stopped)
	}
	if err != nil {
		return c, err
	}
	own := snap.Agent.Settings.Memory.Checkpoints
	body, err := s.encode(&snap, own.Plain)
	if err != nil {
		return c, err
	}
	most := own.Max
	if most == 0 {
		most = DefaultMax
	}
	err = record.Retry(ctx, "the checkpoints of this agent", func() error {
		list, state, err := s.list(ctx, project, id)
		if err != nil {
			return err
		}
		if n := len(list); changed && n > 0 && list[n-1].Rev == snap.Rev {
			c = list[n-1]
			return nil
		}
		if len(list) == 0 {
			if err := s.cfg.First(ctx, &snap.Agent); err != nil {
				return err
			}
		}
		c = Checkpoint{ID: state.Rev + 1, CreatedMS: s.cfg.Now().UnixMilli(), Rev: snap.Rev, Messages: len(snap.Messages), Bytes: len(body), Compressed: !own.Plain}
		head, err := json.Marshal(c)
		if err != nil {
			return fault.Wrap(fault.Internal, err, "a checkpoint could not be encoded")
		}
		changes := []record.Change{{ID: recordID(bodyPrefix, c.ID), Body: body}, {ID: recordID(headPrefix, c.ID), Body: head}}
		for _, old := range list[:max(0, len(list)+1-most)] {
			changes = append(changes, deletion(old.ID)...)
		}
		_, err = s.cfg.Records.ChangeRecords(ctx, space(project, id), changes, record.Limit{}, nil, c.CreatedMS)
		return err
	})
	if err != nil {
		return c, err
	}
	// The agent may have been erased while its memory was being saved.
	if _, err = s.cfg.Ledger.Head(ctx, project, id); fault.Is(err, fault.NotFound) {
		return c, s.Forget(ctx, project, id)
	}
	return c, err
}

func deletion(id int64) []record.Change {
	return []record.Change{{ID: recordID(bodyPrefix, id), If: record.Any}, {ID: recordID(headPrefix, id), If: record.Any}}
}

func (s *Service) encode(snap *memctx.Snapshot, plain bool) ([]byte, error) {
	out := saved{Messages: make([]string, len(snap.Messages)), Summary: snap.Summary, ToolExchange: snap.ToolExchange, Policy: snap.Agent.Settings.Memory.Policy}
	if len(snap.Messages) > memory.MaxSnapshot {
		return nil, fault.New(fault.TooLarge, "the memory holds %d messages; at most %d can be saved in a checkpoint", len(snap.Messages), memory.MaxSnapshot)
	}
	for i := range snap.Messages {
		var err error
		if out.Messages[i], err = codec.EncodeMessage(&snap.Messages[i]); err != nil {
			return nil, fault.Wrap(fault.Internal, err, "a message could not be saved")
		}
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the memory could not be saved")
	}
	if !plain {
		b = s.enc.EncodeAll(b, nil)
	}
	if len(b) > MaxBytes {
		return nil, fault.New(fault.TooLarge, "the memory takes %d bytes in a checkpoint; at most %d are allowed", len(b), MaxBytes)
	}
	return b, nil
}

// list returns the checkpoints of an agent, oldest first.
func (s *Service) list(ctx context.Context, project, id string) ([]Checkpoint, record.State, error) {
	page, state, err := s.cfg.Records.Records(ctx, space(project, id), record.Query{AfterID: headPrefix, Limit: 2 * MaxMax})
	if err != nil {
		return nil, state, err
	}
	out := make([]Checkpoint, 0, len(page))
	for _, r := range page {
		c, err := describe(&r)
		if err != nil {
			return nil, state, err
		}
		out = append(out, c)
	}
	return out, state, nil
}

func describe(r *record.Record) (c Checkpoint, err error) {
	err = json.Unmarshal(r.Body, &c)
	if err == nil {
		c.ID, err = strconv.ParseInt(r.ID[len(headPrefix):], 10, 64)
	}
	c.CreatedMS = r.UpdatedMS
	if err != nil {
		err = fault.Wrap(fault.Internal, err, "a stored checkpoint could not be read")
	}
	return c, err
}

// List returns the checkpoints of an agent, live or ended, newest first.
func (s *Service) List(ctx context.Context, project, id string) ([]Checkpoint, error) {
	if _, err := s.cfg.Ledger.Head(ctx, project, id); err != nil {
		return nil, err
	}
	list, _, err := s.list(ctx, project, id)
	slices.Reverse(list)
	return list, err
}

// Delete deletes a checkpoint. It is not an error if there is none.
func (s *Service) Delete(ctx context.Context, project, id string, checkpoint int64) error {
	if _, err := s.cfg.Ledger.Head(ctx, project, id); err != nil {
		return err
	}
	_, err := s.cfg.Records.ChangeRecords(ctx, space(project, id), deletion(checkpoint), record.Limit{}, nil, s.cfg.Now().UnixMilli())
	return err
}

// Restore replaces the memory of the agent into, which may be another one of the project, by a
// checkpoint, and returns how many messages it has. The ledger keeps the messages from before. It
// fails with fault.NotFound if there is no such checkpoint, and with fault.Stopped if into has
// ended.
func (s *Service) Restore(ctx context.Context, project, id string, checkpoint int64, into string) (int, error) {
	if _, err := s.cfg.Ledger.Head(ctx, project, id); err != nil {
		return 0, err
	}
	at := space(project, id)
	head, err := s.cfg.Records.Record(ctx, at, recordID(headPrefix, checkpoint))
	if fault.Is(err, fault.NotFound) {
		return 0, fault.New(fault.NotFound, "agent %s has no checkpoint %d", id, checkpoint)
	}
	if err != nil {
		return 0, err
	}
	body, err := s.cfg.Records.Record(ctx, at, recordID(bodyPrefix, checkpoint))
	if err != nil {
		return 0, err
	}
	snap, err := s.decode(&head, body.Body)
	if err != nil {
		return 0, fault.Wrap(fault.Internal, err, "a stored checkpoint could not be read")
	}
	_, err = s.cfg.Memory.Restore(ctx, project, into, snap)
	return len(snap.Messages), err
}

// decode reads a memory with the record that describes it.
func (s *Service) decode(head *record.Record, b []byte) (snap memctx.Snapshot, err error) {
	c, err := describe(head)
	if err == nil && c.Compressed {
		b, err = s.dec.DecodeAll(b, nil)
	}
	var in saved
	if err == nil {
		err = json.Unmarshal(b, &in)
	}
	if err != nil {
		return snap, err
	}
	snap = memctx.Snapshot{Messages: make([]memory.Message, len(in.Messages)), Summary: in.Summary, ToolExchange: in.ToolExchange, Policy: &in.Policy}
	for i, text := range in.Messages {
		if err := codec.DecodeMessage(text, &snap.Messages[i]); err != nil {
			return snap, err
		}
	}
	return snap, nil
}

// Forget deletes all checkpoints of an agent.
func (s *Service) Forget(ctx context.Context, project, id string) error {
	return Forget(ctx, s.cfg.Records, project, id, s.cfg.Now().UnixMilli())
}

// Forget deletes all checkpoints of an agent from a store.
func Forget(ctx context.Context, records record.Store, project, id string, nowMS int64) error {
	at := space(project, id)
	list, err := records.RecordSpaces(ctx, project, at.Name, record.Space{}, 1)
	if err != nil || len(list) == 0 || list[0].Name != at.Name {
		return err // nearly every agent has none
	}
	return record.EraseSpace(ctx, records, at, nowMS)
}
