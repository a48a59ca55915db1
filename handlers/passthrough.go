package handlers

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/input"
)

// passedBase is the base of the paths that may be sent on.
const passedBase = "/v1"

// passThrough sends a request on to the upstream if the settings allow its path, with the key of
// the server or of the agent that X-Agent-Id names. No memory changes.
func (a *proxyAPI) passThrough(w http.ResponseWriter, r *http.Request) error {
	path, err := a.upstreamPath(r)
	if err != nil {
		return err
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete:
	default:
		return fault.New(fault.Unsupported, "method %s is not forwarded; GET, HEAD, POST and DELETE are", text.Clip(r.Method, 20))
	}
	var llm memory.LLMSettings
	if id := r.Header.Get(agentIDHeader); id != "" {
		if llm, err = a.llmOf(r, id); err != nil {
			return err
		}
	}
	in := turn.Passed{Method: r.Method, Path: path, Query: r.URL.RawQuery, ContentType: r.Header.Get("Content-Type"), Accept: r.Header.Get("Accept")}
	if r.Method == http.MethodPost || r.ContentLength != 0 {
		if in.Body, err = a.readRaw(w, r); err != nil {
			return err
		}
	}
	return abort(r, a.turns.PassThrough(w, r, llm, in))
}

// llmOf returns the LLM settings of an agent of the caller's project.
func (a *proxyAPI) llmOf(r *http.Request, id string) (memory.LLMSettings, error) {
	if !input.AgentID(id) {
		return memory.LLMSettings{}, notAnAgent(id)
	}
	agent, err := a.memory.Agents.Agent(r.Context(), projectOf(r), id)
	if fault.Is(err, fault.NotFound) && a.autoJoin != nil && chi.URLParam(r, "id") == "" {
		return memory.LLMSettings{}, nil // its first chat completion will start it, with the server's upstream
	}
	if err != nil {
		return memory.LLMSettings{}, err
	}
	infoOf(r).agent = id
	return agent.Settings.LLM, nil
}

// upstreamPath returns the path below the upstream's base. It is compared and sent as it was
// written, so that two readers cannot read it differently: what is escaped, doubled or leads
// upwards is refused.
func (a *proxyAPI) upstreamPath(r *http.Request) (string, error) {
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), passedBase)
	if !ok || !plainPath(path) || a.isOwn(path) || !slices.ContainsFunc(a.allowed, func(allowed string) bool { return allows(allowed, passedBase+path) }) {
		return "", noRoute(r)
	}
	return path, nil
}

// plainPath reports whether a path consists of plain names, each after a single slash.
func plainPath(path string) bool {
	if path == "" || path[0] != '/' || len(path) > 1024 {
		return false
	}
	for name := range strings.SplitSeq(path[1:], "/") {
		if name == "" || name == "." || name == ".." {
			return false
		}
		for i := 0; i < len(name); i++ {
			c := name[i]
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("-._~:@", c) < 0 {
				return false
			}
		}
	}
	return true
}

// allows reports whether an entry of the setting matches a path: the path itself, a path that ends
// in /* and all below it, or * for everything.
func allows(entry, path string) bool {
	if beneath, ok := strings.CutSuffix(entry, "/*"); ok {
		return strings.HasPrefix(path, beneath+"/")
	}
	return entry == "*" || entry == path
}

// isOwn reports whether a path starts like one of our own, which are never sent on, even if they do
// not exist. It ignores case: an upstream that does, too, would answer a chat without a memory.
func (a *proxyAPI) isOwn(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return a.own[strings.ToLower(first)]
}

// ownNames returns the first names of our own paths under passedBase.
func ownNames(router chi.Routes) map[string]bool {
	own := map[string]bool{}
	_ = chi.Walk(router, func(_, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if rest, ok := strings.CutPrefix(route, passedBase+"/"); ok {
			first, _, _ := strings.Cut(rest, "/")
			own[first] = true
		}
		return nil
	})
	delete(own, "embeddings") // it only passes through
	return own
}
