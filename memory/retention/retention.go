// Package retention erases calls whose settings say that they are kept for a shorter time than all
// others. A Keeper notes each such call when it begins, and erases it when its time is over.
package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/record"
)

const (
	lookEvery = 10 * time.Minute
	day       = 24 * time.Hour
	// turn is how many calls of one project are erased before the next project gets its turn.
	turn = 20
	// eraseFor is how long the erasure of one call may take.
	eraseFor = time.Minute
	// A call that could not be erased is tried again after firstPause. The pause doubles with each
	// try, up to longestPause.
	firstPause   = 10 * time.Minute
	longestPause = day
	pageSize     = 100 // projects read at a time
)

// spaces is what the names of all spaces of notes begin with. Each project has a space with its
// calls in the order in which they are due. No project has the name of their project.
const spaces = "retention"

func spaceOf(project string) record.Space {
	return record.Space{Project: "~", Name: spaces + "/" + project}
}

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
	// Count is called after a pass in which calls were erased or could not be.
	Count func(erased, failed int)
}

// call is a noted call.
type call struct {
	Project string `json:"project"`
	Agent   string `json:"agent"`
	Tries   int    `json:"tries,omitempty"` // that failed
}

// note returns the record of a call that is due at a time.
func (c call) note(dueMS int64) (record.Change, error) {
	body, err := json.Marshal(c)
	return record.Change{ID: fmt.Sprintf("%016d/%s/%s", dueMS, c.Project, c.Agent), Body: body, If: record.Any}, err
}

// readNote returns a noted call and when it is due. What the body does not say is taken from the
// ID, so that a damaged body keeps no call for ever.
func readNote(r *record.Record) (c call, dueMS int64, err error) {
	parts := strings.SplitN(r.ID, "/", 3)
	if len(parts) < 3 {
		return c, 0, fmt.Errorf("the record %q is not a note of a call", r.ID)
	}
	if dueMS, err = strconv.ParseInt(parts[0], 10, 64); err != nil {
		return c, 0, err
	}
	if json.Unmarshal(r.Body, &c) != nil {
		c.Tries = 0
	}
	c.Project, c.Agent = parts[1], parts[2]
	return c, dueMS, nil
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
	note, err := call{Project: a.Project, Agent: a.ID}.note(a.StartMS + keep)
	if err != nil {
		return err
	}
	return k.change(ctx, spaceOf(a.Project), note)
}

// keep returns how long a call is kept after its end, ms; 0 = for ever.
func (k *Keeper) keep(a *memory.Agent) int64 {
	if days := a.Settings.Memory.Kept.Days; days > 0 {
		return int64(days) * day.Milliseconds()
	}
	return k.Server.Milliseconds()
}

func (k *Keeper) change(ctx context.Context, at record.Space, changes ...record.Change) error {
	_, err := k.Records.ChangeRecords(ctx, at, changes, record.Limit{}, nil, k.Now().UnixMilli())
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

// pass is one call of Look.
type pass struct {
	nowMS          int64
	read           map[string]string // by the name of a space: the last note that was read
	erased, failed int
}

// Look erases what is due now. Projects take turns. A call that cannot be erased is reported and
// tried again later; it delays no other. Look fails if the notes cannot be read or changed.
func (k *Keeper) Look(ctx context.Context) error {
	p := &pass{nowMS: k.Now().UnixMilli(), read: map[string]string{}}
	defer func() {
		if p.erased+p.failed > 0 {
			k.Count(p.erased, p.failed)
		}
	}()
	for more := true; more; {
		more = false
		for after := (record.Space{}); ; {
			list, err := k.Records.RecordSpaces(ctx, "~", spaces, after, pageSize)
			if err != nil {
				return err
			}
			for _, at := range list {
				after = at
				left, err := k.takeTurn(ctx, p, at)
				if err != nil {
					return err
				}
				more = more || left
			}
			if len(list) < pageSize {
				break
			}
		}
	}
	return nil
}

// takeTurn erases calls of one space. It reports whether more of them may be due.
func (k *Keeper) takeTurn(ctx context.Context, p *pass, at record.Space) (more bool, err error) {
	list, _, err := k.Records.Records(ctx, at, record.Query{AfterID: p.read[at.Name], Limit: turn, Broken: true})
	if err != nil {
		return false, err
	}
	for i := range list {
		r := &list[i]
		p.read[at.Name] = r.ID
		c, due, err := readNote(r)
		if err != nil {
			k.OnError("read a note of a call to be erased", err)
			continue
		}
		if due > p.nowMS {
			return false, nil
		}
		err = k.settle(ctx, p, at, c, r)
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return false, err
		}
		p.failed++
		k.OnError(fmt.Sprintf("erase the call of agent %s of project %s at the end of its retention", c.Agent, c.Project), err)
		pause := min(firstPause<<min(c.Tries, 16), longestPause)
		c.Tries++
		if err := k.move(ctx, at, r, c, k.Now().Add(pause).UnixMilli()); err != nil {
			return false, err
		}
		return true, nil // what is slow to fail delays no other project
	}
	return len(list) == turn, nil
}

// move notes a call for another time, unless another server has changed the note.
func (k *Keeper) move(ctx context.Context, at record.Space, r *record.Record, c call, dueMS int64) error {
	note, err := c.note(dueMS)
	if err != nil {
		return err
	}
	changes := []record.Change{{ID: r.ID, If: r.Rev}, note}
	if note.ID == r.ID {
		changes = changes[1:]
	}
	return unlessStale(k.change(ctx, at, changes...))
}

// unlessStale returns an error other than record.ErrStale, by which another server did the same.
func unlessStale(err error) error {
	if errors.Is(err, record.ErrStale) {
		return nil
	}
	return err
}

// settle erases a call that has ended long enough ago, or notes when to look again.
func (k *Keeper) settle(ctx context.Context, p *pass, at record.Space, c call, r *record.Record) error {
	ctx, stop := context.WithTimeout(ctx, eraseFor)
	defer stop()
	a, err := k.Agent(ctx, c.Project, c.Agent)
	switch {
	case fault.Is(err, fault.NotFound):
		if err := k.Forget(ctx, c.Project, c.Agent); err != nil {
			return err
		}
		return unlessStale(k.change(ctx, at, record.Change{ID: r.ID, If: r.Rev}))
	case err != nil:
		return err
	}
	again := a.StopMS + k.keep(&a)
	if !a.Status.Ended() {
		again = p.nowMS + day.Milliseconds()
	}
	if again > p.nowMS {
		c.Tries = 0
		return k.move(ctx, at, r, c, again)
	}
	if err := k.Erase(ctx, c.Project, c.Agent); err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	p.erased++
	return unlessStale(k.change(ctx, at, record.Change{ID: r.ID, If: r.Rev}))
}
