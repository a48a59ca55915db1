package page

import (
	"bytes"
	"compress/gzip"
	_ "embed" // the page and the viewer
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/heardlog/heardlog"
)

//go:embed apidocs.html
var apiDocs string

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
// It expects the viewer at docs/viewer.js and the description at docs/openapi.yaml
// (APIDescription), both relative to the page. ui tells whether the server has the pages that show
// calls, to which the header leads.
func APIDocs(ui bool) http.HandlerFunc {
	shown := strings.NewReplacer("/* frame */", frameStyle, "<!-- header -->", header("./", "Docs", ui)).Replace(apiDocs)
	return func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", apiPolicy)
		h.Set("Referrer-Policy", "no-referrer")
		_, _ = io.WriteString(w, shown)
	}
}

// First is the tag of the calls that the API reference shows before all others.
const First = "Ten calls that you need"

// firstCalls are these calls, by their operationId.
var firstCalls = []string{
	"createAgent", "createAgentChatCompletion", "appendMessages", "interrupt", "getHistory", "buildContext", "leaveAgent", "reportEvidence", "recall", "createEndpoint",
}

const firstTag = `  - name: ` + First + `
    description: |
      A whole call needs no more than these.

      1. **Start** a call: ` + "`POST /v1/agents`" + `. An agent is one call.
      2. **Ask** the LLM: ` + "`POST /v1/agents/{id}/chat/completions`" + `, with only what is new.
      3. **Append** what was said outside of the LLM: ` + "`POST /v1/agents/{id}/messages`" + `.
      4. **Interrupt** an answer, and report what was heard: ` + "`POST /v1/agents/{id}/interrupt`" + `.
      5. Read the **history** as it was heard: ` + "`GET /v1/agents/{id}/history`" + `.
      6. See the **context**, what the model is told next: ` + "`POST /v1/agents/{id}/context`" + `.
      7. **Leave**, which ends the call: ` + "`POST /v1/agents/{id}/leave`" + `.
      8. Forward a platform's events as **evidence**: ` + "`POST /v1/agents/{id}/evidence/{platform}`" + `.
      9. **Recall** what a caller said in any call: ` + "`POST /v1/recall`" + `.
      10. Create a **webhook** for the finished calls: ` + "`POST /v1/webhooks/endpoints`" + `.
`

// description returns openapi.yaml as the reference shows it: firstCalls come first, under a tag of
// their own too, and the events are left out, which docs/guides/webhooks.md explains. The viewer
// leaves out what is x-internal.
func description(spec string) string {
	for _, id := range firstCalls {
		before, after, ok := strings.Cut(spec, "\n      operationId: "+id+"\n")
		if at := strings.LastIndex(before, "      tags: ["); ok && at >= 0 {
			spec = before[:at] + "      tags: [" + First + ", " + before[at+len("      tags: ["):] + "\n      operationId: " + id + "\n" + after
		}
	}
	for _, id := range slices.Backward(firstCalls) { // the viewer has the order of the paths
		at := strings.Index(spec, "\n      operationId: "+id+"\n")
		begin, paths := strings.LastIndex(spec[:max(at, 0)], "\n  /"), strings.Index(spec, "\npaths:\n")
		if length := strings.Index(spec[max(at, 0):], "\n  /"); begin > 0 && paths > 0 && length > 0 {
			path, before := spec[begin:at+length], paths+len("\npaths:")
			spec = spec[:before] + path + spec[before:begin] + spec[at+length:]
		}
	}
	spec = strings.Replace(spec, "\ntags:\n", "\ntags:\n"+firstTag, 1)
	before, after, ok := strings.Cut(spec, "\nwebhooks:\n")
	_, after, next := strings.Cut(after, "\ncomponents:\n")
	if ok && next {
		spec = before + "\ncomponents:\n" + after
	}
	return spec
}

var shownDescription = sync.OnceValue(func() string { return description(string(heardlog.Spec)) })

// APIDescription serves the description that APIDocs shows.
func APIDescription(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = io.WriteString(w, shownDescription())
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
