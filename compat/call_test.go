package compat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// object is a JSON object to send.
type object map[string]any

// message is one entry of the ledger.
type message struct {
	Seq       int64          `json:"seq"`
	ID        string         `json:"id"`
	Role      string         `json:"role"`
	Content   string         `json:"content"`
	TurnID    int64          `json:"turn_id"`
	State     string         `json:"state"`
	Metadata  map[string]any `json:"metadata"`
	ToolCalls []any          `json:"tool_calls"`
	CallID    string         `json:"tool_call_id"`
	Generated string         `json:"generated"`
	Complete  bool           `json:"generated_complete"`
	Sent      string         `json:"sent"`
	Heard     string         `json:"heard"`
	Evidence  struct{ Method string }
	Usage     struct {
		Total int `json:"total_tokens"`
	} `json:"usage"`
	Failure map[string]any `json:"failure"`
}

// said returns a message as one line, for comparison.
func (m message) said() string {
	s := m.Role + ": " + m.Content
	if m.Metadata["interrupted"] == true {
		s += " [interrupted]"
	}
	if m.State != "final" {
		s += " [" + m.State + "]"
	}
	return s
}

func said(msgs []message) []string {
	out := []string{}
	for _, m := range msgs {
		out = append(out, m.said())
	}
	return out
}

// try makes a call and returns its status and body. The error is one of the connection. Headers are
// pairs of name and value.
func (s *server) try(ctx context.Context, method, path string, body any, headers ...string) (int, []byte, error) {
	var b []byte
	switch v := body.(type) {
	case nil:
	case string:
		b = []byte(v)
	default:
		var err error
		if b, err = json.Marshal(v); err != nil {
			return 0, nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(b))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := s.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	return res.StatusCode, got, err
}

// call makes a call that must answer with the wanted status, and decodes the answer into out unless
// that is nil.
func (s *server) call(t testing.TB, want int, method, path string, body, out any, headers ...string) {
	t.Helper()
	status, got, err := s.try(t.Context(), method, path, body, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if status != want {
		t.Fatalf("%s %s answered %d, want %d: %s", method, path, status, want, got)
	}
	if out != nil {
		if err := json.Unmarshal(got, out); err != nil {
			t.Fatalf("%s %s: %v: %s", method, path, err, got)
		}
	}
}

// join starts an agent under /v1 and returns its ID.
func (s *server) join(t testing.TB, name string, properties object, headers ...string) string {
	t.Helper()
	var out struct {
		AgentID string `json:"agent_id"`
	}
	s.call(t, 200, "POST", "/v1/agents", object{"name": name, "properties": properties}, &out, headers...)
	return out.AgentID
}

// scripted returns properties that make the fake LLM answer as the script says.
func scripted(script object) object {
	return object{"llm": object{"params": object{"fake": script}}}
}

// ledgerOf returns all messages of an agent's ledger.
func (s *server) ledgerOf(ctx context.Context, id string, headers ...string) ([]message, error) {
	var all []message
	for cursor := ""; ; {
		status, body, err := s.try(ctx, "GET", "/v1/agents/"+id+"/messages?limit=1000&cursor="+cursor, nil, headers...)
		if err != nil {
			return nil, err
		}
		var page struct {
			Messages []message `json:"messages"`
			Next     string    `json:"next_cursor"`
		}
		if status != 200 {
			return nil, errors.New(string(body))
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Messages...)
		if page.Next == "" {
			return all, nil
		}
		cursor = page.Next
	}
}

func (s *server) ledger(t testing.TB, id string, headers ...string) []message {
	t.Helper()
	msgs, err := s.ledgerOf(t.Context(), id, headers...)
	if err != nil {
		t.Fatalf("ledger of %s: %v", id, err)
	}
	return msgs
}

// historyOf returns the agent's history.
func (s *server) historyOf(t testing.TB, id string, headers ...string) []message {
	t.Helper()
	var out struct {
		Contents []message `json:"contents"`
	}
	s.call(t, 200, "GET", "/v1/agents/"+id+"/history", nil, &out, headers...)
	for i := range out.Contents {
		out.Contents[i].State = "final" // history shows no other
	}
	return out.Contents
}

func (s *server) statusOf(t testing.TB, id string, headers ...string) string {
	t.Helper()
	var out struct{ Status string }
	s.call(t, 200, "GET", "/v1/agents/"+id, nil, &out, headers...)
	return out.Status
}

// upstreamCall is one request that the fake LLM received.
type upstreamCall struct {
	Header http.Header
	Body   struct {
		Model    string
		Stream   bool
		Messages []struct {
			Role    string
			Content any
		}
		Tools          []any
		ResponseFormat json.RawMessage `json:"response_format"`
		ToolChoice     json.RawMessage `json:"tool_choice"`
		StreamOptions  json.RawMessage `json:"stream_options"`
	}
}

// requests returns what the fake LLM received.
func requests(t testing.TB, llm string) []upstreamCall {
	t.Helper()
	res, err := http.Get(llm + "/requests")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var out []upstreamCall
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// prompt returns the messages of an upstream call, one a line.
func (u upstreamCall) prompt() []string {
	out := []string{}
	for _, m := range u.Body.Messages {
		text, _ := m.Content.(string)
		out = append(out, strings.TrimSpace(m.Role+": "+text))
	}
	return out
}
