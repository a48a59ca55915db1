// Package context builds what a language model is given of an agent's memory, and cuts memories for
// good. Service.Context returns the messages that a model would be given now; Service.Begin gives a
// turn its context; Trim, Repair, Clear, SetSummary, Snapshot and Restore work on the memory
// itself. What is shown is decided by package window, which knows messages but no agents.
//
// Memories may hold thousands of messages. A Service caches what it has read, reads only changes
// after that, and of a long memory only as much of its end as the policy needs, at most
// memory.MaxRead messages and the instructions before these.
package context

import (
	"context"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/view"
	"github.com/heardlog/heardlog/memory/window"
)

// Service is a memory whose turns have a context by the agent's policy.
type Service struct {
	*agents.Service
	cache *cache
}

// New returns a Service for a memory. It must be called before the memory is used.
func New(m *agents.Service) *Service {
	s := &Service{Service: m, cache: newCache()}
	m.OnErase(func(project, id string) { s.cache.remove(memory.Ref{Project: project, ID: id}) })
	return s
}

// Begin begins a turn, with a context by the agent's policy and the request's.
func (s *Service) Begin(ctx context.Context, project, id string, r agents.TurnRequest) (*agents.Turn, error) {
	r.Window = func(ctx context.Context, t *agents.Turn) error { return s.setContext(ctx, t, r.Policy) }
	return s.Service.Begin(ctx, project, id, r)
}

// method is how a memory is read for a model.
type method struct {
	policy  window.Policy // full
	counter window.Counter
	view    *view.View
	extras  window.Extras
}

// viewOf returns how the conversation is shown: with the projection of the request's policy, the
// agent's policy, the agent's settings or the server's policy, the first that names one.
func (s *Service) viewOf(a *memory.Agent, request *window.Policy) *view.View {
	v, own := a.Settings.LLM.View, a.Settings.Memory.Policy
	switch {
	case request != nil && request.Projection != "":
		return v.With(view.Projection(request.Projection))
	case own != nil && own.Projection != "":
		return v.With(view.Projection(own.Projection))
	case v == nil || v.Projection == "":
		return v.With(view.Projection(s.ServerPolicy().Projection))
	}
	return v
}
