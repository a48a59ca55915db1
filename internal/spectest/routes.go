package spectest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-chi/chi/v5"
)

// Routes compares the routes of a chi router with the description's operations. It returns the
// differences, or nothing if they agree. A route that is served with and without a slash at the end
// is described without.
func (s *Spec) Routes(router http.Handler) ([]string, error) {
	routes, ok := router.(chi.Routes)
	if !ok {
		return nil, fmt.Errorf("a %T has no routes to walk", router)
	}
	served := map[string]bool{}
	err := chi.Walk(routes, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		// chi lists the root of a mounted router with a slash, but serves it without one too.
		if strings.HasSuffix(route, "}/") {
			route = strings.TrimSuffix(route, "/")
		}
		served[method+" "+route] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	described := map[string]bool{}
	for path, item := range s.doc.Paths.Map() {
		for method := range item.Operations() {
			for _, route := range routesOf(path, item) {
				described[method+" "+route] = true
			}
		}
	}
	var out []string
	for r := range served {
		if short, ok := strings.CutSuffix(r, "/"); ok && served[short] {
			continue
		}
		if !described[r] {
			out = append(out, r+" is served and not described")
		}
	}
	for r := range described {
		if !served[r] {
			out = append(out, r+" is described and not served")
		}
	}
	slices.Sort(out)
	return out, nil
}

// routesOf returns where the server serves a path: below each of the servers that the path names,
// or at the root if it names none.
func routesOf(path string, item *openapi3.PathItem) []string {
	if len(item.Servers) == 0 {
		return []string{path}
	}
	var out []string
	for _, server := range item.Servers {
		out = append(out, strings.TrimSuffix(server.URL, "/")+path)
	}
	return out
}

// Parameters returns the names of the query parameters of every operation, by "METHOD path".
func (s *Spec) Parameters() map[string][]string {
	out := map[string][]string{}
	for path, item := range s.doc.Paths.Map() {
		for method, op := range item.Operations() {
			names := []string{}
			for _, list := range []openapi3.Parameters{item.Parameters, op.Parameters} {
				for _, p := range list {
					if p.Value.In == openapi3.ParameterInQuery {
						names = append(names, p.Value.Name)
					}
				}
			}
			out[method+" "+path] = names
		}
	}
	return out
}
