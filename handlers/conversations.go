package handlers

import (
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// conversationRoutes are the calls about saved conversations.
func (a *API) conversationRoutes(r chi.Router) {
	h := func(f handlerFunc) http.HandlerFunc { return a.handle(agoraError, f) }
	r.Get("/conversations", h(a.conversations))
	r.Delete("/conversations", h(a.clearConversations))
	r.Put("/conversations/{id}", h(a.saveConversation))
	r.Get("/conversations/{id}", h(a.conversation))
	r.Delete("/conversations/{id}", h(a.deleteConversation))
}

func conversationID(r *http.Request) (string, error) { return pathName(r, "id") }

// pathName gives a part of the path as its client meant it. Where a path holds escapes that matter, such as %2F, chi gives its parts as they were sent.
func pathName(r *http.Request, param string) (string, error) {
	name := chi.URLParam(r, param)
	if r.URL.RawPath == "" {
		return name, nil
	}
	plain, err := url.PathUnescape(name)
	if err != nil {
		return "", fault.At(fault.Invalid, param, "%q cannot be read: a percent sign is written %%25", clip(name, 80))
	}
	return plain, nil
}

func (a *API) saveConversation(w http.ResponseWriter, r *http.Request) error {
	body, err := a.readBody(w, r)
	if err != nil {
		return err
	}
	id, err := conversationID(r)
	if err != nil {
		return err
	}
	if err := a.Conversations.Save(r.Context(), projectOf(r), id, body); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// conversation answers with the bytes that were saved, and no others.
func (a *API) conversation(w http.ResponseWriter, r *http.Request) error {
	id, err := conversationID(r)
	if err != nil {
		return err
	}
	body, err := a.Conversations.Load(r.Context(), projectOf(r), id)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, body)
	return nil
}

func (a *API) deleteConversation(w http.ResponseWriter, r *http.Request) error {
	id, err := conversationID(r)
	if err != nil {
		return err
	}
	if err := a.Conversations.Delete(r.Context(), projectOf(r), id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Page sizes of the list of conversations.
const (
	defaultConversationPage = 100
	maxConversationPage     = 1000
)

// conversationList is a page of ids. NextCursor is the last of them, and the next page's cursor; "" on the last page.
type conversationList struct {
	Conversations []string `json:"conversations"`
	Total         int      `json:"total"`
	NextCursor    string   `json:"next_cursor,omitempty"`
}

func (a *API) conversations(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	limit, err := intParam(query, "limit", defaultConversationPage, 1, maxConversationPage)
	if err != nil {
		return err
	}
	after := query.Get("cursor")
	if after != "" {
		if err := memory.ValidName("cursor", after, memory.MaxConversationID); err != nil {
			return err
		}
	}
	ids, total, err := a.Conversations.List(r.Context(), projectOf(r), after, limit+1)
	if err != nil {
		return err
	}
	out := conversationList{Conversations: []string{}, Total: total}
	if len(ids) > limit {
		ids = ids[:limit]
		out.NextCursor = ids[limit-1]
	}
	out.Conversations = append(out.Conversations, ids...)
	return encode(w, http.StatusOK, out)
}

// removedJSON tells how many were taken away.
type removedJSON struct {
	Removed int `json:"removed"`
}

func (a *API) clearConversations(w http.ResponseWriter, r *http.Request) error {
	n, err := a.Conversations.Clear(r.Context(), projectOf(r))
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, removedJSON{Removed: n})
}
