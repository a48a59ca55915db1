// Package page serves what people see in a browser: the pages that show calls, the guides (Guide)
// and the API reference (APIDocs). All work without internet.
//
// The pages that show calls are static files that talk to the public API, without a build step.
// lit-html.js is that of the npm package lit-html 3.3.3, without the line that names its source
// map.
package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/tdewolff/minify/v2"
	"github.com/tdewolff/minify/v2/css"
	"github.com/tdewolff/minify/v2/js"
)

// index is the document of all pages.
const index = "index.html"

// indexSignIn is index with offer, which the form for keys shows.
const (
	indexSignIn = "index-sign-in.html"
	offer       = `<template id="sso"><a class="button main" href="/sign-in" referrerpolicy="same-origin">Single sign-on</a></template>`
)

//go:embed static
var files embed.FS

// policy is the Content-Security-Policy of the pages: their own files, nothing inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// Paths are the addresses that show a page. Each is answered with the same document, whose script
// reads the address.
func Paths() []string {
	return []string{"/", "/calls/{id}", "/overview", "/callers", "/callers/{user}", "/webhooks", "/demo"}
}

// Document returns a handler that serves the document of all pages. With signIn, it offers to sign
// in with the identity provider.
func Document(signIn bool) http.HandlerFunc {
	name := index
	if signIn {
		name = indexSignIn
	}
	return func(w http.ResponseWriter, r *http.Request) { File(w, r, name) }
}

// File serves a file that the document needs. It reports false if there is none of that name.
func File(w http.ResponseWriter, r *http.Request, name string) bool {
	f, ok := packed()[name]
	if !ok {
		return false
	}
	Guard(w, policy)
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Vary", "Accept-Encoding")
	body, tag := f.body, f.tag
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		body, tag = f.gzip, f.tag+"-gzip"
		h.Set("Content-Encoding", "gzip")
	}
	if name != index && name != indexSignIn { // the document is short, and is asked for at every address
		h.Set("ETag", `"`+tag+`"`)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	return true
}

// A packedFile is a file as it is sent.
type packedFile struct {
	kind, tag  string
	body, gzip []byte
}

// packed holds the files by name, each minified, and once more compressed.
var packed = sync.OnceValue(func() map[string]packedFile {
	out := map[string]packedFile{}
	small := minify.New()
	small.AddFunc(".js", js.Minify)
	small.AddFunc(".css", css.Minify)
	list, err := files.ReadDir("static")
	if err != nil {
		panic(err) // the folder is embedded
	}
	for _, e := range list {
		body, err := files.ReadFile("static/" + e.Name())
		if err != nil {
			panic(err)
		}
		ext := path.Ext(e.Name())
		if ext == ".js" || ext == ".css" {
			if body, err = small.Bytes(ext, body); err != nil {
				panic(fmt.Errorf("%s: %w", e.Name(), err)) // tests would have found it
			}
		}
		out[e.Name()] = pack(ext, body)
	}
	out[indexSignIn] = pack(".html", bytes.Replace(out[index].body, []byte("</body>"), []byte(offer+"</body>"), 1))
	return out
})

func pack(ext string, body []byte) packedFile {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	_, _ = z.Write(body)                                  // a buffer takes everything
	_ = z.Close()
	sum := sha256.Sum256(body)
	return packedFile{mime.TypeByExtension(ext), hex.EncodeToString(sum[:8]), body, b.Bytes()}
}

// Guard sets the headers of a page, or of a file of one, with its Content-Security-Policy.
func Guard(w http.ResponseWriter, policy string) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
}
