// Package context builds what a language model is given of an agent's memory, and cuts memories for
// good. Service.Context returns the messages that a model would be given now; Service.ForTurn gives
// a turn its context; Trim, Repair, Clear, SetSummary, Snapshot and Restore work on the memory
// itself. What is shown is decided by package window, which knows messages but no agents.
//
// Memories may hold thousands of messages. A Service caches what it has read, reads only changes
// after that, and of a long memory only as much of its end as the policy needs, at most
// memory.MaxRead messages and the instructions before these.
package context

import (
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/view"
	"github.com/heardlog/heardlog/memory/window"
)

// Service builds what a model is given of a call, and shortens what a call remembers. An LLM takes
// only so many tokens, and a long call has more: by the agent's policy the oldest messages are left
// out, or a summary stands for them. Context shows the result at any time, and ForTurn builds it
// for an answer. Trim, Repair, Clear, SetSummary and Restore change the memory itself; the ledger
// keeps everything.
type Service struct {
	messages *agents.Messages
	turns    *agents.Turns
	policies *agents.Policies
	cache    *cache
}

// New returns a Service for the agents' memories. It must be called before these are used.
func New(m *agents.Service) *Service {
	s := &Service{messages: m.Messages, turns: m.Turns, policies: m.Policies, cache: newCache()}
	m.Agents.OnErase(func(project, id string) { s.cache.remove(memory.Ref{Project: project, ID: id}) })
	return s
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
		return v.With(view.Projection(s.policies.Server().Projection))
	}
	return v
}
