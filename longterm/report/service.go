// Package report answers questions about many calls: how often answers were cut, how long callers
// waited, what unheard words cost. A Service adds each call that has ended to the Figures of its
// hour, day and month, by its labels and other values (Value), and makes a Report of these for a
// Query.
//
// A call is counted exactly once. What it has added is stored with the sums that it was added to,
// in one commit, so that late evidence takes away the old and adds the new.
package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/longterm/check"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/record"
)

// Service counts calls, checks them, and makes reports. All fields are required. Its methods are
// safe for concurrent use, also by several servers on one store.
type Service struct {
	Records record.Store // without the limits of projects
	Calls   memory.DueCalls
	Ledger  memory.Ledger
	// SetChecks stores which checks have found something in a call, unless the call has another
	// revision. It fails with memory.ErrStale then, and with fault.NotFound if the call is gone.
	SetChecks func(ctx context.Context, ref memory.Ref, rev int64, names []string) error
	Now       func() time.Time

	counting sync.Map // *sync.Mutex by project: a project's calls are counted by one at a time
}

const (
	// countEvery is how often calls that have ended are counted. A report counts those of its
	// project before it reads.
	countEvery = 15 * time.Second
	pageSize   = 100     // calls read at a time
	atOnce     = 480     // records changed at a time, below record.MaxChanges
	bytesAt    = 1 << 20 // and their bytes, below record.MaxBytes
	ofJob      = 2000    // calls counted by one job
	ofReport   = 500     // calls counted before a report
	maxTries   = 20
)

// Handle makes the Runner count calls that have ended.
func (s *Service) Handle(r *job.Runner) {
	r.Handle(job.Kind{
		Name: job.Reports, Every: countEvery, Timeout: 5 * time.Minute, Places: 2, Claimed: true, Frequent: true,
		Find: func(ctx context.Context, add func(job.Key) bool) (more bool, err error) {
			projects, err := s.Calls.DueProjects(ctx)
			for _, p := range projects {
				add(job.Key{Project: p})
			}
			return false, err
		},
		Do: func(ctx context.Context, k job.Key) (job.Result, error) {
			left, err := s.Count(ctx, k.Project, ofJob)
			if err == nil && left {
				return job.Again(100 * time.Millisecond), nil
			}
			return job.Done(job.OK), err
		},
	})
}

// Count counts calls of a project that are due, at most so many, and reports whether there may be
// more.
func (s *Service) Count(ctx context.Context, project string, most int) (left bool, err error) {
	mu, _ := s.counting.LoadOrStore(project, new(sync.Mutex))
	mu.(*sync.Mutex).Lock()
	defer mu.(*sync.Mutex).Unlock()
	var failed error
	for after := int64(0); most > 0; {
		list, err := s.Calls.Due(ctx, project, after, min(pageSize, most))
		if err != nil || len(list) == 0 {
			return left, errors.Join(failed, err)
		}
		most -= len(list)
		after = list[len(list)-1].No
		again, err := s.count(ctx, project, list)
		left = left || again
		if err != nil {
			failed = errors.Join(failed, err)
			if !fault.Is(err, fault.Internal) {
				return left, failed
			}
		}
		if len(list) < pageSize && most > 0 {
			return left, failed
		}
	}
	return true, failed
}

// dueCall is a call that is being counted.
type dueCall struct {
	memory.Due
	now *call // nil: it was erased, and what it has added stays
}

// count counts calls, as many at once as one commit may have, and reports whether some are left.
func (s *Service) count(ctx context.Context, project string, list []memory.Due) (left bool, err error) {
	var batch []dueCall
	seen := map[string]bool{} // a later call of an ID that was erased waits for the next batch
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		done := make([]memory.Due, len(batch))
		for i := range batch {
			done[i] = batch[i].Due
		}
		err := s.store(ctx, project, batch)
		if err == nil {
			err = s.Calls.Counted(ctx, project, done)
		}
		batch = batch[:0]
		clear(seen)
		return err
	}
	var unread error
	for _, d := range list {
		c := dueCall{Due: d}
		if d.Rev != 0 {
			now, err := s.read(ctx, &c.Due)
			if err == memory.ErrStale {
				left = true
				continue
			}
			if fault.Is(err, fault.Internal) { // it stays due, and keeps no other from being counted
				unread = errors.Join(unread, err)
				continue
			}
			if err != nil {
				return left, err
			}
			c.now = now
		}
		if seen[d.ID] {
			if err := flush(); err != nil {
				return left, err
			}
		}
		batch, seen[d.ID] = append(batch, c), true
	}
	return left, errors.Join(unread, flush())
}

// read reads a call; nil if it is gone meanwhile, or if another has its ID now. It fails with
// memory.ErrStale while the ledger still shows the call as it was before it became due.
func (s *Service) read(ctx context.Context, d *memory.Due) (*call, error) {
	ref := d.Ref
	h, err := s.Ledger.Head(ctx, ref.Project, ref.ID)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case h.Rev < d.Rev:
		return nil, memory.ErrStale
	case !h.Agent.Status.Ended():
		return nil, nil
	}
	var msgs []memory.Message
	err = memory.EachPage(memory.MessageQuery{Limit: 1000}, func(q memory.MessageQuery) ([]memory.Message, error) {
		return s.Ledger.Messages(ctx, ref.Project, ref.ID, q)
	}, func(page []memory.Message) error {
		msgs = append(msgs, page...)
		return nil
	})
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	msgs = slices.DeleteFunc(h.Agent.Settings.Memory.Own(msgs), func(m memory.Message) bool { return m.Filed().CopyOf != 0 })
	checks := check.Found(check.Of(msgs))
	c := callOf(&h, msgs, checks)
	if !slices.Equal(checks, h.Agent.Settings.Checks) {
		err := s.SetChecks(ctx, d.Ref, h.Rev, checks)
		if fault.Is(err, fault.NotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		c.rev++
		d.Rev = c.rev // that change made the call due again
	}
	return &c, nil
}

// store brings calls into the sums. If they are too many for one commit, it halves them.
func (s *Service) store(ctx context.Context, project string, batch []dueCall) error {
	for try := 1; ; try++ {
		changes, err := s.changes(ctx, project, batch)
		if err != nil {
			return err
		}
		size := 0
		for i := range changes {
			size += len(changes[i].ID) + len(changes[i].Body)
		}
		if n := len(batch) / 2; n > 0 && (len(changes) > atOnce || size > bytesAt) {
			if err := s.store(ctx, project, batch[:n]); err != nil {
				return err
			}
			return s.store(ctx, project, batch[n:])
		}
		if len(changes) == 0 {
			return nil
		}
		_, err = s.Records.ChangeRecords(ctx, spaceOf(project), changes, record.Limit{}, nil, s.Now().UnixMilli())
		if err != record.ErrStale || try == maxTries {
			return err
		}
	}
}

// changes returns what counting a batch changes.
func (s *Service) changes(ctx context.Context, project string, batch []dueCall) ([]record.Change, error) {
	d := deltas{s: s, ctx: ctx, at: spaceOf(project), sums: map[string]*Figures{}, lists: map[string]*list{}}
	var calls []record.Change
	for _, c := range batch {
		id := "c" + sep + c.ID
		old, err := d.record(id)
		if err != nil {
			return nil, err
		}
		if c.now == nil {
			if old.Rev != 0 {
				calls = append(calls, record.Change{ID: id, If: old.Rev})
			}
			continue
		}
		now := *c.now
		if err := d.limit(&now); err != nil {
			return nil, err
		}
		body := now.encode()
		if bytes.Equal(body, old.Body) {
			continue
		}
		if old.Rev != 0 {
			before, err := decodeCall(old.Body)
			if err != nil {
				return nil, fault.Wrap(fault.Internal, err, "the counts of a call cannot be read")
			}
			if before.rev > now.rev { // another server has read a newer state of it
				continue
			}
			before.each(func(id string, f *Figures) { d.add(id, f, -1) })
		}
		now.each(func(id string, f *Figures) { d.add(id, f, 1) })
		calls = append(calls, record.Change{ID: id, Body: body, If: old.Rev})
	}
	sums, err := d.changes()
	return append(calls, sums...), err
}

// deltas is what a batch adds.
type deltas struct {
	s     *Service
	ctx   context.Context
	at    record.Space
	sums  map[string]*Figures
	lists map[string]*list
}

// list is the names or values that calls of a month are counted by.
type list struct {
	names   []string
	rev     int64
	changed bool
}

// record returns a record, or the zero value if there is none.
func (d *deltas) record(id string) (record.Record, error) {
	r, err := d.s.Records.Record(d.ctx, d.at, id)
	if fault.Is(err, fault.NotFound) {
		return record.Record{}, nil
	}
	return r, err
}

func (d *deltas) add(id string, f *Figures, by int64) {
	to := d.sums[id]
	if to == nil {
		to = &Figures{}
		d.sums[id] = to
	}
	to.Add(f, by)
}

// limit replaces the values of a call beyond the limits of its month.
func (d *deltas) limit(c *call) error {
	month := monthOf(c.startMS)
	parts := slices.Clone(c.parts)
	for i := range parts {
		p := &parts[i]
		var values []Value
		for _, v := range p.values {
			if strings.HasPrefix(v.Dim, ByLabel) {
				known, err := d.enter("l"+sep+month, v.Dim, MaxLabels)
				if err != nil {
					return err
				}
				if !known {
					continue
				}
			}
			known, err := d.enter("v"+sep+month+sep+v.Dim, v.Value, MaxValues)
			if err != nil {
				return err
			}
			if !known {
				v.Value = Other
			}
			values = append(values, v)
		}
		p.values = values
	}
	c.parts = parts
	return nil
}

// enter reports whether a name is in a list, and adds it if there is room.
func (d *deltas) enter(id, name string, most int) (bool, error) {
	l := d.lists[id]
	if l == nil {
		l = &list{}
		r, err := d.record(id)
		if err == nil && r.Rev != 0 {
			l.rev, err = r.Rev, json.Unmarshal(r.Body, &l.names)
		}
		if err != nil {
			return false, err
		}
		d.lists[id] = l
	}
	if slices.Contains(l.names, name) {
		return true, nil
	}
	if len(l.names) >= most {
		return false, nil
	}
	l.names, l.changed = append(l.names, name), true
	return true, nil
}

// changes returns the changes of sums and lists.
func (d *deltas) changes() (out []record.Change, err error) {
	for id, l := range d.lists {
		if !l.changed {
			continue
		}
		body, err := json.Marshal(l.names)
		if err != nil {
			return nil, err
		}
		out = append(out, record.Change{ID: id, Body: body, If: l.rev})
	}
	for id, add := range d.sums {
		old, err := d.record(id)
		if err != nil {
			return nil, err
		}
		now := Figures{}
		if old.Rev != 0 {
			if now, err = decodeFigures(old.Body); err != nil {
				return nil, fault.Wrap(fault.Internal, err, "the figures of a report cannot be read")
			}
		}
		now.Add(add, 1)
		body := now.Encode()
		if !bytes.Equal(body, old.Body) {
			out = append(out, record.Change{ID: id, Body: body, If: old.Rev})
		}
	}
	return out, nil
}
