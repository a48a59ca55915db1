package handlers

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/llmadapter/responses"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/input"
)

// openAIConversationAPI serves OpenAI's Conversations API: each conversation is an agent.
type openAIConversationAPI struct {
	*proxyAPI
	agents agentAPI
}

// noConversation is the error for an unknown conversation.
func noConversation(field, id string) error {
	return fault.At(fault.NotFound, field, "there is no conversation %q", text.Clip(id, 200))
}

// conversationRequest is the body of a new conversation and of a change of one.
type conversationRequest struct {
	Items    json.RawMessage            `json:"items"`
	Metadata map[string]json.RawMessage `json:"metadata"`
}

// Limits of metadata, which are OpenAI's.
const (
	maxMetadata      = 16
	maxMetadataKey   = 64
	maxMetadataValue = 512
)

// metadata returns the metadata of a body, which become the agent's labels.
func (in *conversationRequest) metadata() (map[string]string, error) {
	if len(in.Metadata) > maxMetadata {
		return nil, fault.At(fault.Invalid, "metadata", "has %d entries; at most %d are allowed", len(in.Metadata), maxMetadata)
	}
	out := make(map[string]string, len(in.Metadata))
	for k, raw := range in.Metadata {
		var v string
		field := "metadata." + text.Clip(k, maxMetadataKey)
		switch {
		case json.Unmarshal(raw, &v) != nil:
			return nil, fault.At(fault.Invalid, field, "must be a string")
		case len(k) > maxMetadataKey || strings.ContainsRune(k, 0):
			return nil, fault.At(fault.Invalid, "metadata", "the name of an entry must have at most %d bytes and no NUL", maxMetadataKey)
		case len([]rune(v)) > maxMetadataValue:
			return nil, fault.At(fault.Invalid, field, "must have at most %d characters", maxMetadataValue)
		}
		out[k] = withoutNUL(v)
	}
	return out, nil
}

// conversationOf returns an agent as a conversation.
func conversationOf(g *memory.Agent) responses.Conversation {
	out := responses.Conversation{ID: responses.ConversationID(g.ID), Object: "conversation", CreatedAt: g.StartMS / 1000, Metadata: g.Settings.Labels}
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	return out
}

// inPath returns the ID of the conversation that a path names, and its agent.
func (a openAIConversationAPI) inPath(r *http.Request) (memory.Agent, error) {
	id := pathName(r, "id")
	agent, ok := responses.ConversationAgent(id)
	if !ok || !input.AgentID(agent) {
		return memory.Agent{}, noConversation("conversation_id", id)
	}
	g, err := a.memory.Agents.Agent(r.Context(), projectOf(r), agent)
	if fault.Is(err, fault.NotFound) {
		return g, noConversation("conversation_id", id)
	}
	infoOf(r).agent = agent
	return g, err
}

// create serves POST /v1/conversations: an agent without a timeout of its own.
func (a openAIConversationAPI) create(w http.ResponseWriter, r *http.Request) error {
	var in conversationRequest
	body, err := a.read(w, r)
	if err != nil {
		return err
	}
	if len(strings.TrimSpace(string(body))) > 0 {
		if err := parse(body, &in, false); err != nil {
			return err
		}
	}
	labels, err := in.metadata()
	if err != nil {
		return err
	}
	first, err := a.messagesOf(in.Items, false)
	if err != nil {
		return err
	}
	user, err := callerOf(r, func(string) []byte { return nil })
	if err != nil {
		return err
	}
	settings := map[string]any{"idle_timeout": 0, "labels": labels}
	if user != "" {
		settings["heardlog"] = map[string]any{"scope": map[string]string{"user_id": user}}
	}
	properties, err := marshal(settings)
	if err != nil {
		return err
	}
	g, err := a.agents.start(w, r, joinRequest{Name: newRequestID(), Properties: properties}, joinV1)
	if err != nil {
		return err
	}
	if len(first) > 0 {
		if _, err := a.memory.Messages.Append(r.Context(), g.Project, g.ID, first); err != nil {
			return err
		}
	}
	return encode(w, http.StatusOK, conversationOf(&g))
}

// get serves GET /v1/conversations/{id}.
func (a openAIConversationAPI) get(w http.ResponseWriter, r *http.Request) error {
	g, err := a.inPath(r)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, conversationOf(&g))
}

// update serves POST /v1/conversations/{id}: it replaces the metadata.
func (a openAIConversationAPI) update(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[conversationRequest](a.bodies, w, r, false)
	if err != nil {
		return err
	}
	labels, err := in.metadata()
	if err != nil {
		return err
	}
	g, err := a.inPath(r)
	if err != nil {
		return err
	}
	change := map[string]*string{}
	for k := range g.Settings.Labels {
		change[k] = nil
	}
	for k, v := range labels {
		change[k] = &v
	}
	if len(change) > 0 {
		if g, err = a.memory.Agents.Update(r.Context(), g.Project, g.ID, agents.UpdateRequest{Labels: change}); err != nil {
			return err
		}
	}
	return encode(w, http.StatusOK, conversationOf(&g))
}

// delete serves DELETE /v1/conversations/{id}: it erases the agent.
func (a openAIConversationAPI) delete(w http.ResponseWriter, r *http.Request) error {
	g, err := a.inPath(r)
	if err != nil {
		return err
	}
	infoOf(r).target = g.ID
	if err := a.agents.eraseAgent(w, r, g.ID); err != nil {
		return err
	}
	return encode(w, http.StatusOK, responses.Deleted{ID: responses.ConversationID(g.ID), Object: "conversation.deleted", Deleted: true})
}

// messagesOf returns the messages that items are.
func (a openAIConversationAPI) messagesOf(items json.RawMessage, required bool) ([]memory.Message, error) {
	if !given(items) {
		if required {
			return nil, fault.At(fault.Missing, "items", "is required: an array of items")
		}
		return nil, nil
	}
	in, err := responses.ParseItems(items)
	if err != nil {
		return nil, locateItems(err)
	}
	body, err := in.Chat(nil)
	if err != nil {
		return nil, locateItems(err)
	}
	var chat struct {
		Messages messageList `json:"messages"`
	}
	if err := parse(input.ReplaceNUL(body), &chat, false); err != nil {
		return nil, err
	}
	if len(chat.Messages) == 0 {
		return nil, nil
	}
	msgs, err := (&appendRequest{Messages: chat.Messages}).messages("", a.now())
	return msgs, locateItems(in.Locate(err))
}

// locateItems renames the field of an error about input, which is items here.
func locateItems(err error) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return err
	}
	if rest, ok := strings.CutPrefix(e.Field, "input"); ok {
		moved := *e
		moved.Field, moved.Msg = "items"+rest, "items"+strings.TrimPrefix(e.Msg, "input")
		return &moved
	}
	return err
}

// addItems serves POST /v1/conversations/{id}/items.
func (a openAIConversationAPI) addItems(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[conversationRequest](a.bodies, w, r, false)
	if err != nil {
		return err
	}
	msgs, err := a.messagesOf(in.Items, true)
	if err != nil {
		return err
	}
	g, err := a.inPath(r)
	if err != nil {
		return err
	}
	done, err := a.memory.Messages.Append(r.Context(), g.Project, g.ID, msgs)
	if err != nil {
		return err
	}
	var out []*responses.Item
	for i := range done.Messages {
		out = append(out, itemsOf(g.ID, &done.Messages[i])...)
	}
	return encode(w, http.StatusOK, responses.NewList(out, len(out)))
}

// listItems serves GET /v1/conversations/{id}/items.
func (a openAIConversationAPI) listItems(w http.ResponseWriter, r *http.Request) error {
	g, err := a.inPath(r)
	if err != nil {
		return err
	}
	q, err := itemQueryOf(r, g.ID, allItems)
	if err != nil {
		return err
	}
	list, err := a.itemPage(r.Context(), q)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, list)
}

// item returns the agent and the item that a path names.
func (a openAIConversationAPI) item(r *http.Request) (memory.Agent, *responses.Item, int64, error) {
	g, err := a.inPath(r)
	if err != nil {
		return g, nil, 0, err
	}
	id := pathName(r, "item")
	unknown := fault.At(fault.NotFound, "item_id", "there is no item %q in this conversation", text.Clip(id, 200))
	ref, ok := responses.ParseRef(id)
	if !ok || ref.Agent != g.ID {
		return g, nil, 0, unknown
	}
	m, err := a.answerAt(r.Context(), g.Project, ref)
	switch {
	case fault.Is(err, fault.NotFound):
		return g, nil, 0, unknown
	case err != nil:
		return g, nil, 0, err
	}
	for _, it := range itemsOf(g.ID, m) {
		if it.ID == id {
			return g, it, ref.Seq, nil
		}
	}
	return g, nil, 0, unknown
}

// getItem serves GET /v1/conversations/{id}/items/{item}.
func (a openAIConversationAPI) getItem(w http.ResponseWriter, r *http.Request) error {
	_, it, _, err := a.item(r)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, it)
}

// deleteItem serves DELETE /v1/conversations/{id}/items/{item}. It removes the message that the
// item belongs to.
func (a openAIConversationAPI) deleteItem(w http.ResponseWriter, r *http.Request) error {
	g, _, seq, err := a.item(r)
	if err != nil {
		return err
	}
	if err := a.items.RemoveMessage(r.Context(), g.Project, g.ID, seq); err != nil {
		return err
	}
	return encode(w, http.StatusOK, conversationOf(&g))
}

// conversationNamed serves a path that two kinds of conversations share. Those of OpenAI's API have
// IDs that begin with conv_, which are made here; any other name is that of a saved one.
func conversationNamed(openAI, saved http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := responses.ConversationAgent(pathName(r, "id")); ok {
			openAI(w, r)
			return
		}
		saved(w, r)
	}
}

// conversationStyle returns the form of errors for a path below /v1/conversations that was not
// routed.
func conversationStyle(method, rest string) errorStyle {
	switch {
	case method == http.MethodPost || strings.Contains(strings.TrimPrefix(rest, "/"), "/"):
		return openAIError
	case rest != "" && method != http.MethodPut:
		return bothErrors
	}
	return agoraError
}
