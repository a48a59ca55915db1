package handlers

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/prompt"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/input"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/platform"
)

// proxyAPI serves chat completions and what else goes to an upstream.
type proxyAPI struct {
	bodies
	memory    *agents.Service
	items     memories.Service
	turns     *turn.Runner
	platforms *platform.Set
	noKey     string // NoKeyRefuse, NoKeyWords or NoKeyStart
	calls     *unnamedCalls
	autoJoin  func(ctx context.Context, project, id string, call memory.Call, labels map[string]string) (string, error)
	expect    func(project, id string, labels map[string]string, err error) bool // nil never does
	now       func() time.Time
	allowed   []string        // paths that are sent on
	own       map[string]bool // first names of our own paths under /v1, which never are
}

// agentIDHeader names the agent of a call to /v1/chat/completions.
const agentIDHeader = "X-Agent-Id"

// chat answers a chat completion: it puts the agent's memory in front of the request and sends it
// to the agent's LLM.
func (a *proxyAPI) chat(w http.ResponseWriter, r *http.Request) error {
	body, err := a.read(w, r)
	if err != nil {
		return err
	}
	req, err := llmadapter.ParseRequest(input.ReplaceNUL(body))
	if err != nil {
		return err
	}
	if r.Header.Get(prompt.ModeHeader) == prompt.ModeOff {
		return abort(r, a.aside(w, r, req))
	}
	return abort(r, a.complete(w, r, req, req.Member, 0))
}

// aside answers a chat completion that is not a turn: the LLM of its agent gets the messages as
// they are, and nothing is stored.
func (a *proxyAPI) aside(w http.ResponseWriter, r *http.Request, req *llmadapter.Request) error {
	agent, err := a.agentAside(r, req)
	if fault.Is(err, fault.NotFound) && a.autoJoin != nil && chi.URLParam(r, "id") == "" {
		agent, err = memory.Agent{Project: projectOf(r)}, nil // its first turn will start it
	}
	if err != nil {
		return err
	}
	infoOf(r).agent = agent.ID
	infoOf(r).leaveTurn() // the answer may take long
	return a.turns.ServeAside(w, r, &agent, req)
}

// agentAside returns the agent of a question that is not a turn, also one that has ended. It
// creates none.
func (a *proxyAPI) agentAside(r *http.Request, req *llmadapter.Request) (memory.Agent, error) {
	if namedAgent(r, req.AgentID) != "" {
		id, err := a.agentOfCall(r, req, req.Member)
		if err != nil {
			return memory.Agent{}, err
		}
		return a.memory.Agents.Agent(r.Context(), projectOf(r), id)
	}
	if !a.named(r, req.Member) {
		return memory.Agent{}, fault.New(fault.NotFound, "the request names no call")
	}
	key, err := a.keyOfCall(r, req, req.Member)
	if err != nil {
		return memory.Agent{}, err
	}
	return a.memory.Agents.ByKey(r.Context(), projectOf(r), key.Text)
}

// complete answers a chat completion that was read. member returns a member of the body that the
// client sent; after is turn.Call.After. If it returns turn.ErrAborted, the caller must abort the
// connection.
func (a *proxyAPI) complete(w http.ResponseWriter, r *http.Request, req *llmadapter.Request, member func(string) []byte, after int64) error {
	for i := range req.Messages {
		if err := checkBlocks("messages["+strconv.Itoa(i)+"].content", req.Messages[i].Content); err != nil {
			return err
		}
	}
	id, err := a.agentOfCall(r, req, member)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r, memory.MaxMessageID) // becomes the ID of the user message
	if err != nil {
		return err
	}
	user, err := callerOf(r, member)
	if err != nil {
		return err
	}
	infoOf(r).agent = id
	call := &turn.Call{
		Project: projectOf(r), AgentID: id,
		Call: prompt.Call{
			Request: req, Key: key, User: user, After: after,
			Resends: func() bool { return a.platforms.Resends(r.Header.Get, member) },
		},
	}
	infoOf(r).leaveTurn() // the answer may take long
	err = a.turns.Serve(w, r, call)
	// Only an agent that a header or the body names is created. One in the path was joined before,
	// and has ended or been erased.
	if err == nil || chi.URLParam(r, "id") != "" {
		return err
	}
	if fault.Is(err, fault.Unavailable) && a.expect != nil {
		return a.goOn(w, r, call, err)
	}
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	if a.autoJoin == nil {
		return fault.New(fault.NotFound, "agent not found: join it first, or set HEARDLOG_AUTO_JOIN=true to start agents that are not known")
	}
	labels, err := labelHeaders(r)
	if err != nil {
		return err
	}
	if _, err := a.autoJoin(r.Context(), projectOf(r), id, memory.Call{}, labels); err != nil {
		if taken := nameTaken(err); taken != nil { // answered in OpenAI's form, not in Agora's
			return fault.At(fault.Conflict, agentIDHeader, "%q is the name of another running agent, %s; use its id", id, taken.AgentID)
		}
		if fault.Is(err, fault.Unavailable) && a.expect != nil {
			return a.goOn(w, r, call, err)
		}
		return err
	}
	return a.turns.Serve(w, r, call)
}

// goOn serves a call of an agent that cannot be created because the store is away, as err shows.
func (a *proxyAPI) goOn(w http.ResponseWriter, r *http.Request, call *turn.Call, err error) error {
	labels, wrong := labelHeaders(r)
	if wrong != nil {
		return wrong
	}
	if !a.expect(call.Project, call.AgentID, labels, err) {
		return err
	}
	return a.turns.Serve(w, r, call)
}

func aborted(err error) bool { return errors.Is(err, turn.ErrAborted) }

// abort aborts the connection if an answer broke off, since the client must not take it for a
// complete one. It returns any other error.
func abort(r *http.Request, err error) error {
	if aborted(err) {
		infoOf(r).err = err
		panic(http.ErrAbortHandler)
	}
	return err
}

// userHeader names the caller, the user_id of recall.
const userHeader = "X-Heardlog-User"

// callerOf returns the caller of a call, from the header or by the number that a platform sends, or
// "". What platforms send for a withheld number is not a name, and a telephone number in the header
// is returned in E.164.
func callerOf(r *http.Request, member func(string) []byte) (string, error) {
	user := r.Header.Get(userHeader)
	if user == "" {
		return platform.Caller(member), nil
	}
	name, ok := platform.Name(user)
	if !ok {
		return "", nil
	}
	return text.CleanKey(userHeader, name, maxScopeID)
}

// models answers with the models of the upstream, or with the one in the path. The upstream is that
// of the agent in the path or header, or the server's.
func (a *proxyAPI) models(w http.ResponseWriter, r *http.Request) error {
	id := chi.URLParam(r, "id")
	if id == "" {
		id = r.Header.Get(agentIDHeader)
	}
	var llm memory.LLMSettings
	if id != "" {
		var err error
		if llm, err = a.llmOf(r, id); err != nil {
			return err
		}
	}
	model := pathName(r, "model")
	return a.turns.Models(w, r, llm, model)
}

// agentOfCall returns the agent of a call, found by the path, then the header, then
// metadata.agent_id, then the platform's key, then as NoKey says.
func (a *proxyAPI) agentOfCall(r *http.Request, req *llmadapter.Request, member func(string) []byte) (string, error) {
	id := namedAgent(r, req.AgentID)
	if id == "" {
		if !a.named(r, member) {
			return a.agentUnnamed(r, req.Messages)
		}
		key, err := a.keyOfCall(r, req, member)
		if err != nil {
			return "", err
		}
		return a.agentByKey(r, key)
	}
	if !input.AgentID(id) {
		return "", notAnAgent(id)
	}
	return id, nil
}
