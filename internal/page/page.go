// Package page serves what people see in a browser: the pages that show calls, the guides (Guide)
// and the API reference (APIDocs). All work without internet.
//
// The pages that show calls are static files that talk to the public API, without a build step.
// lit-html.js is that of the npm package lit-html 3.3.3, without the line that names its source
// map.
package page

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed static
var files embed.FS

// policy is the Content-Security-Policy of the pages: their own files, nothing inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// Paths are the addresses that show a page. Each is answered with the same document, whose script
// reads the address.
func Paths() []string {
	return []string{"/", "/calls/{id}", "/overview", "/callers", "/callers/{user}", "/webhooks", "/playground"}
}

// Document serves the document of all pages.
func Document(w http.ResponseWriter, r *http.Request) {
	Guard(w, policy)
	http.ServeFileFS(w, r, static(), "index.html")
}

// File serves a file that the document needs. It reports false if there is none of that name.
func File(w http.ResponseWriter, r *http.Request, name string) bool {
	if _, err := fs.Stat(static(), name); err != nil {
		return false
	}
	Guard(w, policy)
	http.ServeFileFS(w, r, static(), name)
	return true
}

func static() fs.FS {
	sub, err := fs.Sub(files, "static")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return sub
}

// Guard sets the headers of a page, or of a file of one, with its Content-Security-Policy.
func Guard(w http.ResponseWriter, policy string) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
}
