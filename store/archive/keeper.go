package archive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

const (
	// MaxMessages is how many messages a call may have that is moved. The rows of a larger one
	// stay: to delete them in one transaction would hold up writers.
	MaxMessages = 2000
	// maxBytes is how many bytes of messages and events a call may have that is moved.
	maxBytes = MaxCall / 2
	// unusedFor is how long after it was noted an object is deleted that no call has taken.
	unusedFor = 24 * time.Hour
	lookEvery = time.Minute
	passEvery = 24 * time.Hour
	pageCalls = 200
	moveAtOne = 4
)

// Keeper moves calls into an archive and deletes objects that are no longer needed. Rows, Archive
// and Now are required.
type Keeper struct {
	Rows    Rows
	Archive *Archive
	// After is how long after its end a call is moved; 0 moves none.
	After   time.Duration
	Now     func() time.Time
	Metrics prometheus.Registerer // nil registers nowhere

	moved, messages, bytes, deleted prometheus.Counter
	failed                          *prometheus.CounterVec

	mu         sync.Mutex // guards the place up to which calls were found
	atMS, atNo int64
	began      time.Time
}

// Handle makes the Runner move calls and delete objects.
func (k *Keeper) Handle(r *job.Runner) {
	f := promauto.With(k.Metrics)
	count := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: "heardlog_archive_" + name, Help: help})
	}
	k.moved = count("calls_total", "Calls that this server has moved into the archive.")
	k.messages = count("messages_total", "Messages of these calls.")
	k.bytes = count("bytes_total", "Bytes of the objects of these calls.")
	k.deleted = count("deleted_total", "Objects that this server has deleted from the archive.")
	k.failed = f.NewCounterVec(prometheus.CounterOpts{
		Name: "heardlog_archive_failures_total", Help: "Failures of the archive, by what was done: write, read or delete.",
	}, []string{"op"})
	for _, op := range []string{"write", "read", "delete"} {
		k.failed.WithLabelValues(op)
	}
	k.Archive.onFail = func() { k.failed.WithLabelValues("read").Inc() }
	if k.After > 0 {
		r.Handle(job.Kind{
			Name: job.Archive, Do: k.archive, Find: k.find, Every: lookEvery, Places: moveAtOne,
			Timeout: 2 * writeFor, First: time.Minute, Longest: time.Hour, Frequent: true,
		})
	}
	r.Every(job.ArchiveObjects, lookEvery, k.Sweep)
}

// find adds calls that are to be moved. A day after it began, a pass over all ended calls begins
// again, for those that were left out or have come back.
func (k *Keeper) find(ctx context.Context, add func(job.Key) bool) (more bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.Now()
	if now.Sub(k.began) >= passEvery {
		k.began, k.atMS, k.atNo = now, 0, 0
	}
	for found := 0; found < pageCalls; {
		list, err := k.Rows.EndedCalls(ctx, now.Add(-k.After).UnixMilli(), k.atMS, k.atNo, pageCalls)
		if err != nil {
			return false, err
		}
		for i := range list {
			c := &list[i]
			k.atMS, k.atNo = c.StopMS, c.No
			if !c.Cold && !c.Waits && add(job.Key{Project: c.Project, ID: c.ID}) {
				found++
			}
		}
		if len(list) < pageCalls {
			return false, nil
		}
	}
	return true, nil
}

func (k *Keeper) archive(ctx context.Context, j job.Key) (job.Result, error) {
	done, err := k.Move(ctx, memory.Ref{Project: j.Project, ID: j.ID})
	switch {
	case err != nil:
		k.failed.WithLabelValues("write").Inc()
		return job.Result{}, err
	case !done:
		return job.Done(job.Nothing), nil
	}
	return job.Done(job.OK), nil
}

// Move moves a call into the archive. It reports whether it did: a call that is live, gone, there
// already, empty or too large stays as it is.
func (k *Keeper) Move(ctx context.Context, ref memory.Ref) (bool, error) {
	st, err := k.Rows.Load(ctx, ref.Project, ref.ID, 0, memory.Version{})
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	a := st.Head.Agent
	if !a.Status.Ended() || a.Cold != nil || st.Head.NextSeq > MaxMessages+1 {
		return false, nil
	}
	c, err := k.read(ctx, &st)
	if errors.Is(err, errTooLarge) || err == nil && len(c.Messages) == 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	object, cold, err := encode(ctx, st.No, c)
	if errors.Is(err, errTooLarge) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("agent %s: %w", ref.ID, err)
	}
	// What will be read later must be what is deleted now.
	back, err := decode(ref, &cold, object)
	if err == nil {
		err = same(c, back)
	}
	if err != nil {
		return false, fmt.Errorf("agent %s: %w", ref.ID, err)
	}
	if err := k.Rows.NoteObject(ctx, memory.ColdObject{No: st.No, Name: cold.Object}, k.Now().UnixMilli()); err != nil {
		return false, err
	}
	if err := k.Archive.put(ctx, cold.Object, object); err != nil {
		return false, err
	}
	m, err := moveOf(&st, &cold, c)
	if err != nil {
		return false, err
	}
	m.Object = cold.Object
	if err := k.freeze(ctx, m); err != nil {
		// It was changed, or is under hold: the next pass looks again.
		if errors.Is(err, memory.ErrStale) || fault.Is(err, fault.Held) {
			return false, nil
		}
		return false, err
	}
	k.moved.Inc()
	k.messages.Add(float64(cold.Messages))
	k.bytes.Add(float64(cold.Bytes))
	return true, nil
}

// freeze lets the object take the place of the rows. After an error the object stays: the store
// knows whether it is used, and Sweep asks the store.
func (k *Keeper) freeze(ctx context.Context, m memory.Move) error {
	err := k.Rows.Freeze(ctx, m)
	if err == nil {
		return nil
	}
	now, failed := k.Rows.Load(ctx, m.Project, m.ID, 0, memory.Version{})
	if failed == nil && now.Head.Agent.Cold != nil && now.Head.Agent.Cold.Object == m.Object {
		return nil // it was committed after all
	}
	return err
}

// read reads the rows of a call, in pages. That they belong together is certain once the version is
// compared.
func (k *Keeper) read(ctx context.Context, st *memory.Stored) (*Call, error) {
	c := &Call{Agent: *st.Head.Agent}
	size := 0
	err := memory.EachPage(memory.MessageQuery{Limit: 500}, func(q memory.MessageQuery) ([]memory.Message, error) {
		return k.Rows.Page(ctx, st.No, q)
	}, func(list []memory.Message) error {
		for i := range list {
			m := &list[i]
			size += len(m.Content) + len(m.Generated) + len(m.Sent) + len(m.ToolCalls) + len(m.Parts)
		}
		if c.Messages = append(c.Messages, list...); size > maxBytes {
			return errTooLarge
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = k.Rows.AgentEvents(ctx, st.Head.Agent.Project, st.Head.Agent.ID, func(e webhook.Event) error {
		if size += len(e.Body); size > maxBytes {
			return errTooLarge
		}
		c.Events = append(c.Events, memory.Event{ID: e.ID, Type: e.Type, CreatedMS: e.CreatedMS, Body: e.Body})
		return nil
	})
	return c, err
}

// Sweep deletes objects that no call needs.
func (k *Keeper) Sweep(ctx context.Context) error {
	for {
		list, err := k.Rows.Unneeded(ctx, k.Now().Add(-unusedFor).UnixMilli(), pageCalls)
		if err != nil || len(list) == 0 {
			return err
		}
		for _, o := range list {
			err := k.Archive.remove(ctx, o.Name)
			if err == nil {
				err = k.Rows.ForgetObject(ctx, o)
			}
			if err != nil {
				k.failed.WithLabelValues("delete").Inc()
				return fmt.Errorf("delete object %s: %w", o.Name, err)
			}
			k.deleted.Inc()
		}
	}
}
