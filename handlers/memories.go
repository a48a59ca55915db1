package handlers

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/input"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/memory/window"
)

// itemAPI serves memories: single messages of all of a project's ledgers, found by their scope.
type itemAPI struct {
	bodies
	items memories.Service
	now   func() time.Time
}

// Limits of a memory's smaller parts.
const (
	maxScopeID      = 256  // bytes
	maxQuery        = 1000 // characters
	maxMemoryLimit  = 1000
	maxMemoryRounds = 10_000
)

// memoryScope names whose memories are meant. An empty ID or null means any.
type memoryScope struct {
	UserID    string `json:"user_id"`
	SessionID string `json:"session_id"`
	TaskID    string `json:"task_id"`
	AgentID   string `json:"agent_id"`
}

// ids checks the IDs. at is the path in front of their names, for errors.
func (m memoryScope) ids(at string) (window.Scope, error) {
	for _, id := range []struct {
		name, value string
		to          *string
	}{
		{"user_id", m.UserID, &m.UserID}, {"session_id", m.SessionID, &m.SessionID}, {"task_id", m.TaskID, &m.TaskID}, {"agent_id", m.AgentID, &m.AgentID},
	} {
		if id.value == "" {
			continue
		}
		clean, err := text.CleanKey(at+id.name, id.value, maxScopeID)
		if err != nil {
			return window.Scope{}, err
		}
		*id.to = clean
	}
	m.UserID = inE164(m.UserID)
	return window.Scope(m), nil
}

// memoryMetadata is a memory's metadata.
type memoryMetadata struct {
	memoryScope
	Extra json.RawMessage `json:"extra"`
}

// addMemoryRequest is a memory to store.
type addMemoryRequest struct {
	ID         string          `json:"id"`
	Content    json.RawMessage `json:"content"`
	Type       string          `json:"memory_type"`
	Status     string          `json:"status"`
	Category   string          `json:"category" validate:"omitempty,oneof=user_profile semantic episodic variable summary conversation"`
	Importance *float64        `json:"importance" validate:"omitempty,gte=0,lte=1"`
	Metadata   memoryMetadata  `json:"metadata"`
	CreatedAt  string          `json:"created_at"`
	ToolCalls  json.RawMessage `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
	ToolName   string          `json:"tool_name"`
	IsError    bool            `json:"is_error"`
	RoleNames  string          `json:"role_names"`
}

// memoryRoles maps the types of memories to roles, in the vocabularies of both APIs.
var memoryRoles = map[string]memory.Role{
	"system": memory.System, "human": memory.User, "user": memory.User, "ai": memory.Assistant, "assistant": memory.Assistant, "tool": memory.Tool, "developer": memory.Developer,
}

const memoryTypes = "system, human, ai, tool (or user, assistant, developer)"

// roleOf returns the role of a type.
func roleOf(field, name string) (memory.Role, error) {
	role, ok := memoryRoles[name]
	if !ok {
		return "", fault.At(fault.Invalid, field, "must be one of %s, not %q", memoryTypes, text.Clip(name, 40))
	}
	return role, nil
}

// roleNames is the vocabulary for roles in an answer: OpenAI's if true.
type roleNames bool

// openAINames reads the option role_names.
func openAINames(name string) (roleNames, error) {
	switch name {
	case "", "orbiter":
		return false, nil
	case "openai":
		return true, nil
	}
	return false, fault.At(fault.Invalid, "role_names", "must be orbiter or openai, not %q", text.Clip(name, 40))
}

// of returns the name of a role.
func (openAI roleNames) of(r memory.Role) string {
	switch {
	case bool(openAI):
		return string(r)
	case r == memory.User:
		return "human"
	case r == memory.Assistant:
		return "ai"
	case r == memory.Developer:
		return "system"
	}
	return string(r)
}

func (a itemAPI) add(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[addMemoryRequest](a.bodies, w, r, true)
	if err != nil {
		return err
	}
	names, err := openAINames(in.RoleNames)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r, maxKey)
	if err != nil {
		return err
	}
	m, err := in.message(a.now())
	if err != nil {
		return err
	}
	if key != "" {
		m.ID = key + ":0"
	}
	it, err := a.items.Add(r.Context(), projectOf(r), m)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/memories/"+it.Row.ID)
	return encode(w, http.StatusCreated, newMemoryJSON(&it, names))
}

// message checks a memory and returns it as a message.
func (in addMemoryRequest) message(now time.Time) (memory.Message, error) {
	var m memory.Message
	if in.Type == "" {
		return m, fault.At(fault.Missing, "memory_type", "is required: %s", memoryTypes)
	}
	role, err := roleOf("memory_type", in.Type)
	if err != nil {
		return m, err
	}
	if in.ID != "" && !memoryID(in.ID) {
		return m, fault.At(fault.Invalid, "id", "must be 32 hex digits in lower case, not %q", text.Clip(in.ID, 40))
	}
	scope, err := in.Metadata.ids("metadata.")
	if err != nil {
		return m, err
	}
	status, err := window.ParseStatus("status", in.Status)
	if err != nil {
		return m, err
	}
	extra, err := extraOf(in.Metadata.Extra)
	if err != nil {
		return m, err
	}
	at := now.UnixMilli()
	if in.CreatedAt != "" {
		t, err := time.Parse(time.RFC3339, in.CreatedAt)
		if at = t.UnixMilli(); err != nil || at <= 0 || at > 1e14 {
			return m, fault.At(fault.Invalid, "created_at", "must be a time such as 2026-05-28T20:31:40.123Z, not %q", text.Clip(in.CreatedAt, 40))
		}
	}
	if role == memory.System || role == memory.Developer {
		m, err = in.instruction(role)
	} else { // the same rules as for a message of a ledger
		as := messageRequest{Role: string(role), Content: in.Content, ToolCalls: in.ToolCalls, ToolCallID: in.ToolCallID, Name: in.ToolName}
		m, err = as.message("", now)
	}
	if err != nil {
		return m, err
	}
	m.Timestamp = at
	switch {
	case in.IsError && role != memory.Tool:
		return m, fault.At(fault.Invalid, "is_error", "is allowed in memories of type tool only")
	case in.ToolName != "" && role != memory.Tool:
		return m, fault.At(fault.Invalid, "tool_name", "is allowed in memories of type tool only")
	}
	owner := scope.AgentID
	scope.AgentID = "" // the item has it
	m.Details = &memory.Details{Filed: memory.Filed{
		Scope:    scope,
		Item:     &memory.Item{ID: in.ID, AgentID: owner, Extra: extra, IsError: in.IsError},
		Category: in.Category, Importance: in.Importance,
	}}
	if status != window.Accepted {
		m.Status = status
	}
	return m, nil
}

// instruction returns a memory of type system as a message.
func (in addMemoryRequest) instruction(role memory.Role) (m memory.Message, err error) {
	switch {
	case len(in.ToolCalls) > 0 && string(in.ToolCalls) != "null":
		return m, fault.At(fault.Invalid, "tool_calls", "is allowed in memories of type ai only")
	case in.ToolCallID != "":
		return m, fault.At(fault.Invalid, "tool_call_id", "is allowed in memories of type tool only")
	case len(in.Content) == 0:
		return m, fault.At(fault.Missing, "content", "is required")
	}
	m.Role = role
	m.Content, m.Parts, err = input.Content("content", in.Content, memory.MaxText)
	return m, err
}

// memoryID reports whether a text can be the ID of a memory.
func memoryID(id string) bool {
	return len(id) == 32 && strings.Trim(id, "0123456789abcdef") == ""
}

// extraOf checks the data that a client keeps with a memory.
func extraOf(raw json.RawMessage) (json.RawMessage, error) {
	const field = "metadata.extra"
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil
	case raw[0] != '{':
		return nil, fault.At(fault.Invalid, field, "must be an object")
	case len(raw) > input.MaxMetadataBytes:
		return nil, fault.At(fault.Invalid, field, "is %d bytes long; at most %d are allowed", len(raw), input.MaxMetadataBytes)
	}
	return input.Compact(input.ReplaceNUL(raw))
}

// memoryJSON is a memory in answers.
type memoryJSON struct {
	ID         string             `json:"id"`
	Content    any                `json:"content"`
	Type       string             `json:"memory_type"`
	Status     string             `json:"status"`
	Category   string             `json:"category,omitempty"`
	Importance *float64           `json:"importance,omitempty"`
	Metadata   memoryMetadataJSON `json:"metadata"`
	CreatedAt  string             `json:"created_at"`
	UpdatedAt  string             `json:"updated_at"`
	ToolCalls  json.RawMessage    `json:"tool_calls,omitempty"` // ai
	*toolJSON
	Ledger *ledgerPlaceJSON `json:"ledger,omitempty"`
}

// memoryMetadataJSON is a memory's metadata. An ID that is not set is null.
type memoryMetadataJSON struct {
	UserID    *string         `json:"user_id"`
	SessionID *string         `json:"session_id"`
	TaskID    *string         `json:"task_id"`
	AgentID   *string         `json:"agent_id"`
	Extra     json.RawMessage `json:"extra"`
}

// toolJSON is what memories of type tool have.
type toolJSON struct {
	ToolCallID string `json:"tool_call_id"`
	ToolName   string `json:"tool_name"`
	IsError    bool   `json:"is_error"`
}

// ledgerPlaceJSON is the place of a memory in an agent's ledger.
type ledgerPlaceJSON struct {
	AgentID string `json:"agent_id"`
	Seq     int64  `json:"seq"`
}

func newMemoryJSON(it *memories.Item, names roleNames) memoryJSON {
	m := &it.Message
	iso := func(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
	orNil := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	out := memoryJSON{
		ID: it.Row.ID, Content: contentJSON(m.Parts, m.Content, nil), Type: names.of(m.Role), Status: string(m.Status.Named()), Category: m.Filed().Category, Importance: m.Filed().Importance,
		Metadata:  memoryMetadataJSON{orNil(it.Row.UserID), orNil(it.Row.SessionID), orNil(it.Row.TaskID), orNil(it.Row.AgentID), json.RawMessage("{}")},
		CreatedAt: iso(m.Timestamp), UpdatedAt: iso(m.Timestamp),
	}
	if m.Role == memory.Assistant {
		if out.ToolCalls = m.ToolCalls; len(m.ToolCalls) == 0 {
			out.ToolCalls = json.RawMessage("[]")
		}
	}
	if m.Role == memory.Tool {
		out.toolJSON = &toolJSON{ToolCallID: m.ToolCallID, ToolName: m.ToolName}
	}
	if item := m.Filed().Item; item != nil {
		if len(item.Extra) > 0 {
			out.Metadata.Extra = item.Extra
		}
		if item.UpdatedMS != 0 {
			out.UpdatedAt = iso(item.UpdatedMS)
		}
		if out.toolJSON != nil {
			out.IsError = item.IsError
		}
	}
	if it.Project == it.Row.Project {
		out.Ledger = &ledgerPlaceJSON{AgentID: it.AgentID, Seq: m.Seq}
	}
	return out
}

// noMemory refuses a text that cannot be a memory's ID.
func noMemory(id string) error { return memories.ErrNotFound(text.Clip(id, 40)) }

func (a itemAPI) get(r *http.Request) (any, error) {
	names, err := openAINames(r.URL.Query().Get("role_names"))
	if err != nil {
		return nil, err
	}
	id := chi.URLParam(r, "id")
	if !memoryID(id) {
		return nil, noMemory(id)
	}
	it, err := a.items.Get(r.Context(), projectOf(r), id)
	if err != nil {
		return nil, err
	}
	return newMemoryJSON(&it, names), nil
}

// memoryStatusRequest sets the status of a memory.
type memoryStatusRequest struct {
	Status    string `json:"status" validate:"required"`
	RoleNames string `json:"role_names"`
}

func (a itemAPI) setStatus(r *http.Request, in *memoryStatusRequest) (any, error) {
	names, err := openAINames(in.RoleNames)
	if err != nil {
		return nil, err
	}
	next, err := window.ParseStatus("status", in.Status)
	if err != nil {
		return nil, err
	}
	id := chi.URLParam(r, "id")
	if !memoryID(id) {
		return nil, noMemory(id)
	}
	it, err := a.items.SetStatus(r.Context(), projectOf(r), id, next)
	if err != nil {
		return nil, err
	}
	return newMemoryJSON(&it, names), nil
}

// searchRequest is a search. Fields that are not set match anything.
type searchRequest struct {
	memoryScope
	Scope     string `json:"scope"`
	Query     string `json:"query"`
	Type      string `json:"type"`
	Status    string `json:"status"`
	Category  string `json:"category" validate:"omitempty,oneof=user_profile semantic episodic variable summary conversation"`
	Limit     *int   `json:"limit"`
	MaxRounds int    `json:"max_rounds"`
	RoleNames string `json:"role_names"`
}

// foundJSON is the result of a search.
type foundJSON struct {
	Memories  []memoryJSON `json:"memories"`
	Total     int          `json:"total"`
	Truncated bool         `json:"truncated"`
}

func (a itemAPI) search(r *http.Request, in *searchRequest) (any, error) {
	names, err := openAINames(in.RoleNames)
	if err != nil {
		return nil, err
	}
	q, limit, err := in.search()
	if err != nil {
		return nil, err
	}
	found, err := a.items.Search(r.Context(), projectOf(r), q)
	if err != nil {
		return nil, err
	}
	out := foundJSON{Memories: []memoryJSON{}, Total: found.Total, Truncated: found.Truncated}
	for i := range found.Items[:min(limit, len(found.Items))] {
		out.Memories = append(out.Memories, newMemoryJSON(&found.Items[i], names))
	}
	return out, nil
}

// search checks a search. limit is how many to show and may be 0, unlike the query's limit.
func (in searchRequest) search() (q window.SearchQuery, limit int, err error) {
	if q.Level, err = window.ParseLevel("scope", in.Scope); err != nil {
		return q, 0, err
	}
	if q.Scope, err = in.ids(""); err != nil {
		return q, 0, err
	}
	if n := utf8.RuneCountInString(in.Query); n > maxQuery {
		return q, 0, fault.At(fault.Invalid, "query", "has %d characters; at most %d are allowed", n, maxQuery)
	}
	q.Query = in.Query
	if in.Type != "" {
		role, err := roleOf("type", in.Type)
		if err != nil {
			return q, 0, err
		}
		if q.Role = role; role == memory.Developer { // counts as a system message
			q.Role = memory.System
		}
	}
	if in.Status != "" {
		if q.Status, err = window.ParseStatus("status", in.Status); err != nil {
			return q, 0, err
		}
	}
	q.Category = in.Category
	limit = window.DefaultSearchLimit
	if in.Limit != nil {
		limit = *in.Limit
	}
	switch {
	case limit < 0 || limit > maxMemoryLimit:
		return q, 0, fault.At(fault.Invalid, "limit", "must be a whole number from 0 to %d, not %d", maxMemoryLimit, limit)
	case in.MaxRounds < 0 || in.MaxRounds > maxMemoryRounds:
		return q, 0, fault.At(fault.Invalid, "max_rounds", "must be a whole number from 0, for no limit, to %d, not %d", maxMemoryRounds, in.MaxRounds)
	}
	q.Limit, q.Rounds, q.Pairs = max(limit, 1), in.MaxRounds, window.IntegrityTrailing
	return q, limit, nil
}

// clearMemoriesRequest names whose memories to clear.
type clearMemoriesRequest struct {
	memoryScope
	Scope string `json:"scope"`
}

func (a itemAPI) clear(r *http.Request, in *clearMemoriesRequest) (any, error) {
	level, err := window.ParseLevel("scope", in.Scope)
	if err != nil {
		return nil, err
	}
	scope, err := in.ids("")
	if err != nil {
		return nil, err
	}
	n, err := a.items.Clear(r.Context(), projectOf(r), level, scope)
	if err != nil {
		return nil, err
	}
	return removedJSON{Removed: n}, nil
}
