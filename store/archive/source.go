package archive

import (
	"context"
	"fmt"
	"io"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/statements"
)

// Reader is a store that is open for reading.
type Reader interface {
	export.Source
	export.Prober
	io.Closer
}

// Source is a store that is exported with the calls that are in an archive, so that an export or a
// backup is complete in itself.
type Source struct {
	Reader
	Archive *Archive
}

// ahead is how many objects are read at a time.
const ahead = 16

// Export implements export.Source.
func (s Source) Export(ctx context.Context, sc export.Scope, each func(export.Record) error) error {
	x := exporting{s, ctx, sc, each, nil, map[memory.Ref]*memory.Cold{}}
	err := s.Reader.Export(ctx, sc, x.record)
	if err == nil {
		err = x.flush(0)
	}
	for _, w := range x.waiting { // after an error
		<-w.done
	}
	return err
}

// exporting is an export under way.
type exporting struct {
	Source
	ctx     context.Context
	scope   export.Scope
	each    func(export.Record) error
	waiting []*waiting
	// events are the archived calls that have events, whose records come last.
	events map[memory.Ref]*memory.Cold
}

// waiting is an archived call that is being read.
type waiting struct {
	agent export.Agent
	cold  *memory.Cold
	done  chan struct{}
	call  *Call
	err   error
}

func (x *exporting) record(r export.Record) error {
	if a := r.Agent; a != nil && a.Cold != nil {
		w := &waiting{agent: *a, cold: a.Cold, done: make(chan struct{})}
		w.agent.Cold = nil
		w.agent.HeadRev-- // of the move, of which an export knows nothing
		go func() {
			defer close(w.done)
			w.call, w.err = x.Archive.Read(x.ctx, w.agent.Ref(), w.cold)
		}()
		x.waiting = append(x.waiting, w)
		return x.flush(ahead)
	}
	if err := x.flush(0); err != nil {
		return err
	}
	if e := r.Event; e != nil && len(e.Body) == 0 {
		return x.event(r)
	}
	return x.each(r)
}

// flush passes on the calls that wait, but for the last so many.
func (x *exporting) flush(leave int) error {
	for len(x.waiting) > leave {
		w := x.waiting[0]
		<-w.done
		x.waiting = x.waiting[1:]
		if err := x.call(w); err != nil {
			return err
		}
	}
	return nil
}

func (x *exporting) call(w *waiting) error {
	if err := x.each(export.Record{Agent: &w.agent}); err != nil {
		return err
	}
	if w.err != nil {
		return x.scope.Fail(fmt.Sprintf("the messages of agent %s of project %s", w.agent.ID, w.agent.Project), w.err)
	}
	var near statements.Near
	for _, m := range w.call.Messages {
		near.Add(&m)
		near.Inline(&m)
		if err := x.each(export.Record{Message: &export.Message{Project: w.agent.Project, AgentID: w.agent.ID, Message: m}}); err != nil {
			return err
		}
	}
	if len(w.call.Events) > 0 {
		x.events[w.agent.Ref()] = w.cold
	}
	return nil
}

// event passes on an event whose body is in the archive.
func (x *exporting) event(r export.Record) error {
	e := *r.Event
	ref := memory.Ref{Project: e.Project, ID: e.AgentID}
	cold := x.events[ref]
	if cold == nil {
		return x.scope.Fail(fmt.Sprintf("event %s of project %s", e.ID, e.Project), fmt.Errorf("its body is empty"))
	}
	c, err := x.Archive.Read(x.ctx, ref, cold)
	if err != nil {
		return x.scope.Fail(fmt.Sprintf("event %s of project %s", e.ID, e.Project), err)
	}
	e.Body, _ = c.body(e.ID)
	return x.each(export.Record{Event: &e})
}
