package handlers

import (
	"net/http"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/kv"
)

// conversationAPI serves saved conversations.
type conversationAPI struct {
	bodies
	conversations kv.Conversations
	messages      *agents.Messages
}

func (a conversationAPI) save(w http.ResponseWriter, r *http.Request) error {
	body, err := a.readDocument(w, r, a.limit)
	if err != nil {
		return err
	}
	id := pathName(r, "id")
	body = a.messages.Redactor(&memory.Agent{Project: projectOf(r)}).JSON(body)
	return noContent(w, a.conversations.Save(r.Context(), projectOf(r), id, body))
}

// get answers with the bytes that were saved.
func (a conversationAPI) get(w http.ResponseWriter, r *http.Request) error {
	id := pathName(r, "id")
	body, err := a.conversations.Load(r.Context(), projectOf(r), id)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, body)
	return nil
}

func (a conversationAPI) delete(r *http.Request) error {
	return a.conversations.Delete(r.Context(), projectOf(r), pathName(r, "id"))
}

func (a conversationAPI) list(r *http.Request) (any, error) {
	after, limit, err := pageOf(r, maxPageSize, kv.MaxConversationID)
	if err != nil {
		return nil, err
	}
	ids, total, err := a.conversations.List(r.Context(), projectOf(r), after, limit+1)
	ids, next := cutPage(ids, limit, func(x string) string { return x })
	return struct {
		Conversations []string `json:"conversations"`
		Total         int      `json:"total"`
		NextCursor    string   `json:"next_cursor,omitempty"`
	}{append([]string{}, ids...), total, next}, err
}

// removedJSON holds how many entries were removed.
type removedJSON struct {
	Removed int `json:"removed"`
}

func (a conversationAPI) clear(r *http.Request) error {
	_, err := a.conversations.Clear(r.Context(), projectOf(r))
	return err
}
