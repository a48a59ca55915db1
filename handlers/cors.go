package handlers

import (
	"net/http"

	"github.com/rs/cors"

	"github.com/heardlog/heardlog/internal/turn"
)

// corsMaxAge is how long a browser may keep the answer to a preflight request, in seconds.
const corsMaxAge = 600

// exposed returns the headers of answers that web pages may read: those of openapi.yaml, and those
// that an upstream sends. The star stands for all others; some browsers do not know it.
func exposed() []string {
	return []string{
		"X-Request-Id", "Location", "Retry-After", "Retry-After-Ms", "Server-Timing", "WWW-Authenticate", "Allow", "Content-Disposition", "Deprecation", "Link", "ETag",
		turn.AgentHeader, turn.TurnHeader, turn.SeqHeader, turn.UpstreamHeader, turn.JoinedHeader, turn.RecallHeader, turn.MemoryHeader, strayHeader, erasureHeader,
		"X-Ratelimit-Limit-Requests", "X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Remaining-Tokens",
		"X-Ratelimit-Reset-Requests", "X-Ratelimit-Reset-Tokens", "*",
	}
}

// crossOrigin lets web pages of the origins call the API and read its answers. It answers preflight
// requests, which bring no credentials. Pages send theirs in a header; cookies and passwords of the
// browser's own are never allowed, so that any origin ("*") is as safe as a list.
func crossOrigin(origins []string) func(http.Handler) http.Handler {
	if len(origins) == 0 {
		return func(next http.Handler) http.Handler { return next }
	}
	return cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete},
		AllowedHeaders: []string{"*"},
		ExposedHeaders: exposed(),
		MaxAge:         corsMaxAge,
	}).Handler
}
