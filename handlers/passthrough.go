package handlers

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/input"
)

// passedBase is what the paths stand under that may go through to an upstream.
const passedBase = "/v1"

// passThrough answers a path of the upstream's that is none of ours, as far as the settings allow it: the request goes up as it is, with the key of the
// server, or of the agent that X-Agent-Id names, and leaves no trace in any memory.
func (a *proxyAPI) passThrough(w http.ResponseWriter, r *http.Request) error {
	path, err := a.passed(r)
	if err != nil {
		return err
	}
	switch r.Method {
	case http.MethodGet, http.MethodPost, http.MethodDelete:
	default:
		return fault.New(fault.Unsupported, "method %s does not go through; GET, POST and DELETE do", clip(r.Method, 20))
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
	err = a.turns.PassThrough(w, r, llm, in)
	if errors.Is(err, turn.ErrAborted) {
		infoOf(r).err = err
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}
	return err
}

// llmOf gives the LLM settings of an agent of the caller's project.
func (a *proxyAPI) llmOf(r *http.Request, id string) (memory.LLMSettings, error) {
	if !input.AgentID(id) {
		return memory.LLMSettings{}, fault.New(fault.NotFound, "agent not found")
	}
	agent, err := a.memory.Agent(r.Context(), projectOf(r), id)
	if err != nil {
		return memory.LLMSettings{}, err
	}
	infoOf(r).agent = id
	return agent.Settings.LLM, nil
}

// passed gives the path beneath the upstream's base, if it may go through. It is compared and sent as it was written, so that no two readings of it can
// differ: what is escaped, doubled or leads upwards is refused.
func (a *proxyAPI) passed(r *http.Request) (string, error) {
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), passedBase)
	if !ok || !plainPath(path) || a.ours(path) || !slices.ContainsFunc(a.allowed, func(allowed string) bool { return allows(allowed, passedBase+path) }) {
		return "", fault.New(fault.NotFound, "no Route matched with those values")
	}
	return path, nil
}

// plainPath tells whether a path is made of names with single slashes before them, none of which means another place.
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

// allows tells whether an entry of the setting lets a path through: the path itself, all beneath a path that ends in /*, or everything.
func allows(entry, path string) bool {
	if beneath, ok := strings.CutSuffix(entry, "/*"); ok {
		return strings.HasPrefix(path, beneath+"/")
	}
	return entry == "*" || entry == path
}

// ours tells whether a path begins like one of our own, which are never passed on, not even where they do not exist. Case does not matter: an upstream for which it
// does not either would answer chat without a memory.
func (a *proxyAPI) ours(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return a.own[strings.ToLower(first)]
}

// ownNames gives the first names of our own paths under passedBase.
func ownNames(router chi.Routes) map[string]bool {
	own := map[string]bool{}
	_ = chi.Walk(router, func(_, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if rest, ok := strings.CutPrefix(route, passedBase+"/"); ok {
			first, _, _ := strings.Cut(rest, "/")
			own[first] = true
		}
		return nil
	})
	delete(own, "embeddings") // which is ours in name only
	return own
}
