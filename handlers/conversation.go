package handlers

import (
	"net/http"

	"github.com/heardlog/heardlog/internal/text"
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

func conversationID(r *http.Request) (string, error) { return pathName(r, "id") }

func (a conversationAPI) save(w http.ResponseWriter, r *http.Request) error {
	body, err := a.readDocument(w, r, a.limit)
	if err != nil {
		return err
	}
	id, err := conversationID(r)
	if err != nil {
		return err
	}
	body = a.messages.Redactor(&memory.Agent{Project: projectOf(r)}).JSON(body)
	return noContent(w, a.conversations.Save(r.Context(), projectOf(r), id, body))
}

// get answers with the bytes that were saved.
func (a conversationAPI) get(w http.ResponseWriter, r *http.Request) error {
	id, err := conversationID(r)
	if err != nil {
		return err
	}
	body, err := a.conversations.Load(r.Context(), projectOf(r), id)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, body)
	return nil
}

func (a conversationAPI) delete(w http.ResponseWriter, r *http.Request) error {
	id, err := conversationID(r)
	if err != nil {
		return err
	}
	return noContent(w, a.conversations.Delete(r.Context(), projectOf(r), id))
}

// Page sizes of the list of conversations.
const (
	defaultConversationPage = 100
	maxConversationPage     = 1000
)

// conversationList is a page of IDs. NextCursor is the last ID, "" on the last page.
type conversationList struct {
	Conversations []string `json:"conversations"`
	Total         int      `json:"total"`
	NextCursor    string   `json:"next_cursor,omitempty"`
}

func (a conversationAPI) list(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	limit, err := intParam(query, "limit", defaultConversationPage, 1, maxConversationPage)
	if err != nil {
		return err
	}
	after := query.Get("cursor")
	if after != "" {
		if err := text.ValidName("cursor", after, kv.MaxConversationID); err != nil {
			return err
		}
	}
	ids, total, err := a.conversations.List(r.Context(), projectOf(r), after, limit+1)
	if err != nil {
		return err
	}
	out := conversationList{Conversations: []string{}, Total: total}
	ids, out.NextCursor = cutPage(ids, limit, func(x string) string { return x })
	out.Conversations = append(out.Conversations, ids...)
	return encode(w, http.StatusOK, out)
}

// removedJSON holds how many entries were removed.
type removedJSON struct {
	Removed int `json:"removed"`
}

func (a conversationAPI) clear(w http.ResponseWriter, r *http.Request) error {
	_, err := a.conversations.Clear(r.Context(), projectOf(r))
	return noContent(w, err)
}
