package handlers

import (
	"net/http"
	"path"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/page"
)

// pageFile serves a file of the pages.
func pageFile(w http.ResponseWriter, r *http.Request) error {
	if !page.File(w, r, chi.URLParam(r, "file")) {
		return fault.New(fault.NotFound, "the pages have no such file")
	}
	return nil
}

// guideFile returns a handler that serves a document, a picture in one, or a search of them.
func guideFile(ui bool) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if !page.Guide(w, r, path.Join(chi.URLParam(r, "folder"), chi.URLParam(r, "file")), ui) {
			return fault.New(fault.NotFound, "there is no such document; /docs/guide lists all")
		}
		return nil
	}
}
