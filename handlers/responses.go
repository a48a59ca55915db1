package handlers

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/prompt"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/llmadapter/responses"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/input"
)

// respond answers a request of the Responses API. It is a chat completion but for its form.
func (a *proxyAPI) respond(w http.ResponseWriter, r *http.Request) error {
	body, err := a.read(w, r)
	if err != nil {
		return err
	}
	in, err := responses.Parse(input.ReplaceNUL(body))
	if err != nil {
		return err
	}
	after, err := a.continued(r, in)
	if err != nil {
		return err
	}
	if in.Conversation != "" {
		if err := a.inConversation(r, in); err != nil {
			return err
		}
	}
	stored, err := a.storedItems(r, in)
	if err != nil {
		return err
	}
	if body, err = in.Chat(stored); err != nil {
		return err
	}
	req, err := llmadapter.ParseRequest(body)
	if err != nil {
		return in.Locate(err)
	}
	out := responses.NewWriter(w, in, refOf, a.now().Unix())
	err = a.complete(out, r, req, in.Member, after)
	broken := aborted(err)
	switch {
	case broken || err == nil:
		if ferr := out.Finish(broken); ferr != nil && err == nil {
			err = fault.Wrap(fault.Canceled, ferr, "the client went away")
		}
	case errors.Is(context.Cause(r.Context()), errResponseCanceled) && refOf(w.Header()).Agent != "":
		err = out.Interrupt()
	}
	return abort(r, in.Locate(err))
}

// refOf returns the place of an answer from the headers that name it.
func refOf(h http.Header) responses.Ref {
	seq, _ := strconv.ParseInt(h.Get(turn.SeqHeader), 10, 64) // our own
	return responses.Ref{Agent: h.Get(turn.AgentHeader), Seq: seq}
}

// namedAgent returns the agent that a request names in its path, header or body, or "".
func namedAgent(r *http.Request, body string) string {
	if id := chi.URLParam(r, "id"); id != "" {
		return id
	}
	if id := r.Header.Get(agentIDHeader); id != "" {
		return id
	}
	return body
}

// continued returns the Seq of the answer that a request continues, or 0. A request that names no
// agent belongs to that of the answer, or to that of the first item that it refers to.
func (a *proxyAPI) continued(r *http.Request, in *responses.Request) (int64, error) {
	named := namedAgent(r, in.AgentID)
	if in.Previous == "" {
		if len(in.References) > 0 && named == "" {
			ref, _ := responses.ParseRef(in.References[0])
			in.AgentID = ref.Agent
		}
		return 0, nil
	}
	if agent, ok := responses.Unstored(in.Previous); ok && (named == "" || named == agent) && input.AgentID(agent) {
		in.AgentID = agent
		return 0, nil // it continues the memory as it is
	}
	unknown := fault.At(fault.PreviousResponse, "previous_response_id", "there is no response %q", text.Clip(in.Previous, 200))
	ref, ok := responses.ParseRef(in.Previous)
	if !ok || named != "" && named != ref.Agent || !input.AgentID(ref.Agent) {
		return 0, unknown
	}
	head, stored, err := a.memory.Turns.HeadForTurn(r.Context(), projectOf(r), ref.Agent)
	switch {
	case fault.Is(err, fault.NotFound):
		return 0, unknown
	case err != nil:
		return 0, err
	case !stored: // the turn finds the answer, or goes on after what is known
		in.AgentID = ref.Agent
		return ref.Seq, nil
	case ref.Seq >= head.NextSeq && head.NextSeq > 1: // of an empty ledger the first answer has no place yet
		return 0, unknown
	}
	m, err := a.answerAt(r.Context(), projectOf(r), ref)
	if err != nil && !fault.Is(err, fault.NotFound) { // an answer may be in the making
		return 0, err
	}
	if m != nil && (m.Role != memory.Assistant || m.State == memory.Removed) {
		return 0, unknown
	}
	in.AgentID = ref.Agent
	return ref.Seq, nil
}

// inConversation finds the agent of a request's conversation. The request then brings only what is
// new, whatever its list holds.
func (a *proxyAPI) inConversation(r *http.Request, in *responses.Request) error {
	named := namedAgent(r, in.AgentID)
	agent, ok := responses.ConversationAgent(in.Conversation)
	unknown := noConversation("conversation", in.Conversation)
	if !ok || !input.AgentID(agent) || named != "" && named != agent {
		return unknown
	}
	if _, _, err := a.memory.Turns.HeadForTurn(r.Context(), projectOf(r), agent); fault.Is(err, fault.NotFound) {
		return unknown
	} else if err != nil {
		return err
	}
	if in.AgentID = agent; r.Header.Get(prompt.ModeHeader) == "" {
		r.Header.Set(prompt.ModeHeader, prompt.ModeInject)
	}
	return nil
}

// answerAt returns the message at a place, or fault.NotFound.
func (a *proxyAPI) answerAt(ctx context.Context, project string, ref responses.Ref) (*memory.Message, error) {
	if !input.AgentID(ref.Agent) {
		return nil, notAnAgent(ref.Agent)
	}
	list, err := a.memory.Messages.Page(ctx, project, ref.Agent, memory.MessageQuery{AfterSeq: ref.Seq - 1, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || list[0].Seq != ref.Seq {
		return nil, fault.New(fault.NotFound, "there is no response at this place")
	}
	return &list[0], nil
}

// storedItems returns the items that a request refers to. An agent's request gets only its own.
func (a *proxyAPI) storedItems(r *http.Request, in *responses.Request) (map[string]jsontext.Value, error) {
	named, out := namedAgent(r, in.AgentID), map[string]jsontext.Value{}
	if len(in.References) == 0 || !input.AgentID(named) {
		return out, nil // a reference is refused where it stands
	}
	if _, err := a.memory.Agents.Agent(r.Context(), projectOf(r), named); err != nil {
		return nil, err
	}
	for _, id := range in.References {
		ref, ok := responses.ParseRef(id)
		if !ok || ref.Agent != named {
			continue
		}
		m, err := a.answerAt(r.Context(), projectOf(r), ref)
		switch {
		case fault.Is(err, fault.NotFound):
			continue
		case err != nil:
			return nil, err
		}
		for item, v := range responses.Items(ref, m.Content, m.ToolCalls) {
			out[item] = v
		}
	}
	return out, nil
}

// response returns a response as the memory has it: its text is what was heard.
func (a *proxyAPI) response(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Query().Get("stream") == "true" {
		return fault.At(fault.Invalid, "stream", "is not supported for a stored response; leave it out")
	}
	ref, m, err := a.responseInPath(r)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, responses.Stored(ref, answerOf(m)))
}

// answerOf returns an answer as package responses takes it.
func answerOf(m *memory.Message) responses.Answer {
	return responses.Answer{
		Model: m.Made().Model, Text: m.Content, Thoughts: llmadapter.Thoughts(m.Made().Members, m.Produced()), ToolCalls: m.ToolCalls, Finish: m.FinishRsn, Usage: m.Usage,
		Interrupted: m.Interrupted || m.State == memory.Superseded, TimestampMS: m.Timestamp,
	}
}

// deleteResponse removes an answer's content from the ledger. Its place stays, and so does what it
// answered.
func (a *proxyAPI) deleteResponse(w http.ResponseWriter, r *http.Request) error {
	ref, _, err := a.responseInPath(r)
	if err != nil {
		return err
	}
	if err := a.items.RemoveMessage(r.Context(), projectOf(r), ref.Agent, ref.Seq); err != nil {
		return err
	}
	return encode(w, http.StatusOK, responses.Deleted{ID: ref.ID(), Object: "response", Deleted: true})
}

// responseInPath returns the response that a path names, with its message, or fault.NotFound. An
// answer that is still being made has no message yet.
func (a *proxyAPI) responseInPath(r *http.Request) (responses.Ref, *memory.Message, error) {
	id := pathName(r, "response")
	unknown := fault.At(fault.NotFound, "response_id", "there is no response %q", text.Clip(id, 200))
	ref, ok := responses.ParseRef(id)
	if named := chi.URLParam(r, "id"); !ok || ref.ID() != id || named != "" && named != ref.Agent {
		return ref, nil, unknown
	}
	m, err := a.answerAt(r.Context(), projectOf(r), ref)
	switch {
	case fault.Is(err, fault.NotFound) || err == nil && (m.Role != memory.Assistant || m.State == memory.Removed):
		return ref, nil, unknown
	case err != nil:
		return ref, nil, err
	}
	infoOf(r).agent = ref.Agent
	return ref, m, nil
}
