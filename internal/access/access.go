// Package access keeps who may call. Keys are the stored credentials of projects, Audit is the
// record of administrative acts, and Guesses slows down callers with wrong secrets.
//
// Keys and audit are kept in spaces of kv.Store whose names are not projects, so that no call about
// conversations reaches them, while backups and exports carry them along.
package access

import (
	"slices"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// Scope is a group of routes that a credential opens.
type Scope string

// The scopes.
const (
	Read     Scope = "read"     // read agents, messages, memories and conversations
	Write    Scope = "write"    // change them
	Proxy    Scope = "proxy"    // the OpenAI-compatible paths
	Webhooks Scope = "webhooks" // endpoints, and the events and deliveries they get
	// Admin opens keys, the audit log and erasures. It includes the other scopes, since its holder
	// could create a key with any of them.
	Admin Scope = "admin"
)

// Scopes lists every scope.
func Scopes() []Scope { return []Scope{Read, Write, Proxy, Webhooks, Admin} }

// Client is who makes a call.
type Client struct {
	Project string
	ID      string  // of its credential; "" on an open server
	Name    string  // of its key, if Stored
	Scopes  []Scope // nil = all
	Stored  bool    // the credential is a key of Keys
	Person  string  // who signed in with the identity provider, for people to read; else ""
	Session string  // ID of the browser's session; "" = none
	SignIn  *SignIn // that a session stands for; nil = none
	// Until is when a credential ends that is not stored; zero = never.
	Until time.Time
}

// May returns fault.Forbidden, naming the scope that is needed, if the caller does not have it.
func (c Client) May(need Scope) error {
	if c.Scopes == nil || slices.Contains(c.Scopes, need) || slices.Contains(c.Scopes, Admin) {
		return nil
	}
	return fault.New(fault.Forbidden, "this call needs a key with the scope %s; the key %s has %s", need, c.ID, joined(c.Scopes))
}

func joined(scopes []Scope) string {
	out := make([]string, len(scopes))
	for i, s := range scopes {
		out[i] = string(s)
	}
	return strings.Join(out, ", ")
}
