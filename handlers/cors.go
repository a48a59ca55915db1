package handlers

import (
	"net/http"

	"github.com/rs/cors"

	"github.com/heardlog/heardlog/internal/turn"
)

// corsMaxAge is how long a browser may keep the answer to a preflight request, in seconds.
const corsMaxAge = 600

// crossOrigin lets web pages of the origins call the API and read its answers. It answers preflight
// requests, which bring no credentials. Pages send theirs in a header; cookies and passwords of the
// browser's own are never allowed, so that any origin ("*") is as safe as a list.
func crossOrigin(origins []string) func(http.Handler) http.Handler {
	if len(origins) == 0 {
		return func(next http.Handler) http.Handler { return next }
	}
	return cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete},
		AllowedHeaders: []string{"*"},
		ExposedHeaders: []string{"X-Request-Id", "Location", "Retry-After", "Server-Timing", turn.RecallHeader, agentIDHeader, "WWW-Authenticate"},
		MaxAge:         corsMaxAge,
	}).Handler
}
