package heardlog

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
)

// Agent is one call. Client.Start and Client.Agent return it.
type Agent struct {
	ID string

	c    *Client
	path string
}

// StartOptions are what a new agent may have. All of them are optional.
type StartOptions struct {
	UserID      string // whose call it is: memory, recall and facts belong to the caller
	SessionID   string
	System      string // the system message
	Greeting    string
	Labels      map[string]string
	Keys        []string // by which requests and events find the agent, such as vapi.call:91c3
	IdleTimeout int      // seconds of silence after which the agent ends by itself
	// Properties holds further properties, as the API has them. They win over the fields above.
	Properties map[string]any
	// Key is the Idempotency-Key. Default: a new one for each call of Start.
	Key string
}

// Start starts an agent, which is RUNNING when the call answers. If a running agent has the name,
// it fails with an *Error of status 409 that names that agent.
func (c *Client) Start(ctx context.Context, name string, o StartOptions) (*Agent, error) {
	body := map[string]any{"name": name}
	if p := merged(o.properties(), o.Properties); len(p) > 0 {
		body["properties"] = p
	}
	var joined struct {
		ID string `json:"agent_id"`
	}
	if err := c.Do(ctx, Request{Method: http.MethodPost, Path: "/join", Body: body, Key: first(o.Key, newKey())}, &joined); err != nil {
		return nil, err
	}
	return c.Agent(joined.ID), nil
}

// Agent returns the agent with an ID, without a call.
func (c *Client) Agent(id string) *Agent {
	return &Agent{ID: id, c: c, path: "/agents/" + url.PathEscape(id)}
}

func (o StartOptions) properties() map[string]any {
	p, llm, own, scope := map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}
	set := func(m map[string]any, name, value string) {
		if value != "" {
			m[name] = value
		}
	}
	set(scope, "user_id", o.UserID)
	set(scope, "session_id", o.SessionID)
	set(llm, "greeting_message", o.Greeting)
	if o.System != "" {
		llm["system_messages"] = []any{map[string]any{"role": "system", "content": o.System}}
	}
	if len(scope) > 0 {
		own["scope"] = scope
	}
	if len(o.Keys) > 0 {
		own["keys"] = o.Keys
	}
	if len(o.Labels) > 0 {
		p["labels"] = o.Labels
	}
	if o.IdleTimeout != 0 {
		p["idle_timeout"] = o.IdleTimeout
	}
	if len(llm) > 0 {
		p["llm"] = llm
	}
	if len(own) > 0 {
		p["heardlog"] = own
	}
	return p
}

// merged returns a with the members of b, objects member by member.
func merged(a, b map[string]any) map[string]any {
	out := map[string]any{}
	for name, v := range a {
		out[name] = v
	}
	for name, v := range b {
		was, ok1 := out[name].(map[string]any)
		is, ok2 := v.(map[string]any)
		if ok1 && ok2 {
			v = merged(was, is)
		}
		out[name] = v
	}
	return out
}

// URL returns the base URL for OpenAI clients that talk for this agent. They send only what is new,
// with the headers of Client.Header.
func (a *Agent) URL() string { return a.c.url + a.path }

// Header returns the headers for requests to Client.URL that are this agent's.
func (a *Agent) Header() http.Header {
	h := a.c.Header()
	h.Set("X-Agent-Id", a.ID)
	return h
}

// Message is one message, to append or as stored. Fields that are empty are left out.
type Message struct {
	ID         string          `json:"id,omitempty"`
	Role       string          `json:"role"`
	Content    any             `json:"content,omitempty"` // a text, or parts as OpenAI has them
	TurnID     *int64          `json:"turn_id,omitempty"`
	Timestamp  int64           `json:"timestamp,omitempty"` // Unix ms
	Metadata   map[string]any  `json:"metadata,omitempty"`
	ToolCalls  json.RawMessage `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
	Name       string          `json:"name,omitempty"`
}

// Text returns the content if it is a text, or else the empty string.
func (m Message) Text() string {
	s, _ := m.Content.(string)
	return s
}

// Entry is a message of the ledger.
type Entry struct {
	Message
	Seq       int64     `json:"seq"`
	State     string    `json:"state"` // final, or why it does not count
	Generated string    `json:"generated"`
	Sent      string    `json:"sent"`
	Heard     string    `json:"heard"`
	Evidence  *Evidence `json:"evidence"`
}

// Evidence is how it is known what was heard.
type Evidence struct {
	Method     string `json:"method"`
	At         int64  `json:"at"`         // Unix ms, 0 if unknown
	Confidence int    `json:"confidence"` // percent, 0 if unknown
}

// Append appends messages, all or none. They are on disk when the call answers.
func (a *Agent) Append(ctx context.Context, messages ...Message) ([]Entry, error) {
	var out struct {
		Messages []Entry `json:"messages"`
	}
	body := map[string]any{"messages": messages}
	err := a.c.Do(ctx, Request{Method: http.MethodPost, Path: a.path + "/messages", Body: body, Key: newKey()}, &out)
	return out.Messages, err
}

// Messages returns the entries of the whole ledger after a seq, in order; 0 is the beginning.
func (a *Agent) Messages(ctx context.Context, afterSeq int64) ([]Entry, error) {
	var all []Entry
	q := url.Values{"limit": {"1000"}, "after_seq": {strconv.FormatInt(afterSeq, 10)}}
	for {
		var page struct {
			Messages []Entry `json:"messages"`
			Next     string  `json:"next_cursor"`
		}
		if err := a.c.Do(ctx, Request{Method: http.MethodGet, Path: a.path + "/messages", Query: q}, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Messages...)
		if page.Next == "" {
			return all, nil
		}
		q.Del("after_seq")
		q.Set("cursor", page.Next)
	}
}

// History returns the conversation as it was heard, oldest first.
func (a *Agent) History(ctx context.Context) ([]Message, error) {
	var all []Message
	q := url.Values{"limit": {"all"}, "confidence": {"true"}}
	for {
		var page struct {
			Contents []Message `json:"contents"`
			Next     string    `json:"next_cursor"`
		}
		if err := a.c.Do(ctx, Request{Method: http.MethodGet, Path: a.path + "/history", Query: q}, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Contents...)
		if page.Next == "" {
			return all, nil
		}
		q.Set("cursor", page.Next)
	}
}

// Heard reports what was heard of an answer. Its zero value says only that the answer was cut.
type Heard struct {
	Text    string // the text that was heard
	Nothing bool   // whether nothing was heard, for an empty Text
	MS      int64  // how much audio was played, if the text is not known
	TurnID  *int64 // default: the newest answer
	At      int64  // when, in Unix ms
}

// Interrupt cuts the answer in progress, or else the last one, and reports what was heard of it.
func (a *Agent) Interrupt(ctx context.Context, h Heard) error {
	body := map[string]any{}
	if h.Text != "" || h.Nothing {
		body["heard"] = h.Text
	}
	if h.MS != 0 {
		body["heard_ms"] = h.MS
	}
	if h.TurnID != nil {
		body["turn_id"] = *h.TurnID
	}
	if h.At != 0 {
		body["at"] = h.At
	}
	return a.c.Do(ctx, Request{Method: http.MethodPost, Path: a.path + "/interrupt", Body: body, Repeatable: true}, nil)
}

// Evidence reports what was heard with an event of a voice platform, as the platform sends it.
func (a *Agent) Evidence(ctx context.Context, platform string, event any) error {
	return a.c.Do(ctx, Request{Method: http.MethodPost, Path: a.path + "/evidence/" + url.PathEscape(platform), Body: event, Repeatable: true}, nil)
}

// Context returns the messages that an LLM would get now, with utterance as the caller's newest
// words. It changes and stores nothing.
func (a *Agent) Context(ctx context.Context, utterance string) ([]Message, error) {
	var out struct {
		Messages []Message `json:"messages"`
	}
	body := map[string]any{}
	if utterance != "" {
		body["utterance"] = utterance
	}
	err := a.c.Do(ctx, Request{Method: http.MethodPost, Path: a.path + "/context", Body: body, Repeatable: true}, &out)
	return out.Messages, err
}

// Leave ends the call. Its memory stays. An agent that has ended already is left as it is.
func (a *Agent) Leave(ctx context.Context) error {
	h := http.Header{"X-Agent-Id": {a.ID}}
	return a.c.Do(ctx, Request{Method: http.MethodPost, Path: "/leave", Header: h, Repeatable: true}, nil)
}
