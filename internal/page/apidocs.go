package page

import (
	"bytes"
	"compress/gzip"
	_ "embed" // the page and the viewer
	"io"
	"net/http"
	"strconv"
	"strings"
)

//go:embed apidocs.html
var apiDocs []byte

// viewer is the script of @scalar/api-reference, compressed. scalar/update.sh replaces it.
//
//go:embed scalar/viewer.js.gz
var viewer []byte

// apiPolicy needs 'unsafe-inline' for styles, since the viewer sets style attributes.
const apiPolicy = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; " +
	"img-src 'self' data:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// APIDocs serves the API reference: a page that shows openapi.yaml with the vendored Scalar viewer.
//
// The page works without internet. Its Content-Security-Policy lets the browser talk to this server
// and to no other host, so neither the viewer nor a mistake in its settings can send anything away.
// It expects the viewer at docs/viewer.js and the description at
// openapi.yaml, both relative to the page.
func APIDocs(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", apiPolicy)
	h.Set("Referrer-Policy", "no-referrer")
	_, _ = w.Write(apiDocs)
}

// APIViewer serves the script of APIDocs, compressed if the client accepts gzip.
func APIViewer(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/javascript; charset=utf-8")
	h.Set("Cache-Control", "max-age=86400")
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(len(viewer)))
		_, _ = w.Write(viewer)
		return
	}
	z, err := gzip.NewReader(bytes.NewReader(viewer))
	if err != nil { // the tests read the embedded file
		http.Error(w, "the embedded viewer is damaged", http.StatusInternalServerError)
		return
	}
	_, _ = io.Copy(w, z)
}
