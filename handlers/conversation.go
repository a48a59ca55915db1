package handlers

import (
	"net/http"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/redact"
)

// conversationAPI serves saved conversations.
type conversationAPI struct {
	bodies
	conversations kv.Conversations
	messages      *agents.Messages
}

// moved marks the answers of the paths that saved conversations had before, as RFC 9745 has it.
func moved(f handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Deprecation", "@1795824000") // 2026-11-28
		w.Header().Set("Link", `</v1/saved-conversations>; rel="successor-version"`)
		err := f(w, r)
		if err != nil {
			w.Header().Del("Deprecation")
			w.Header().Del("Link")
		}
		return err
	}
}

// saveMoved is save for the former path. There, names that begin with conv_ are those of OpenAI's
// conversations, and what was saved under one could not be read.
func (a conversationAPI) saveMoved(w http.ResponseWriter, r *http.Request) error {
	if id := pathName(r, "id"); strings.HasPrefix(id, "conv_") {
		return fault.At(fault.Invalid, "id", "begins with conv_, as the conversations of OpenAI's API do; save it with PUT /v1/saved-conversations/%s", text.Clip(id, 200))
	}
	return a.save(w, r)
}

func (a conversationAPI) save(w http.ResponseWriter, r *http.Request) error {
	body, err := a.readDocument(w, r, a.limit)
	if err != nil {
		return err
	}
	id := pathName(r, "id")
	given := body
	err = a.messages.Redact(r.Context(), &memory.Agent{Project: projectOf(r)}, func(by *redact.Redactor) { body = by.JSON(given) })
	if err != nil {
		return err
	}
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
