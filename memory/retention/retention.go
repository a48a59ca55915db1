// Package retention erases calls whose settings say that they are kept for a shorter time than all
// others. A Keeper notes each such call when it begins, and erases it when its time is over.
package retention

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/record"
)

const (
	lookEvery = 10 * time.Minute
	day       = 24 * time.Hour
	pageSize  = 100
)

// space has the calls of all projects, in the order in which they are due. No project has this
// name.
var space = record.Space{Project: "~", Name: "retention"}

// Keeper erases calls at the end of their own time. All fields but Server are required.
type Keeper struct {
	Records record.Store
	// Server is how long calls are kept that do not say; 0 = for ever.
	Server time.Duration
	Agent  func(ctx context.Context, project, id string) (memory.Agent, error)
	// Erase erases an agent with all that belongs to it.
	Erase func(ctx context.Context, project, id string) error
	// Forget deletes what is left of an agent that is gone.
	Forget  func(ctx context.Context, project, id string) error
	Now     func() time.Time
	OnError func(what string, err error)
}

// call is a noted call.
type call struct {
	Project string `json:"project"`
	Agent   string `json:"agent"`
}

// note returns the record of a call that is due at a time.
func (c call) note(dueMS int64) (record.Change, error) {
	body, err := json.Marshal(c)
	return record.Change{ID: fmt.Sprintf("%016d/%s/%s", dueMS, c.Project, c.Agent), Body: body, If: record.Any}, err
}

// Joined notes a new call, durably, if its settings set its time.
func (k *Keeper) Joined(ctx context.Context, a *memory.Agent) error {
	if a.Settings.Memory.Kept.Days == 0 {
		return nil
	}
	return k.Note(ctx, a)
}

// Note notes a call, durably: what is left of it is forgotten after its time.
func (k *Keeper) Note(ctx context.Context, a *memory.Agent) error {
	keep := k.keep(a)
	if keep == 0 {
		return nil
	}
	note, err := call{a.Project, a.ID}.note(a.StartMS + keep)
	if err != nil {
		return err
	}
	return k.change(ctx, note)
}

// keep returns how long a call is kept after its end, ms; 0 = for ever.
func (k *Keeper) keep(a *memory.Agent) int64 {
	if days := a.Settings.Memory.Kept.Days; days > 0 {
		return int64(days) * day.Milliseconds()
	}
	return k.Server.Milliseconds()
}

func (k *Keeper) change(ctx context.Context, changes ...record.Change) error {
	_, err := k.Records.ChangeRecords(ctx, space, changes, record.Limit{}, nil, k.Now().UnixMilli())
	return err
}

// Run erases what is due, at once and then periodically, until ctx is done, and returns nil.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if err := k.Look(ctx); err != nil && ctx.Err() == nil {
			k.OnError("erase calls at the end of their retention", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Look erases what is due now. It stops at the first call that cannot be erased.
func (k *Keeper) Look(ctx context.Context) error {
	now := k.Now().UnixMilli()
	for {
		page, _, err := k.Records.Records(ctx, space, record.Query{Limit: pageSize})
		if err != nil {
			return err
		}
		for _, r := range page {
			var c call
			var due int64
			if _, err := fmt.Sscanf(r.ID, "%d/", &due); err != nil || due > now {
				return err
			}
			if err := json.Unmarshal(r.Body, &c); err != nil {
				return err
			}
			if err := k.settle(ctx, c, r.ID, now); err != nil {
				return err
			}
		}
		if len(page) < pageSize {
			return nil
		}
	}
}

// settle erases a call that has ended long enough ago, or notes when to look again.
func (k *Keeper) settle(ctx context.Context, c call, id string, now int64) error {
	done := record.Change{ID: id, If: record.Any}
	a, err := k.Agent(ctx, c.Project, c.Agent)
	switch {
	case fault.Is(err, fault.NotFound):
		if err := k.Forget(ctx, c.Project, c.Agent); err != nil {
			return err
		}
		return k.change(ctx, done)
	case err != nil:
		return err
	}
	again := a.StopMS + k.keep(&a)
	if !a.Status.Ended() {
		again = now + day.Milliseconds()
	}
	if again > now {
		note, err := c.note(again)
		if err != nil {
			return err
		}
		return k.change(ctx, done, note)
	}
	if err := k.Erase(ctx, c.Project, c.Agent); err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	return k.change(ctx, done)
}
