package handlers

import (
	"net/http"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
)

// wantsSocket reports whether a request asks for a WebSocket.
func wantsSocket(r *http.Request) bool {
	return r.Method == http.MethodGet && headerHas(r.Header, "Connection", "upgrade") && headerHas(r.Header, "Upgrade", "websocket")
}

// headerHas reports whether a header that is a list has a token.
func headerHas(h http.Header, name, token string) bool {
	for _, line := range h.Values(name) {
		for v := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(v), token) {
				return true
			}
		}
	}
	return false
}

// errForeignPage refuses a socket of a web page for which pageMayConnect is false.
var errForeignPage = fault.New(fault.Forbidden, "web pages of other sites may not connect; HEARDLOG_CORS_ORIGINS lists those that may")

// pageMayConnect reports whether a web page may open a socket, by its origin. Programs send none.
// Browsers add a user's cookies to a socket whatever page opens it, and know no CORS for sockets.
func pageMayConnect(r *http.Request, origins []string) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(origins, "*") || slices.Contains(origins, origin) {
		return true
	}
	_, host, _ := strings.Cut(origin, "://")
	return strings.EqualFold(host, r.Host)
}
