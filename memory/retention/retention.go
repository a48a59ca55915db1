// Package retention erases calls whose settings say that they are kept for a shorter time than all
// others, for which see Agents.Sweep of package memory/agents. A Keeper notes each such call when
// it begins, and erases it when its time is over.
package retention

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/record"
)

const (
	lookEvery = 10 * time.Minute
	day       = 24 * time.Hour
	// share is how many calls of one project are looked for at a time.
	share = 100
	// eraseFor is how long the erasure of one call may take.
	eraseFor = time.Minute
	pageSize = 100 // notes or projects read at a time
)

// spaces is what the names of all spaces of notes begin with. Each project has a space with its
// calls in the order in which they are due. No project has the name of their project.
const spaces = "retention"

func spaceOf(project string) record.Space {
	return record.Space{Project: "~", Name: spaces + "/" + project}
}

// Keeper erases calls at the end of their own time: its jobs find the notes that are due. All
// fields but Server are required.
type Keeper struct {
	Records record.Store
	// Server is how long calls are kept that do not say; 0 = for ever.
	Server time.Duration
	Agent  func(ctx context.Context, project, id string) (memory.Agent, error)
	// Erase erases an agent with all that belongs to it.
	Erase func(ctx context.Context, project, id string) error
	// Forget deletes what is left of an agent that is gone.
	Forget func(ctx context.Context, project, id string) error
	Now    func() time.Time
}

// Handle makes the Runner erase what is due. The ID of a job is that of its note.
func (k *Keeper) Handle(r *job.Runner) {
	r.Handle(job.Kind{
		Name: job.Retention, Do: k.settle, Find: k.find, Every: lookEvery,
		Places: 2, Timeout: eraseFor, First: 10 * time.Minute, Longest: day,
	})
}

// noteID returns the ID of the note of a call that is due at a time. The body of a note is empty.
func noteID(project, agent string, dueMS int64) string {
	return fmt.Sprintf("%016d/%s/%s", dueMS, project, agent)
}

// readNote returns a noted call, and when it is due.
func readNote(id string) (project, agent string, dueMS int64, err error) {
	parts := strings.SplitN(id, "/", 3)
	if len(parts) == 3 {
		if dueMS, err = strconv.ParseInt(parts[0], 10, 64); err == nil {
			return parts[1], parts[2], dueMS, nil
		}
	}
	return "", "", 0, fmt.Errorf("the record %q is not a note of a call", id)
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
	id := noteID(a.Project, a.ID, a.StartMS+keep)
	return k.change(ctx, spaceOf(a.Project), record.Change{ID: id, Body: []byte("{}"), If: record.Any})
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

// find finds the calls that are due, a share of each project's. Those that are known already, for
// one because they could not be erased, hide no others.
func (k *Keeper) find(ctx context.Context, add func(job.Key) bool) (more bool, err error) {
	for after := (record.Space{}); ; {
		list, err := k.Records.RecordSpaces(ctx, "~", spaces, after, pageSize)
		if err != nil {
			return false, err
		}
		for _, at := range list {
			after = at
			left, err := k.findIn(ctx, at, add)
			if err != nil {
				return false, err
			}
			more = more || left
		}
		if len(list) < pageSize {
			return more, nil
		}
	}
}

func (k *Keeper) findIn(ctx context.Context, at record.Space, add func(job.Key) bool) (more bool, err error) {
	now, project := k.Now().UnixMilli(), strings.TrimPrefix(at.Name, spaces+"/")
	after := ""
	for n := 0; n < share; {
		list, _, err := k.Records.Records(ctx, at, record.Query{AfterID: after, Limit: pageSize, Broken: true})
		if err != nil {
			return false, err
		}
		for i := range list {
			after = list[i].ID
			if _, _, due, err := readNote(after); err == nil && due > now {
				return false, nil
			}
			if add(job.Key{Project: project, ID: after}) {
				n++
			}
		}
		if len(list) < pageSize {
			return false, nil
		}
	}
	return true, nil
}

// settle erases a call that has ended long enough ago, or notes when to look again.
func (k *Keeper) settle(ctx context.Context, j job.Key) (job.Result, error) {
	at := spaceOf(j.Project)
	project, id, due, err := readNote(j.ID)
	if err != nil {
		return job.Result{}, err
	}
	done := record.Change{ID: j.ID, If: record.Any}
	a, err := k.Agent(ctx, project, id)
	switch {
	case fault.Is(err, fault.NotFound):
		if err := k.Forget(ctx, project, id); err != nil {
			return job.Result{}, err
		}
		return job.Done(job.Nothing), k.change(ctx, at, done)
	case err != nil:
		return job.Result{}, err
	}
	now := k.Now().UnixMilli()
	again := a.StopMS + k.keep(&a)
	if !a.Status.Ended() { // in whole days, so that servers that do the same leave one note
		again = due + ((now-due)/day.Milliseconds()+1)*day.Milliseconds()
	}
	if again > now {
		later := record.Change{ID: noteID(project, id, again), Body: []byte("{}"), If: record.Any}
		return job.Result{}, k.change(ctx, at, done, later)
	}
	err = k.Erase(ctx, project, id)
	if fault.Is(err, fault.Held) { // a hold may last for years
		later := record.Change{ID: noteID(project, id, now+day.Milliseconds()), Body: []byte("{}"), If: record.Any}
		return job.Result{}, k.change(ctx, at, done, later)
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		return job.Result{}, err
	}
	return job.Done("erased"), k.change(ctx, at, done)
}
