package handlers

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
)

// maxKey is the maximum length of an Idempotency-Key. The IDs of several messages are made from
// one.
const maxKey = 100

// idempotencyKey returns the request's Idempotency-Key, "" for none: printable ASCII without
// spaces, at most limit characters.
func idempotencyKey(r *http.Request, limit int) (string, error) {
	key := r.Header.Get("Idempotency-Key")
	if len(key) > limit {
		return "", fault.At(fault.Invalid, "Idempotency-Key", "is %d characters long; at most %d are allowed", len(key), limit)
	}
	if i := strings.IndexFunc(key, func(c rune) bool { return c <= 0x20 || c >= 0x7f }); i >= 0 {
		return "", fault.At(fault.Invalid, "Idempotency-Key", "must be printable ASCII without spaces; the character at byte %d is not", i)
	}
	return key, nil
}

// intParam reads a whole number from the query.
func intParam(v url.Values, name string, def, low, high int) (int, error) {
	s := v.Get(name)
	if s == "" {
		return def, nil
	}
	n, err := strconv.Atoi(s)
	if err == nil && n == 0 {
		return def, nil // clients send zero for absent
	}
	if err != nil || n < low || n > high {
		return 0, fault.At(fault.Invalid, name, "must be a whole number from %d to %d, not %q", low, high, text.Clip(s, 40))
	}
	return n, nil
}

// pathName returns an unescaped part of the path. chi leaves parts escaped in a path with escapes
// that matter, such as %2F.
func pathName(r *http.Request, param string) string {
	name := chi.URLParam(r, param)
	if r.URL.RawPath != "" {
		name, _ = url.PathUnescape(name) // net/http refuses paths that cannot be unescaped
	}
	return name
}

// queryParams lists the parameters of the calls under /v1 that have any. A test compares it with
// openapi.yaml.
var queryParams = map[string][]string{
	"GET /v1/agents":                       {"q", "since", "until", "status", "user_id", "label", "score", "check", "name", "channel", "platform", "interrupted", "failed", "ghosts", "unheard_min", "first_word_min", "tool_without_result", "sort", "count", "include", "order", "limit", "cursor"},
	"GET /v1/reports":                      {"since", "until", "interval", "group_by", "compare", "platform", "model", "upstream", "name", "language", "label", "format"},
	"GET /v1/replays/{replay}":             {"limit", "cursor"},
	"GET /v1/holds":                        {"limit", "cursor"},
	"GET /v1/erasures":                     {"limit", "cursor"},
	"GET /v1/overview":                     {"since", "until"},
	"POST /v1/ingest/{platform}":           {"project"},
	"GET /v1/agents/{id}":                  {"include"},
	"GET /v1/agents/{id}/history":          {"limit", "cursor", "confidence"},
	"GET /v1/agents/{id}/turns":            {"page_index", "page_size"},
	"GET /v1/agents/{id}/messages":         {"after_seq", "limit", "cursor"},
	"GET /v1/agents/{id}/working-memory":   {"limit", "cursor"},
	"GET /v1/kv":                           {"limit", "cursor"},
	"GET /v1/kv/{namespace}":               {"pattern", "limit", "cursor"},
	"GET /v1/agents/{id}/summarizable":     {"keep_recent"},
	"GET /v1/agents/{id}/events":           {"after", "types"},
	"GET /v1/webhooks/messages":            {"type", "agent", "since", "until", "cursor", "limit"},
	"GET /v1/webhooks/deliveries":          {"endpoint", "state", "type", "agent", "message", "since", "until", "cursor", "limit"},
	"GET /v1/audit":                        {"limit", "cursor"},
	"GET /v1/users":                        {"limit", "cursor"},
	"GET /v1/users/{user}/facts":           {"topic", "kind", "state", "as_of", "limit", "cursor"},
	"GET /v1/users/{user}/facts/context":   {"top_k", "query", "budget_tokens"},
	"DELETE /v1/projects/{project}":        {"confirm"},
	"GET /v1/conversations":                {"limit", "cursor"},
	"GET /v1/saved-conversations":          {"limit", "cursor"},
	"GET /v1/jobs":                         {"state"},
	"GET /v1/memory-models":                {"limit", "cursor"},
	"GET /v1/vectors":                      {"limit", "cursor", "user_id"},
	"GET /v1/vectors/{collection}":         {"limit", "cursor", "user_id"},
	"DELETE /v1/vectors/{collection}":      {"user_id"},
	"GET /v1/vectors/{collection}/{id}":    {"user_id"},
	"DELETE /v1/vectors/{collection}/{id}": {"user_id"},
	"GET /v1/memories/{id}":                {"role_names"},

	"GET /v1/knowledge":                        {"limit", "cursor"},
	"GET /v1/knowledge/{base}/entries":         {"limit", "cursor"},
	"DELETE /v1/knowledge/{base}/entries/{id}": {"if_version"},
	"GET /v1/patterns":                         {"type"},
}

// agoraListParams are the parameters of the list of agents on Agora's paths. The other calls there
// have those of /v1.
var agoraListParams = []string{"channel", "name", "from_time", "to_time", "state", "limit", "cursor"}

// noteParams lists the parameters that a call on Agora's paths does not have in strayHeader.
func noteParams(w http.ResponseWriter, r *http.Request) {
	_, path, ok := strings.Cut(chi.RouteContext(r.Context()).RoutePattern(), "/projects/{appid}")
	if !ok {
		return
	}
	names := queryParams[routedMethod(r)+" /v1"+path]
	if path == "/agents" {
		names = agoraListParams
	}
	var ignored []string
	for _, name := range slices.Sorted(maps.Keys(r.URL.Query())) {
		if !slices.Contains(names, name) {
			ignored = append(ignored, text.Clip(name, 80))
		}
	}
	if len(ignored) > 0 {
		w.Header().Set(strayHeader, headerText(strings.Join(ignored, ", ")))
	}
}

// checkParams refuses repeated parameters and those that a call under /v1 does not have. A typo
// must not become a filter that lets everything through. Agora's paths only report them.
func checkParams(next handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		if r.URL.RawQuery != "" && !ownPath(r) {
			noteParams(w, r)
		}
		if r.URL.RawQuery != "" && ownPath(r) {
			names := queryParams[routedMethod(r)+" "+chi.RouteContext(r.Context()).RoutePattern()]
			v := r.URL.Query()
			for _, name := range slices.Sorted(maps.Keys(v)) {
				_, label := namedIn(name, labelParam)
				_, score := namedIn(name, scoreParam)
				if !slices.Contains(names, name) && !(label && slices.Contains(names, "label")) && !(score && slices.Contains(names, "score")) {
					if len(names) == 0 {
						return fault.At(fault.Invalid, text.Clip(name, 80), "is not a parameter of this call, which has none")
					}
					meant := ""
					if n := text.Nearest(name, names); n != "" {
						meant = "; did you mean " + n + "?"
					}
					return fault.At(fault.Invalid, text.Clip(name, 80), "is not a parameter of this call%s; allowed are: %s", meant, strings.Join(names, ", "))
				}
				if n := len(v[name]); n > 1 {
					return fault.At(fault.Invalid, text.Clip(name, 80), "is given %d times; it must be given once, with commas between several values", n)
				}
			}
		}
		return next(w, r)
	}
}

// listParam reads a parameter that holds values separated by commas.
func listParam(v url.Values, name string) []string {
	s := v.Get(name)
	if s == "" {
		return nil
	}
	out := strings.Split(s, ",")
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}
