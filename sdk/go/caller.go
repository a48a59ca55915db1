package heardlog

import (
	"context"
	"net/http"
	"net/url"
)

// Evidence reports what was heard with an event of a voice platform. The event or the headers name
// the call.
func (c *Client) Evidence(ctx context.Context, platform string, event any, headers http.Header) error {
	return c.Do(ctx, Request{Method: http.MethodPost, Path: "/evidence/" + url.PathEscape(platform), Body: event, Header: headers, Repeatable: true}, nil)
}

// Hit is something that was found in the calls of a caller.
type Hit struct {
	Kind    string  `json:"kind"` // turn or fact
	ID      string  `json:"id"`
	Score   float64 `json:"score"`
	Content string  `json:"content"`
	Role    string  `json:"role"`
	At      string  `json:"at"` // RFC 3339
	AgentID string  `json:"agent_id"`
}

// Recall finds what was said in any call of a caller, best first. k limits the hits; 0 is the
// server's default.
func (c *Client) Recall(ctx context.Context, userID, query string, k int) ([]Hit, error) {
	body := map[string]any{"user_id": userID, "query": query}
	if k != 0 {
		body["k"] = k
	}
	var out struct {
		Hits []Hit `json:"hits"`
	}
	err := c.Do(ctx, Request{Method: http.MethodPost, Path: "/recall", Body: body, Repeatable: true}, &out)
	return out.Hits, err
}

// Fact is a statement about a caller.
type Fact struct {
	ID         string   `json:"id,omitempty"`
	Content    string   `json:"content"`
	Kind       string   `json:"kind,omitempty"`
	Subject    string   `json:"subject,omitempty"`
	Attribute  string   `json:"attribute,omitempty"`
	Topics     []string `json:"topics,omitempty"`
	Confidence float64  `json:"confidence,omitempty"`
	State      string   `json:"state,omitempty"`
	Source     *Source  `json:"source,omitempty"`
}

// Source is where a fact was said.
type Source struct {
	AgentID string `json:"agent_id"`
	FromSeq int64  `json:"from_seq"`
	ToSeq   int64  `json:"to_seq"`
	Quote   string `json:"quote"`
	Speaker string `json:"speaker,omitempty"`
}

// Facts returns the active facts about a caller, the last seen first.
func (c *Client) Facts(ctx context.Context, userID string) ([]Fact, error) {
	var all []Fact
	q := url.Values{"limit": {"1000"}}
	for {
		var page struct {
			Facts []Fact `json:"facts"`
			Next  string `json:"next_cursor"`
		}
		if err := c.Do(ctx, Request{Method: http.MethodGet, Path: factsPath(userID), Query: q}, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Facts...)
		if page.Next == "" {
			return all, nil
		}
		q.Set("cursor", page.Next)
	}
}

// AddFact stores a fact about a caller and returns it as stored. With a source, its quote is looked
// up in what was heard, and a fact without that proof is refused.
func (c *Client) AddFact(ctx context.Context, userID string, f Fact) (Fact, error) {
	var out Fact
	err := c.Do(ctx, Request{Method: http.MethodPost, Path: factsPath(userID), Body: f, Key: newKey()}, &out)
	return out, err
}

// DeleteFact deletes a fact, whether or not it exists.
func (c *Client) DeleteFact(ctx context.Context, userID, id string) error {
	return c.Do(ctx, Request{Method: http.MethodDelete, Path: factsPath(userID) + "/" + url.PathEscape(id)}, nil)
}

func factsPath(userID string) string { return "/users/" + url.PathEscape(userID) + "/facts" }
