package handlers

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/heardlog/heardlog/internal/cache"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// unnamedCalls finds the agents of chat completions that name no call (NoKeyStart). A list without
// an answer begins a call. Any other list belongs to the call whose requests had exactly these
// system messages and these words of the user so far, with or without the last ones. It is kept in
// memory: after a restart, a list begins a call that has all of it.
type unnamedCalls struct {
	mu     sync.Mutex
	agents *cache.Cache[callState, string] // IDs, joined by spaces
}

// callState is what a call has come to, of which two calls may have the same.
type callState [sha256.Size]byte

// Bounds of what is kept: states, and calls in one state.
const (
	maxCallStates = 1 << 14
	maxSameCalls  = 16
)

func newUnnamedCalls() *unnamedCalls {
	return &unnamedCalls{agents: cache.New[callState, string](maxCallStates, nil)}
}

// callStates returns the state of a call before the newest words of the user, and with them. began
// is false if the list has no answer.
func callStates(project string, list []llmadapter.Incoming) (before, after callState, began bool) {
	h := sha256.New()
	fmt.Fprintf(h, "%q", project)
	h.Sum(after[:0])
	for i := range list {
		m := &list[i]
		switch {
		case m.Role == "assistant":
			began = true
		case m.IsSystem(), m.Role == "user":
			if m.Role == "user" {
				h.Sum(before[:0])
			}
			fmt.Fprintf(h, "%s %q", m.Role, m.Text())
			h.Sum(after[:0])
		}
	}
	return before, after, began
}

// in returns the calls in a state.
func (c *unnamedCalls) in(s callState) []string {
	ids, _ := c.agents.Get(s)
	return strings.Fields(ids)
}

// move has a call be in a state, and no longer in those before.
func (c *unnamedCalls) move(id string, to callState, from ...callState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range append(from, to) {
		ids := slices.DeleteFunc(c.in(s), func(other string) bool { return other == id })
		if s == to {
			ids = append(ids, id)
			ids = ids[max(0, len(ids)-maxSameCalls):]
		}
		if len(ids) == 0 {
			c.agents.Remove(s)
		} else {
			c.agents.Set(s, strings.Join(ids, " "))
		}
	}
}

// named reports whether a chat completion names its call, or must.
func (a *proxyAPI) named(r *http.Request, member func(string) []byte) bool {
	if a.noKey != NoKeyStart || a.autoJoin == nil {
		return true
	}
	_, ok := a.platforms.Key(projectOf(r), r.Header.Get, member)
	return ok
}

// agentUnnamed returns the agent of a chat completion that names no call: that of the call that its
// list goes on with, or else an ID that is not in use.
func (a *proxyAPI) agentUnnamed(r *http.Request, list []llmadapter.Incoming) (string, error) {
	before, after, began := callStates(projectOf(r), list)
	if began {
		states := []callState{before, after}
		if list[len(list)-1].Role != "user" {
			states = []callState{after} // such as the result of a tool
		}
		for _, state := range states {
			id, err := a.callIn(r, state, list)
			if err != nil {
				return "", err
			}
			if id != "" {
				a.calls.move(id, after, before)
				return id, nil
			}
		}
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	a.calls.move(id.String(), after)
	return id.String(), nil
}

// callIn returns the live agent of a call in a state, or "". If the list's newest answer has words,
// it is one that has given this answer: two callers may have said the same.
func (a *proxyAPI) callIn(r *http.Request, state callState, list []llmadapter.Incoming) (string, error) {
	ids := a.calls.in(state)
	answer := ""
	for i := range list {
		if list[i].Role == "assistant" {
			answer = strings.TrimSpace(list[i].Text())
		}
	}
	found := ""
	for _, id := range ids {
		head, msgs, err := a.memory.Messages.Recent(r.Context(), projectOf(r), id, 4)
		switch {
		case fault.Is(err, fault.NotFound), err == nil && head.Agent.Status.Ended():
			continue
		case err != nil && !fault.Is(err, fault.Unavailable):
			return "", err
		}
		same := slices.ContainsFunc(msgs, func(m memory.Message) bool {
			return m.Role == memory.Assistant && answer != "" && strings.HasPrefix(m.Original(), answer)
		})
		if same {
			return id, nil
		}
		if found == "" && answer == "" { // it called a tool
			found = id
		}
	}
	return found, nil
}
