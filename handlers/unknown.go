package handlers

import (
	"encoding/json"
	"net/http"
	"path"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
)

// noRouteText is what Agora answers for a path that does not exist.
const noRouteText = "no Route matched with those values"

// unknownPath answers 404 for a path that does not exist. Under /v1, which is the base of OpenAI's
// clients and of our own calls, the answer has the form of both.
func unknownPath(w http.ResponseWriter, r *http.Request) {
	style := agoraError
	if ownPath(r) || openAIPath(r.URL.Path) {
		style = bothErrors
	}
	answerError(w, r, style, noRoute(r))
}

// noRoute returns the error of a path that does not exist. It says what to do if the path is one
// of OpenAI's.
func noRoute(r *http.Request) error {
	if advice := adviceFor(r.URL.Path); advice != "" {
		return fault.New(fault.NotFound, "this path does not exist: %s", advice)
	}
	if strings.HasPrefix(r.URL.Path, "/api/") || strings.HasPrefix(r.URL.Path, "/cn/") {
		return fault.New(fault.NotFound, noRouteText)
	}
	return fault.New(fault.NotFound, "this path does not exist; /docs shows every path")
}

// chatAdvice names the calls that are served.
const chatAdvice = "use chat completions or the Responses API: client.chat.completions.create or client.responses.create in OpenAI's own SDKs"

// foreignNames are the first names of OpenAI's paths that are not served here.
var foreignNames = map[string]string{
	"responses":   "the paths are /responses, /responses/{id} and /responses/{id}/input_items",
	"completions": "text completions are not served; " + chatAdvice,
	"assistants":  "the Assistants API is not served; " + chatAdvice,
	"threads":     "the Assistants API is not served; " + chatAdvice,
	"chat":        "the path is /chat/completions",
	"realtime":    "the paths are /realtime, a WebSocket, and /realtime/client_secrets",
	"models":      "the path is /models or /models/{id}; a slash in the ID is written %2F",
	"audio":       passAdvice, "images": passAdvice, "videos": passAdvice, "moderations": passAdvice, "files": passAdvice,
	"uploads": passAdvice, "batches": passAdvice, "fine_tuning": passAdvice, "vector_stores": passAdvice,
	"rerank": passAdvice, "edits": passAdvice, "engines": passAdvice, "evals": passAdvice, "containers": passAdvice,
}

// passAdvice is for paths that the server may send on. A % stands for the path.
const passAdvice = "it is not served here; HEARDLOG_PASSTHROUGH=% sends it on to the upstream"

// openAIBase cuts the base off a path that OpenAI's clients use: /v1, or that of an agent. A base
// URL may have a slash too many.
func openAIBase(path string) (rest string, agent, ok bool) {
	rest, ok = strings.CutPrefix("/"+strings.TrimLeft(path, "/"), passedBase+"/")
	if below, is := strings.CutPrefix(rest, "agents/"); ok && is {
		_, rest, agent = strings.Cut(below, "/")
	}
	return rest, agent, ok
}

// openAIPath reports whether only a client of OpenAI's calls a path.
func openAIPath(path string) bool {
	rest, _, ok := openAIBase(path)
	if !ok {
		rest = strings.TrimPrefix(path, "/")
	}
	first, _, _ := strings.Cut(strings.TrimLeft(rest, "/"), "/")
	_, known := foreignNames[first]
	return known
}

// adviceFor returns what to do instead of calling a path, or "".
func adviceFor(path string) string {
	rest, agent, ok := openAIBase(path)
	if !ok {
		if openAIPath(path) {
			return "the base URL of a client must end in /v1, or in /v1/agents/{id}"
		}
		return ""
	}
	first, more, _ := strings.Cut(rest, "/")
	advice := foreignNames[first]
	if rest == "embeddings" { // what is below it is our own
		advice = passAdvice
	}
	switch {
	case strings.Contains(path, "//"):
		return "it has two slashes in a row; remove the one at the end of the client's base URL"
	case strings.HasSuffix(path, "/"):
		return "remove the slash at the end of the path"
	case first == "v1":
		return "the base URL of the client names /v1 twice"
	case advice == passAdvice && agent:
		return "it is not served for an agent; use the base URL /v1 for it"
	case advice == passAdvice:
		entry := passedBase + "/" + first
		if more != "" {
			entry += "/*"
		}
		return strings.Replace(advice, "%", entry, 1)
	}
	return advice
}

// straighten serves the paths of chat completions, responses and models with a slash too many,
// after the base URL or at the end: base URLs are often written with one.
func straighten(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.Path; (strings.HasSuffix(p, "/") || strings.Contains(p, "//")) && r.URL.RawPath == "" && !strings.Contains(p, "/.") {
			rest, _, ok := openAIBase(p)
			first, _, _ := strings.Cut(strings.TrimLeft(rest, "/"), "/")
			if ok && (first == "chat" || first == "responses" || first == "models") {
				u := *r.URL
				u.Path = path.Clean(p)
				r = r.Clone(r.Context())
				r.URL = &u
			}
		}
		next.ServeHTTP(w, r)
	})
}

// bothErrors writes errors in the form of /v1 with OpenAI's beside it.
func bothErrors(w http.ResponseWriter, r *http.Request, e *fault.Error) {
	writeBothErrors(w, Status(e.Code), reasonOf(r, e.Code), e)
}

func writeBothErrors(w http.ResponseWriter, status int, reason string, e *fault.Error) {
	b, err := json.Marshal(struct {
		agoraErrorBody
		openAIErrorBody
	}{agoraErrorBody{Detail: e.Msg, Reason: reason}, newOpenAIError(e)})
	if err != nil {
		b = []byte(`{"detail":"internal error","reason":"InternalError"}`)
	}
	errorHeaders(w.Header(), e.Code)
	writeJSON(w, status, append(b, '\n'))
}
