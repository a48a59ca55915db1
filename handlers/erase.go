package handlers

import (
	"bytes"
	"net/http"

	"github.com/go-chi/chi/v5"
)

// erase takes an agent away with all that belongs to it, live or ended. No event tells of it.
func (a *API) erase(w http.ResponseWriter, r *http.Request) error {
	if err := a.Memory.Erase(r.Context(), projectOf(r), chi.URLParam(r, "id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// clear empties an agent's memory; the summary stays, and so does the ledger.
func (a *API) clear(w http.ResponseWriter, r *http.Request) error {
	if err := a.noBody(w, r); err != nil {
		return err
	}
	if _, err := a.Memory.Clear(r.Context(), projectOf(r), chi.URLParam(r, "id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// noBody reads the body of a call that takes none; an empty object is as good.
func (a *API) noBody(w http.ResponseWriter, r *http.Request) error {
	body, err := a.readBody(w, r)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}
	return a.decodeBytes(body, &struct{}{}, true)
}
